"""What forebay packed and reads again is the same samples, not the units they were cut from."""
import io
import json
import tarfile

import numpy as np
import pytest


def packed(folder):
    return ["--set", "source.kind=tar", "--set", f"source.path={folder}/out-*.tar"]


def look(result, *arguments):
    """Samples, fields and the sum over all of them."""
    found, run = result("inspect", *arguments), result("run", *arguments)
    assert run["failed"] == 0
    fields = [(f["name"], f["dtype"], f["shape"]) for f in found["fields"]]
    return found["samples"], fields, run["checksum"]


def same(result, folder, source, more=""):
    config = folder / "c.yaml"
    config.write_text(f"source: {source}\nbatch: {{size: 3{more}}}\n")
    result("pack", config, folder / "out", "--shard-size", "64kB", "--force")
    settings = ["--set", "batch.size=3", *(["--set", "batch.collate=pad"] if more else [])]
    assert look(result, config) == look(result, *packed(folder), *settings)
    for cache in ("off", "400kB", "1MB"):
        one = result("run", *packed(folder), *settings, "--set", f"memory.cache={cache}",
                     "--epochs", 2)
        assert one["checksum"] == result("run", config, "--epochs", 2)["checksum"]


@pytest.fixture
def series(tmp_path):
    for number, rows in enumerate((300, 64, 63, 121, 2000)):
        generator = np.random.default_rng(number)
        np.save(tmp_path / f"s{number}_x.npy", generator.normal(size=(rows, 5)).astype("f4"))
        np.save(tmp_path / f"s{number}_y.npy", generator.integers(0, 9, size=rows))
    return tmp_path


@pytest.mark.parametrize("tail", ["drop", "pad"])
@pytest.mark.parametrize("stride", [20, 64, 100])
def test_windows(result, series, tail, stride):
    same(result, series,
         f"{{kind: windows, path: 's*_x.npy', window: 64, stride: {stride}, tail: {tail}}}")


def test_windows_of_two_fields(result, series):
    same(result, series, "{kind: windows, fields: {x: 's*_x.npy', y: 's*_y.npy'}, window: 10, "
                         "stride: 3}")


@pytest.mark.parametrize("how", ["as-packed", "turned", "swapped"])
def test_a_window_that_is_not_cached_is_read_alone(result, series, how):
    """Unless its member is turned: such are read whole, and are the same windows."""
    config = series / "c.yaml"
    config.write_text("source: {kind: windows, path: 's*_x.npy', window: 64, stride: 20}\n")
    result("pack", config, series / "out")
    if how != "as-packed":
        rewrite(series / "out-000000.tar", np.asfortranarray if how == "turned" else
                lambda array: array.astype(">f4"))
    settings = [*packed(series), "--set", "batch.size=4"]
    loose = result("run", config, "--set", "batch.size=4")
    for dtype in ("keep", "f16"):
        run = result("run", *settings, "--set", "memory.cache=off", "--set", f"batch.dtype={dtype}")
        assert run["failed"] == 0
        if dtype == "keep":
            assert run["checksum"] == loose["checksum"]
        bytes_read, windows = run["epochs"][0]["bytes_read"], run["samples"] * 64 * 5 * 4
        assert (bytes_read <= 1.05 * windows) == (how == "as-packed")


def rewrite(path, change):
    """The same archive with other arrays in it."""
    with tarfile.open(path) as archive:
        members = [(m.name, np.load(io.BytesIO(archive.extractfile(m).read()))) for m in archive]
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, array in members:
            file = io.BytesIO()
            np.save(file, change(array))
            member = tarfile.TarInfo(name)
            member.size = file.tell()
            file.seek(0)
            archive.addfile(member, file)


@pytest.mark.parametrize("sequence,stride", [(3, 1), (3, 2), (3, 5), (2, 2)])
def test_sequences(result, tmp_path, sequence, stride):
    for drive, scans in (("a", 12), ("b", 2), ("c", 7)):  # b is too short for three
        (tmp_path / drive).mkdir()
        for number in range(scans):
            rows = np.random.default_rng(number).integers(1, 50)
            np.full((rows, 4), ord(drive) + number, np.float32).tofile(
                tmp_path / drive / f"{number:02}.bin")
    same(result, tmp_path, f"{{kind: bin, path: '*/*.bin', sequence: {sequence}, "
                           f"stride: {stride}}}", ", collate: pad")


