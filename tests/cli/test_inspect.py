"""forebay inspect: what a source holds, and what of it is broken."""
import io
import tarfile

import numpy as np
import pytest


def inspect(result, kind, path, *more):
    return result("inspect", "--set", f"source.kind={kind}", "--set", f"source.path={path}", *more)


def test_scans(result, scans):
    found = result("inspect", *scans.settings)
    assert (found["kind"], found["samples"], found["units"]) == ("bin", 40, 40)
    assert found["bytes"] == 40 * 64000
    assert found["unit_bytes"] == {"min": 64000, "median": 64000, "max": 64000}
    assert [field["name"] for field in found["fields"]] == ["points"]
    assert found["fields"][0]["dtype"] == "f32" and found["fields"][0]["shape"][-1] == 4
    assert found["first"][0] == {"sample": 0, "shapes": {"points": [[4000, 4]]}}
    assert (found["broken_count"], found["broken"], found["checked"]) == (0, [], False)


def test_sizes_that_differ(result, tmp_path):
    for rows in (10, 30, 20):
        np.zeros((rows, 4), np.float32).tofile(tmp_path / f"{rows}.bin")
    found = inspect(result, "bin", f"{tmp_path}/*.bin", "--set", "batch.collate=pad")
    assert found["unit_bytes"] == {"min": 160, "median": 320, "max": 480}
    assert found["fields"][0]["shape"] == [None, 4]
    assert [first["shapes"]["points"] for first in found["first"]] == [[[10, 4]], [[20, 4]],
                                                                       [[30, 4]]]


def test_sequences(result, tmp_path):
    for drive in ("a", "b"):
        (tmp_path / drive).mkdir()
        for number in range(10):
            np.zeros((5, 4), np.float32).tofile(tmp_path / drive / f"{number}.bin")
    found = inspect(result, "bin", f"{tmp_path}/*/*.bin", "--set", "source.sequence=8")
    assert (found["samples"], found["units"], found["groups"]) == (6, 20, 2)
    assert found["fields"][0]["shape"][0] == 8
    assert len(found["first"][0]["shapes"]["points"]) == 8
    assert found["bytes"] == 20 * 80, "what sequences share is counted once"


def test_fields_of_npy(result, tmp_path):
    for name, dtype in (("x", "f8"), ("y", "u1")):
        (tmp_path / name).mkdir()
        for number in range(3):
            np.save(tmp_path / name / f"{number}.npy", np.zeros((4, 6), dtype))
    config = tmp_path / "c.yaml"
    config.write_text("source: {kind: npy, fields: {x: 'x/*.npy', y: 'y/*.npy'}}\n")
    found = result("inspect", config)
    assert (found["samples"], found["units"]) == (3, 6)
    assert {(field["name"], field["dtype"]) for field in found["fields"]} == {("x", "f64"),
                                                                              ("y", "u8")}
    assert found["bytes"] == 3 * 24 * 9


def test_a_broken_file_is_named_with_the_reason(result, forebay, tmp_path):
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", np.arange(100, dtype=np.float32))
    whole = (tmp_path / "3.npy").read_bytes()
    (tmp_path / "3.npy").write_bytes(whole[:-10])
    (tmp_path / "4.npy").write_bytes(b"no npy at all, but long enough for a header" * 10)
    found = inspect(result, "npy", f"{tmp_path}/*.npy", "--check")
    assert found["checked"] is True
    assert found["broken_count"] == 2
    assert [broken["place"].rsplit("/")[-1] for broken in found["broken"]] == ["3.npy", "4.npy"]
    assert all(broken["reason"] for broken in found["broken"])
    text = forebay("inspect", "--set", "source.kind=npy", "--set", f"source.path={tmp_path}/*.npy",
                   "--check").stdout
    assert "broken    2 units" in text and "3.npy" in text


def test_for_a_person(forebay, scans):
    done = forebay("inspect", *scans.settings, "--check")
    assert done.returncode == 0, done.stderr
    for words in ("bin: 40 samples of 40 units", "points: f32", "median 62.5 KiB", "sample 0",
                  "every unit was loaded"):
        assert words in done.stdout, words


@pytest.mark.parametrize("arguments, status", [
    (["--set", "source.kind=bin"], "BAD_CONFIG"),
    (["nowhere.yaml"], "MISSING"),
])
def test_failures(failure, arguments, status):
    assert failure(1, "inspect", *arguments)["status"] == status


@pytest.mark.parametrize("form", ["gz", "xz"])
def test_packed_shards_are_told_and_what_is_not_read_is_named(forebay, tmp_path, form):
    path = tmp_path / ("a.tar." + form)
    with tarfile.open(path, "w:" + form) as archive:
        for number in range(5):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = number
            archive.addfile(info, io.BytesIO(b"x" * number))
    done = forebay("inspect", "--json", "--set", "source.kind=tar", "--set", f"source.path={path}",
                   "--set", "memory.budget=64MiB")
    found = done.json()
    if form == "xz":
        assert done.returncode == 1 and "packed with xz" in found["error"]["message"]
    else:
        assert (found["samples"], found["broken_count"]) == (5, 0)
        assert found["mixed_samples"] > 0
        assert found["first"][2]["shapes"] == {"txt": [[2]]}


def halve(path):
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])


def shard(folder):
    """The pictures of a folder as an archive; one of them is cut."""
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number, path in enumerate(sorted(folder.rglob("*.jpg"))):
            data = path.read_bytes()[:2000 if number == 3 else None]
            info = tarfile.TarInfo(f"{number}.jpg")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


# kind: what is generated, the path in it, further settings, what is done to it, the first sample's
# field and shape, and where it is broken.
KINDS = {
    "windows": ("windows", "*.npy", ["source.window=64"],
                lambda folder: halve(sorted(folder.glob("*.npy"))[3]), "window", [64, 96], ".npy"),
    "images": ("images", "**/*.jpg", ["source.size=32"],
               lambda folder: halve(sorted(folder.rglob("*.jpg"))[3]), "image", [32, 32, 3], ".jpg"),
    "tar": ("images", "a.tar", ["source.size=32"], shard, "jpg", [32, 32, 3], "a.tar"),
    "audio": ("audio", "manifest.jsonl", [], lambda folder: halve(folder / "00003.flac"), "audio",
              None, "00003.flac"),
    "table": ("table", "data.csv", [], lambda folder: None, "c0", [], None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_tells_what_was_found_and_what_is_broken(result, tmp_path, kind):
    made, path, more, harm, field, shape, broken = KINDS[kind]
    result("generate", made, tmp_path / "data", "--files", 6, "--bytes", "100kB")
    harm(tmp_path / "data")
    found = inspect(result, kind, tmp_path / "data" / path, "--check", "--set",
                    "memory.budget=256MiB", *(part for one in more for part in ("--set", one)))
    assert found["kind"] == kind and found["samples"] >= 6
    assert field in [one["name"] for one in found["fields"]]
    first = found["first"][0]["shapes"][field][0]
    assert first == shape if shape is not None else len(first) == 1 and first[0] > 0
    if not broken:
        assert found["broken_count"] == 0
        return
    assert found["broken_count"] >= 1
    one = found["broken"][0]
    assert one["reason"] and broken in one["place"] + one["reason"]
