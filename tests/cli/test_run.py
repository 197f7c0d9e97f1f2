"""forebay run: what it prints, what it counts, and that what it delivers is what NumPy reads."""
import json
import re
import signal
import subprocess
import time

import numpy as np
import pytest

FIELDS = """samples batches bytes seconds samples_per_s bytes_per_s first_batch_s wait_s wait_p50_ms
wait_p99_ms skipped memory cache device workers prefetch epochs checksum""".split()
PARTS = {
    "memory": "budget_bytes peak_bytes peak_pss_bytes",
    "cache": "policy items bytes limit_bytes hits misses hit_rate",
    "device": "kind cache_hits cache_misses bytes_copied",
}
EPOCH = "seconds samples hits misses bytes_read"
MEMORY_LINE = re.compile(r"\[Step (\d+)\] Memory - Process: \d+\.\dMB \(\d+\.\d%\), "
                         r"System: \d+\.\d/\d+\.\dGB \(\d+\.\d%\), GPU: .+")


def times(checksum, count):
    return f"{int(checksum, 16) * count % 2 ** 64:016x}"


def test_json_has_every_field_of_the_contract(result, scans):
    stats = result("run", *scans.settings, "--set", "batch.size=16", "--epochs", 2)
    assert set(FIELDS) <= set(stats)
    for part, names in PARTS.items():
        assert set(names.split()) <= set(stats[part]), part
    assert len(stats["epochs"]) == 2
    for epoch in stats["epochs"]:
        assert set(EPOCH.split()) <= set(epoch)
        assert epoch["samples"] == 40
    assert (stats["samples"], stats["batches"]) == (80, 6)
    assert stats["bytes"] >= 80 * 64000
    assert stats["memory"]["peak_bytes"] <= stats["memory"]["budget_bytes"]
    assert stats["seconds"] >= stats["first_batch_s"] > 0


@pytest.mark.parametrize("more", [
    [], ["order.shuffle=false"], ["batch.size=7"], ["workers=1", "prefetch=1"], ["workers=7"],
    ["batch.collate=pad"], ["batch.collate=ragged", "batch.size=9"], ["memory.cache=off"],
    ["source.direct=true"], ["order.group=block"],
])
def test_every_way_to_run_delivers_what_was_generated(result, scans, more):
    settings = [word for setting in more for word in ("--set", setting)]
    stats = result("run", *scans.settings, *settings, "--epochs", 3)
    assert stats["samples"] == 120
    assert stats["checksum"] == times(scans.made["checksum"], 3)


def test_padding_and_offsets_are_no_data(result, checksum, tmp_path):
    random = np.random.default_rng(1)
    arrays = [random.random((rows, 4), dtype=np.float32) for rows in (1, 700, 33, 1024, 5)]
    for number, array in enumerate(arrays):
        array.tofile(tmp_path / f"{number}.bin")
    for collate in ("pad", "ragged"):
        stats = result("run", "--set", "source.kind=bin", "--set", f"source.path={tmp_path}/*.bin",
                       "--set", f"batch.collate={collate}", "--set", "batch.size=3")
        assert stats["checksum"] == checksum(arrays), collate


def test_steps_alone_go_through_epochs_and_stop_in_the_middle(result, failure, scans):
    stats = result("run", *scans.settings, "--set", "batch.size=10", "--steps", 6)
    assert (stats["batches"], stats["samples"]) == (6, 60)
    stats = result("run", *scans.settings, "--set", "batch.size=10", "--steps", 6, "--epochs", 1)
    assert stats["batches"] == 4
    error = failure(1, "run", *scans.settings, "--set", "batch.size=64", "--set",
                    "order.drop_last=true", "--steps", 6)
    assert "batch.size" in error["message"], "epochs without a batch would never end"


def test_epochs_may_come_from_the_configuration(result, scans):
    assert result("run", *scans.settings, "--set", "epochs=2")["samples"] == 80
    assert result("run", *scans.settings, "--set", "epochs=2", "--epochs", 1)["samples"] == 40


def test_memory_lines_keep_the_guides_words(forebay, scans):
    done = forebay("run", *scans.settings, "--set", "monitor.every=10", "--epochs", 1)
    assert done.returncode == 0
    assert [int(step) for step in MEMORY_LINE.findall(done.stderr)] == [10, 20, 30, 40]
    done = forebay("run", *scans.settings, "--set", "monitor.every=10", "--set", "monitor.warn=0%")
    assert re.search("^\u26a0\ufe0f  WARNING: System memory usage is critically high "
                     r"\(\d+\.\d%\)!\n   Consider reducing .*memory.cache.*workers", done.stderr, re.M)