@pytest.mark.parametrize("how", ["columns", "matrix"])
def test_rows(result, tmp_path, how):
    (tmp_path / "t.csv").write_text(
        "a,b,c\n" + "".join(f"{i},{i / 7},{i % 3 / 8}\n" for i in range(1000)))
    same(result, tmp_path, f"{{kind: table, path: t.csv, as: {how}}}")


def test_some_of_the_shards_are_units(result, forebay, tmp_path):
    (tmp_path / "a").mkdir()
    for number in range(8):
        np.full((4000, 4), number, np.float32).tofile(tmp_path / f"a/{number}.bin")
    config = tmp_path / "c.yaml"
    config.write_text("source: {kind: bin, path: 'a/*.bin', sequence: 3}\n")
    result("pack", config, tmp_path / "out", "--shard-size", "64kB")
    assert result("inspect", *packed(tmp_path))["samples"] == 6
    (tmp_path / "out-000000.tar").unlink()
    done = forebay("inspect", *packed(tmp_path), "--json")
    assert json.loads(done.stdout)["samples"] == 7
    assert "does not fit these shards" in done.stderr


@pytest.mark.parametrize("lie", [
    {"each": "window"}, {"each": "window", "window": 0, "stride": 1},
    {"each": "window", "window": -1, "stride": 1}, {"each": "window", "window": 2**62, "stride": 1},
    {"each": "window", "window": 1, "stride": 2**63 - 1}, {"each": "sequence"}, {"each": 3}, 7,
    {"each": "sequence", "sequence": 3, "stride": 1}, {"each": "other", "window": 3, "stride": 1},
    {"each": "sequence", "sequence": 3, "stride": 1, "groups": [2**62, 2**62]},
    {"each": "sequence", "sequence": 3, "stride": 1, "groups": [0, 3]},
    {"each": "sequence", "sequence": 3, "stride": 1, "groups": ["x"]},
    {"each": "sequence", "sequence": 2**40, "stride": 1, "groups": [1]}])
def test_an_index_that_lies_about_samples_leaves_units(result, tmp_path, lie):
    for number in range(3):
        np.save(tmp_path / f"s{number}.npy", np.ones((5, 2), "f4"))
    config = tmp_path / "c.yaml"
    config.write_text("source: {kind: windows, path: 's*.npy', window: 2, stride: 1}\n")
    result("pack", config, tmp_path / "out")
    index = json.loads((tmp_path / "out.json").read_text())
    index["made_of"] = lie
    (tmp_path / "out.json").write_text(json.dumps(index))
    found = result("inspect", *packed(tmp_path))
    assert found["samples"] == 3 and result("run", *packed(tmp_path))["samples"] == 3


def test_fields_of_unequal_length_are_one_sample_that_fails(result, forebay, tmp_path):
    for number in range(3):
        np.save(tmp_path / f"s{number}_x.npy", np.ones((9, 2), "f4"))
        np.save(tmp_path / f"s{number}_y.npy", np.ones(9 - (number == 1), "f4"))
    config = tmp_path / "c.yaml"
    config.write_text("source: {kind: npy, fields: {x: 's*_x.npy', y: 's*_y.npy'}}\n"
                      "batch: {collate: pad}\n")
    result("pack", config, tmp_path / "out")
    index = json.loads((tmp_path / "out.json").read_text())
    index["made_of"] = {"each": "window", "window": 3, "stride": 3}
    (tmp_path / "out.json").write_text(json.dumps(index))
    done = result("run", *packed(tmp_path), "--set", "on_error=skip", "--set", "max_errors=5")
    assert (done["samples"], done["skipped"]) == (6, 1)
    assert "rows are not as many" in done["failures"][0]["reason"]
