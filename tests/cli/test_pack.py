"""forebay pack: tar shards that tar, NumPy and forebay read, the same bytes every time."""
import io
import json
import os
import random
import signal
import subprocess
import tarfile
import zlib

import numpy as np
import pytest

SOAK = os.environ.get("FOREBAY_SOAK", "0") not in ("", "0")


def members(prefix):
    """name -> bytes of all shards in order; each once."""
    found = {}
    for path in sorted(prefix.parent.glob(prefix.name + "-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                assert member.isreg() and (member.mtime, member.uid, member.gid) == (0, 0, 0)
                assert member.name not in found
                found[member.name] = tar.extractfile(member).read()
                if member.name.endswith(".npy"):
                    header = 10 + int.from_bytes(found[member.name][8:10], "little")
                    assert (member.offset_data + header) % 64 == 0, "aligned in the file"
    return found


def arrays(prefix):
    return {name: np.load(io.BytesIO(data)) for name, data in members(prefix).items()
            if name.endswith(".npy")}


def files(prefix):
    return {path.name: path.read_bytes() for path in prefix.parent.iterdir()}


@pytest.fixture
def config(tmp_path):
    """config("source: ...") -> a file beside the test's data."""
    def write(text):
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path
    return write


@pytest.fixture
def frames(tmp_path, config):
    """Twelve samples of two fields, 5 MB in all; .config, .arrays by member name."""
    class Frames:
        arrays = {}
    generator = np.random.default_rng(1)
    (tmp_path / "data").mkdir()
    for number in range(12):
        for field, shape, dtype in (("blur", (100 + number, 30, 30), "f4"), ("v", (7, 11), "f8")):
            array = generator.normal(size=shape).astype(dtype)
            np.save(tmp_path / f"data/{number:03}_{field}.npy", array)
            Frames.arrays[f"{number:03}.{field}.npy"] = array
    Frames.config = config("source: {kind: npy, fields: {blur: 'data/*_blur.npy', "
                           "v: 'data/*_v.npy'}}\nbatch: {collate: pad}\n")
    return Frames


def test_arrays_come_back_as_they_were(result, frames, tmp_path):
    out = tmp_path / "packed/set"
    done = result("pack", frames.config, out, "--shard-size", "1MB")
    found = arrays(out)
    assert list(found) == list(frames.arrays), "in the samples' order"
    for name, array in frames.arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    index = json.loads((tmp_path / "packed/set.json").read_text())
    assert (done["units"], done["members"], done["skipped"], done["kept"]) == (12, 24, 0, 0)
    assert done["shards"] == len(index["shards"]) > 2
    assert index["fields"] == [{"name": "blur", "member": "blur.npy"},
                               {"name": "v", "member": "v.npy"}]
    assert index["made_of"] == {"each": "unit"}
    for shard in index["shards"]:
        data = (tmp_path / "packed" / shard["name"]).read_bytes()
        assert (len(data), f"{zlib.crc32(data):08x}") == (shard["bytes"], shard["crc32"])
        assert len(data) <= 1_000_000
    assert sum(shard["bytes"] for shard in index["shards"]) == done["bytes"]
    assert not list((tmp_path / "packed").glob("*.progress"))


def test_the_same_bytes_whatever_the_workers(result, frames, tmp_path):
    one, two = tmp_path / "one/out", tmp_path / "two/out"
    result("pack", frames.config, one, "--set", "workers=1", "--shard-size", "1MB")
    result("pack", frames.config, f"{two.parent}/", "--set", "workers=7", "--shard-size", "1MB")
    assert files(one) == files(two)


def test_tar_lists_and_extracts_it(frames, result, tmp_path):
    out = tmp_path / "out"
    result("pack", frames.config, out)
    listing = subprocess.run(["tar", "tf", f"{out}-000000.tar"], check=True, capture_output=True,
                             text=True)
    assert listing.stderr == "" and listing.stdout.split() == list(frames.arrays)


def test_forebay_reads_it_with_the_fields_own_names(result, frames, config, tmp_path):
    result("pack", frames.config, tmp_path / "out", "--shard-size", "1MB")
    from_files = result("run", frames.config)
    packed = ["--set", "source.kind=tar", "--set", f"source.path={tmp_path}/out-*.tar",
              "--set", "batch.collate=pad"]
    assert [field["name"] for field in result("inspect", *packed)["fields"]] == ["blur", "v"]
    from_shards = result("run", *packed)
    assert from_shards["checksum"] == from_files["checksum"]
    assert from_shards["samples"] == 12
    one = result("inspect", *packed, "--set", "batch.fields=[v]")
    assert [field["name"] for field in one["fields"]] == ["v"]


@pytest.mark.parametrize("wrong", ["", "{", "[]", "null", '{"format": "forebay-pack"}',
                                   '{"format": "forebay-pack", "version": 1, "fields": 3,'
                                   ' "shards": []}',
                                   '{"format": "forebay-pack", "version": 1, "fields": [{"name": 1,'
                                   ' "member": "blur.npy"}, {"name": "v.npy", "member": "blur.npy"},'
                                   ' {"name": "' + "x" * 100 + '", "member": "v.npy"}, 7],'
                                   ' "shards": []}', "x" * 100_000])
def test_an_index_that_lies_changes_no_name(result, frames, tmp_path, wrong):
    result("pack", frames.config, tmp_path / "out")
    (tmp_path / "out.json").write_text(wrong)
    found = result("inspect", "--set", "source.kind=tar", "--set",
                   f"source.path={tmp_path}/out-*.tar", "--set", "batch.collate=pad")
    assert [field["name"] for field in found["fields"]] == ["blur.npy", "v.npy"]


def test_webdataset_reads_it(result, frames, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    result("pack", frames.config, tmp_path / "out")
    samples = list(webdataset.WebDataset(str(tmp_path / "out-000000.tar"), shardshuffle=False))
    assert len(samples) == 12
    for sample in samples:
        for field in ("blur", "v"):
            np.testing.assert_array_equal(np.load(io.BytesIO(sample[f"{field}.npy"])),
                                          frames.arrays[f"{sample['__key__']}.{field}.npy"])


def test_half_precision(result, frames, tmp_path):
    result("pack", frames.config, tmp_path / "out", "--dtype", "f16")
    for name, array in arrays(tmp_path / "out").items():
        assert array.dtype == np.float16
        np.testing.assert_array_equal(array, frames.arrays[name].astype(np.float32)
                                      .astype(np.float16), err_msg=name)


def test_units_larger_than_the_budget_are_packed_in_pieces(result, failure, config, tmp_path):
    big = np.arange(40_000_000, dtype=np.uint16).reshape(-1, 100)
    np.save(tmp_path / "big.npy", big)
    path = config("source: {kind: npy, path: '*.npy'}\n")
    done = result("pack", path, tmp_path / "out", "--set", "memory.budget=20MiB")
    assert done["threads"] == 1
    np.testing.assert_array_equal(arrays(tmp_path / "out")["big.data.npy"], big)
    error = failure(1, "pack", path, tmp_path / "o2", "--set", "memory.budget=10MiB")
    assert error["status"] == "OVER_BUDGET" and "memory.budget" in error["message"]


def test_scans_of_overlapping_sequences_are_packed_once(result, config, tmp_path):
    for drive in "ab":
        (tmp_path / drive).mkdir()
        for number in range(6):
            np.full((number + 1, 4), ord(drive) + number, np.float32).tofile(
                tmp_path / drive / f"{number}.bin")
    path = config("source: {kind: bin, path: '*/*.bin', sequence: 3}\nbatch: {collate: pad}\n")
    result("pack", path, tmp_path / "out")
    found = arrays(tmp_path / "out")
    assert list(found) == [f"{drive}/{number}.points.npy" for drive in "ab" for number in range(6)]
    np.testing.assert_array_equal(found["b/4.points.npy"], np.full((5, 4), ord("b") + 4, "f4"))
    index = json.loads((tmp_path / "out.json").read_text())
    assert index["made_of"] == {"each": "sequence", "sequence": 3, "stride": 1, "groups": [4, 4]}
    assert (index["samples"], index["units"]) == (8, 12)


def test_series_of_windows_are_packed_once(result, config, tmp_path):
    series = {f"s{i}": np.random.default_rng(i).normal(size=(300 + i, 5)).astype("f4")
              for i in range(3)}
    for name, array in series.items():
        np.save(tmp_path / f"{name}.npy", array)
    path = config("source: {kind: windows, path: 's*.npy', window: 64, stride: 20}\n")
    result("pack", path, tmp_path / "out")
    found = arrays(tmp_path / "out")
    assert len(found) == 3
    for name, array in series.items():
        np.testing.assert_array_equal(found[f"{name}.window.npy"], array)
    index = json.loads((tmp_path / "out.json").read_text())
    assert index["made_of"] == {"each": "window", "window": 64, "stride": 20, "tail": "drop"}


@pytest.mark.parametrize("how", ["columns", "matrix"])
def test_a_table_is_packed_in_blocks_of_rows(result, config, tmp_path, how):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},{i / 2}\n" for i in range(1000)))
    path = config(f"source: {{kind: table, path: t.csv, as: {how}}}\n")
    result("pack", path, tmp_path / "out")
    found = arrays(tmp_path / "out")
    if how == "columns":
        rows = [np.concatenate([found[name] for name in sorted(found) if f".{column}." in name])
                for column in "ab"]
    else:
        matrix = np.concatenate([found[name] for name in sorted(found)])
        assert matrix.shape == (1000, 2)
        rows = matrix.T
    np.testing.assert_array_equal(rows[0], np.arange(1000))
    np.testing.assert_array_equal(rows[1], np.arange(1000) / 2)


@pytest.fixture
def images(result, tmp_path):
    result("generate", "images", tmp_path / "images", "--files", 12, "--bytes", "8kB")
    return f"source: {{kind: images, path: '{tmp_path}/images/**/*.jpg'"


def test_images_are_decoded(result, config, images, tmp_path):
    result("pack", config(images + "}\n"), tmp_path / "out")
    found = arrays(tmp_path / "out")
    pictures = [array for name, array in found.items() if ".image." in name]
    assert len(pictures) == 12 and len(found) == 24
    assert all(array.dtype == np.uint8 and array.shape[2] == 3 for array in pictures)
    assert all(array.shape == () for name, array in found.items() if ".label." in name)
    result("pack", config(images + ", size: [32, 40], layout: chw, mean: [0.5, 0.5, 0.5], "
                          "std: [1, 1, 1]}\n"), tmp_path / "small")
    for name, array in arrays(tmp_path / "small").items():
        if ".image." in name:
            assert (array.dtype, array.shape) == (np.float32, (3, 32, 40))
            assert -0.5 <= array.min() < array.max() <= 0.5


def test_originals_are_kept_as_they_are(result, failure, config, images, tmp_path):
    random_crop = images + ", size: 32, crop: random}\n"
    error = failure(1, "pack", config(random_crop), tmp_path / "no")
    assert "source.crop" in error["message"] and "--keep" in error["message"]
    result("pack", config(random_crop), tmp_path / "out", "--keep")
    found = members(tmp_path / "out")
    originals = {path.relative_to(tmp_path / "images").with_suffix(".jpg").as_posix():
                 path.read_bytes() for path in (tmp_path / "images").rglob("*.jpg")}
    assert {name: data for name, data in found.items() if name.endswith(".jpg")} == originals
    assert sum(name.endswith(".label.npy") for name in found) == 12


def test_speech(result, config, tmp_path):
    result("generate", "audio", tmp_path / "speech", "--files", 6, "--bytes", "20kB")
    path = config(f"source: {{kind: audio, path: '{tmp_path}/speech/manifest.jsonl'}}\n"
                  "batch: {collate: pad}\n")
    result("pack", path, tmp_path / "out")
    found = arrays(tmp_path / "out")
    assert sum(name.endswith(".audio.npy") for name in found) == 6
    for line, number in zip((tmp_path / "speech/manifest.jsonl").read_text().splitlines(),
                            range(6)):
        told = json.loads(line)
        sound = found[f"{number:08}.audio.npy"]
        assert sound.dtype == np.float32 and sound.size == round(told["duration"] * 16000)
        assert found[f"{number:08}.text.npy"].tobytes().decode() == told["text"]
    result("pack", path, tmp_path / "kept", "--keep")
    kept = members(tmp_path / "kept")
    originals = sorted((tmp_path / "speech").glob("0*"))
    assert [kept[f"{number:08}{path.suffix}"] == path.read_bytes()
            for number, path in enumerate(originals)] == [True] * 6


def test_keep_needs_files_that_are_encoded(failure, frames, tmp_path):
    assert "--keep" in failure(1, "pack", frames.config, tmp_path / "out", "--keep")["message"]


def test_dots_in_keys_become_underscores_and_clashes_are_an_error(result, failure, config,
                                                                  tmp_path):
    for name in ("a.b", "c"):
        np.save(tmp_path / f"{name}.npy", np.zeros(3))
    path = config("source: {kind: npy, path: '*.npy'}\n")
    result("pack", path, tmp_path / "out")
    assert list(arrays(tmp_path / "out")) == ["a_b.data.npy", "c.data.npy"]
    np.save(tmp_path / "a_b.npy", np.zeros(3))
    error = failure(1, "pack", path, tmp_path / "o2")
    assert "a.b.npy" in error["message"] and "a_b.npy" in error["message"]
    assert not list(tmp_path.glob("o2*"))


def test_long_names_are_kept(result, config, tmp_path):
    name = "x" * 180
    np.save(tmp_path / f"{name}.npy", np.arange(3))
    result("pack", config("source: {kind: npy, path: '*.npy'}\n"), tmp_path / "out")
    assert list(arrays(tmp_path / "out")) == [f"{name}.data.npy"]


def test_what_is_broken_is_an_error_or_left_out(result, failure, frames, tmp_path):
    broken = tmp_path / "data/004_blur.npy"
    broken.write_bytes(broken.read_bytes()[:-100])
    error = failure(1, "pack", frames.config, tmp_path / "out")
    assert "004_blur.npy" in error["message"] and "on_error" in error["message"]
    done = result("pack", frames.config, tmp_path / "out", "--set", "on_error=skip")
    assert (done["units"], done["skipped"]) == (11, 1)
    assert "004.blur.npy" not in arrays(tmp_path / "out")


def test_what_is_there_is_kept_or_said(result, failure, frames, tmp_path):
    out = tmp_path / "packed/out"
    result("pack", frames.config, out, "--shard-size", "1MB")
    before = files(out)
    again = result("pack", frames.config, out, "--shard-size", "1MB")
    assert again["kept"] == again["shards"]
    path = tmp_path / "packed/out-000001.tar"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    repaired = result("pack", frames.config, out, "--shard-size", "1MB")
    assert repaired["kept"] == repaired["shards"] - 1 and files(out) == before
    error = failure(1, "pack", frames.config, out, "--dtype", "f16")
    assert "--force" in error["message"] and files(out) == before
    result("pack", frames.config, out, "--dtype", "f16", "--force")
    assert all(array.dtype == np.float16 for array in arrays(out).values())
    assert len(files(out)) == 2, "no old shard stays"


def test_shards_of_somebody_else_are_not_touched(failure, frames, tmp_path):
    (tmp_path / "out-000000.tar").write_bytes(b"precious")
    assert "--force" in failure(1, "pack", frames.config, tmp_path / "out")["message"]
    assert (tmp_path / "out-000000.tar").read_bytes() == b"precious"
    assert not (tmp_path / "out.progress").exists()


def test_two_packs_to_one_name_do_not_mix(failure, frames, tmp_path):
    import fcntl
    with open(tmp_path / "out.progress", "w") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        assert "another" in failure(1, "pack", frames.config, tmp_path / "out")["message"]


@pytest.mark.parametrize("turn", range(50 if SOAK else 5))
def test_killed_at_any_time_and_resumed_the_bytes_are_the_same(program, result, scans, config,
                                                               tmp_path, turn):
    path = config(f"source: {{kind: bin, path: '{scans.folder}/*.bin'}}\n")
    sure, out = tmp_path / "sure/out", tmp_path / "killed/out"
    whole = result("pack", path, sure, "--shard-size", "200kB")
    draw = random.Random(turn)
    for _ in range(3):
        process = subprocess.Popen([program, "pack", path, out, "--shard-size", "200kB"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(draw.uniform(0, 1.5 * whole["seconds"] + 0.02))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    result("pack", path, out, "--shard-size", "200kB")
    assert files(out) == files(sure)


def test_a_full_disk_is_said_and_leaves_no_half_file(failure, result, frames, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if os.getuid() != 0 or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2200k", "none", small],
            capture_output=True).returncode != 0:
        pytest.skip("no small file system can be mounted here")
    try:
        error = failure(1, "pack", frames.config, small / "out", "--shard-size", "1MB")
        assert "disk is full" in error["message"]
        assert not list(small.glob("*.tmp*"))
        finished = list(small.glob("*.tar"))
        assert finished, "what was finished stays"
        subprocess.run(["mount", "-o", "remount,size=20M", small], check=True)
        done = result("pack", frames.config, small / "out", "--shard-size", "1MB")
        assert done["kept"] == len(finished)
        assert len(arrays(small / "out")) == 24
    finally:
        subprocess.run(["umount", small], check=True)


def test_ctrl_c_leaves_no_half_file(program, scans, config, tmp_path):
    path = config(f"source: {{kind: bin, path: '{scans.folder}/*.bin'}}\n")
    process = subprocess.Popen([program, "pack", path, tmp_path / "packed/out"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.send_signal(signal.SIGINT)
    process.wait(30)
    assert not list(tmp_path.glob("packed/*.tmp*"))