def test_cache_statistics_keep_the_guides_words(forebay, scans):
    done = forebay("run", *scans.settings, "--set", "name=train", "--set", "memory.cache=1MiB",
                   "--set", "memory.budget=64MiB", "--epochs", 2)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[train\] Cache Stats:\n  - Size: \d+ items\n  - Memory: \d+\.\d / \d+\.\d MB"
                     r"\n  - Hit Rate: \d+\.\d\d% \(\d+ hits / \d+ misses\)$", done.stderr, re.M)


def test_the_summary_is_for_a_person(forebay, scans):
    done = forebay("run", *scans.settings)
    assert done.returncode == 0, done.stderr
    for words in ("40 samples in 40 batches", "samples/s", "memory", "budget", "first batch",
                  scans.made["checksum"]):
        assert words in done.stdout, words
    assert "n/a" not in done.stdout.split("memory")[0]


def test_the_quickstart(result, forebay, tmp_path):
    stats = result("run")
    assert len(stats["epochs"]) == 3 and stats["samples"] == 3 * 256
    assert stats["bytes"] >= 3 * 256 * 1000000
    assert stats["memory"]["budget_bytes"] == 256 * 2 ** 20
    files = sorted((tmp_path / "cache/forebay/quickstart").iterdir())
    assert len(files) == 256
    before = files[0].stat().st_mtime_ns
    assert result("run", "--set", "workers=1", "--epochs", 1)["checksum"] == \
        f"{int(stats['checksum'], 16) // 3:016x}"
    assert files[0].stat().st_mtime_ns == before, "made once"
    assert list((tmp_path / "cache/forebay").glob("quickstart?*")) == []
    assert "quickstart" in forebay("run").stdout


def test_a_half_made_quickstart_is_made_again(result, tmp_path):
    folder = tmp_path / "cache/forebay/quickstart"
    folder.mkdir(parents=True)
    (folder / "000000.bin").write_bytes(b"half")
    whole = result("run", "--epochs", 1)
    assert whole["samples"] == 256
    (folder / "000007.bin").unlink()
    assert result("run", "--epochs", 1)["checksum"] == whole["checksum"]


# ---- NumPy ----

DTYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "?"]


def random_array(dtype, shape, seed):
    random = np.random.default_rng(seed)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if dtype == "?":
        return random.integers(0, 2, shape).astype(bool)
    return np.frombuffer(random.bytes(size), dtype).reshape(shape)


def run_npy(result, folder, *more):
    return result("run", "--set", "source.kind=npy", "--set", f"source.path={folder}/*",
                  "--set", "batch.size=2", *more)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_is_what_numpy_reads(result, checksum, tmp_path, dtype, endian, order):
    arrays = [random_array(dtype, (50, 61, 20), seed) for seed in range(3)]
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy",
                np.asarray(array.astype(np.dtype(dtype).newbyteorder(endian)), order=order))
    loaded = [np.load(path) for path in sorted(tmp_path.iterdir())]
    assert loaded[0].flags.f_contiguous == (order == "F")
    stats = run_npy(result, tmp_path)
    assert stats["samples"] == 3
    assert stats["checksum"] == checksum(loaded) == checksum(arrays)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header(result, checksum, tmp_path, version):
    array = random_array("f4", (1000, 7), 5)
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert run_npy(result, tmp_path)["checksum"] == checksum([array])


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5000,), (1, 1, 1, 1), (3, 0)])
def test_odd_shapes(result, checksum, tmp_path, shape):
    array = random_array("i4", shape, 3)
    np.save(tmp_path / "a.npy", array)
    stats = run_npy(result, tmp_path)
    assert stats["samples"] == 1
    assert stats["checksum"] == checksum([array])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_stored_and_deflated(result, checksum, tmp_path, save):
    arrays = [random_array("f4", (400, 9), seed) for seed in range(4)]
    for number, array in enumerate(arrays):
        save(tmp_path / f"{number}.npz", data=array)
    stats = run_npy(result, tmp_path)
    assert stats["samples"] == 4
    assert stats["checksum"] == checksum(arrays)


def test_fields_are_joined_by_stem(result, checksum, tmp_path):
    arrays = []
    for name, dtype in (("blur", "f4"), ("sharp", "u1")):
        (tmp_path / name).mkdir()
        for number in range(5):
            arrays.append(random_array(dtype, (64, 80), number))
            np.save(tmp_path / name / f"{number}.npy", arrays[-1])
    config = tmp_path / "train.yaml"
    config.write_text("source:\n  kind: npy\n  fields: {blur: 'blur/*.npy', sharp: 'sharp/*.npy'}\n")
    stats = result("run", config)
    assert stats["samples"] == 5
    assert stats["checksum"] == checksum(arrays)


def test_generated_frames_are_three_fields(result, tmp_path):
    made = result("generate", "frames", tmp_path, "--files", 4, "--bytes", "500kB")
    config = tmp_path / "frames.yaml"
    config.write_text("source: {kind: npy, fields: {blur: '*_blur.npy', sharp: '*_sharp.npy', "
                      "voxel: '*_voxel.npy'}}\n")
    stats = result("run", config, "--epochs", 2)
    assert stats["samples"] == 8
    assert stats["checksum"] == times(made["checksum"], 2)


@pytest.mark.parametrize("cast, numpy", [("f16", np.float16), ("f32", np.float32)])
def test_casts_are_numpys(result, checksum, tmp_path, cast, numpy):
    arrays = [np.random.default_rng(seed).standard_normal((900, 11)) for seed in range(3)]
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
    stats = run_npy(result, tmp_path, "--set", f"batch.dtype={cast}")
    assert stats["checksum"] == checksum([array.astype(numpy) for array in arrays])


# ---- Errors ----

@pytest.mark.parametrize("text, line, column, says", [
    ("source:\n  kind: bin\n  pth: '*.bin'\n", 3, 3, "path"),
    ("memroy: {budget: 1GiB}\n", 1, 1, "memory"),
    ("memory:\n  budget: lots\n", 2, 11, "lots"),
    ("source: {kind: bin, path: 'x'}\nbatch:\n  size: -3\n", 3, 9, "-3"),
    ("source: {kind: bim, path: 'x'}\n", 1, 16, "bin"),
    ("order: {shuffle: perhaps}\n", 1, 18, "perhaps"),
])
def test_configuration_errors_name_the_place_and_the_nearest(failure, tmp_path, text, line, column,
                                                             says):
    config = tmp_path / "train.yaml"
    config.write_text(text)
    error = failure(1, "run", config)
    assert error["status"] == "BAD_CONFIG"
    assert error["place"] == f"{config}:{line}:{column}"
    assert says in error["message"]


def test_an_error_in_a_setting_names_it(failure):
    error = failure(1, "run", "--set", "source.kind=bin", "--set", "memory.bugdet=1GiB")
    assert error["status"] == "BAD_CONFIG"
    assert "memory.budget" in error["message"]
    assert "memory.bugdet" in error["place"] + error["message"]


def test_what_is_not_built_yet_is_an_error(failure, root):
    """A key of the table whose part is not there yet is refused, never accepted and ignored."""
    table = (root / "src/config/schema.h").read_text()
    later = re.findall(r'X\((\w+), \w+, "([\w.]+)", "[^"]*", LATER', table)
    values = {"SIZE": "1GiB", "BOOL": "true", "COUNT": "7", "TEXT": "safe", "CHOICE": "pad"}
    for kind, key in later:
        error = failure(1, "run", "--set", f"{key}={values[kind]}")
        assert error["status"] == "NOT_BUILT" and key in error["place"] + error["message"]


def test_a_missing_configuration_and_no_files(failure, tmp_path):
    assert "nowhere.yaml" in failure(1, "run", tmp_path / "nowhere.yaml")["message"]
    error = failure(1, "run", "--set", "source.kind=bin", "--set", f"source.path={tmp_path}/*.bin")
    assert "*.bin" in error["message"]


def test_a_batch_that_can_never_fit_is_told_with_the_numbers(failure, scans):
    error = failure(1, "run", *scans.settings, "--set", "batch.size=40", "--set",
                    "memory.budget=1MiB")
    assert error["status"] == "OVER_BUDGET"
    assert "memory.budget" in error["message"]


@pytest.mark.parametrize("rule, samples", [("skip", 39), ("replace", 40)])
def test_a_broken_file_by_rule(result, failure, scans, rule, samples):
    (scans.folder / "000007.bin").write_bytes(b"x" * 17)
    assert "000007.bin" in json.dumps(failure(1, "run", *scans.settings))
    stats = result("run", *scans.settings, "--set", f"on_error={rule}")
    assert stats["samples"] == samples
    assert stats["skipped"] == (1 if rule == "skip" else 0)


def test_json_is_one_object_and_talk_goes_to_stderr(forebay, scans):
    done = forebay("run", *scans.settings, "--set", "monitor.every=5", "--json")
    json.loads(done.stdout)
    assert "Memory - Process" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_the_summary(program, scans, number):
    command = [program, "run", *scans.settings, "--epochs", "1000000", "--json", "--set",
               "monitor.every=100"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        while "[Step" not in process.stderr.readline():
            assert process.poll() is None
        begin = time.monotonic()
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert time.monotonic() - begin < 5
    assert process.returncode == 128 + number
    stats = json.loads(out)
    assert stats["stopped"] is True and stats["samples"] > 0
