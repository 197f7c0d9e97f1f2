"""Files of images, tar and audio that are not what they seem: each is an error that names the file,
or left out by rule, and the loader goes on."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import forebay

Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")

FILES = 12
KINDS = ["images", "tar", "tar.gz", "audio"]


@pytest.fixture(autouse=True)
def own_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def picture(number: int) -> bytes:
    to = io.BytesIO()
    noise = np.random.default_rng(number).integers(0, 255, (60, 80, 3)).astype("u1")
    Image.fromarray(noise).save(to, "JPEG")
    return to.getvalue()


def make(folder: Path, kind: str) -> tuple[dict, list[Path]]:
    """FILES files of the kind, a sample each, and the configuration that reads them."""
    folder.mkdir()
    names = [folder / f"{n:02}.{'jpg' if kind == 'images' else 'wav' if kind == 'audio' else kind}"
             for n in range(FILES)]
    for number, path in enumerate(names):
        if kind == "images":
            path.write_bytes(picture(number))
        elif kind == "audio":
            soundfile.write(path, np.full(8000, number / 50), 16000)
        else:
            with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
                info = tarfile.TarInfo(f"{number}.jpg")
                data = picture(number)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    source = {"kind": kind.split(".")[0], "path": str(folder / f"*{names[0].suffix}")}
    if kind == "audio":
        manifest = folder / "manifest.jsonl"
        manifest.write_text("".join(json.dumps({"audio_filepath": path.name, "duration": 0.5,
                                                "text": ""}) + "\n" for path in names))
        source["path"] = str(manifest)
    else:
        source["size"] = 16
    return {"source": source, "order": {"shuffle": False}, "workers": 1, "prefetch": 1,
            "batch": {"size": 1, "collate": "pad"},
            "memory": {"budget": "64MiB", "cache": "off"}}, names


def empty(path: Path) -> None:
    os.truncate(path, 0)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def other(path: Path) -> None:
    data = b"what is this? " * 100
    path.unlink()
    path.write_bytes(data)


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def forbid(path: Path) -> None:
    path.chmod(0)


WAYS = {"gone": os.unlink, "empty": empty, "halved": halve, "another": other,
        "a folder": folder_instead, "a loop of links": loop, "forbidden": forbid}


def run(loader) -> tuple[list[int], list[str]]:
    seen, errors, batches = [], [], iter(loader)
    while True:
        try:
            seen += next(batches)["index"].tolist()
        except StopIteration:
            return seen, errors
        except forebay.Error as error:
            errors.append(str(error))
            assert len(errors) < 3 * FILES


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_goes_bad_while_running_is_an_error_with_its_name(tmp_path, kind, way):
    if way == "forbidden" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    config, names = make(tmp_path / "data", kind)
    with forebay.Loader(config, as_="numpy") as loader:
        next(iter(loader))
        WAYS[way](names[9])
        seen, errors = run(loader)
        if kind == "tar.gz" and not errors:  # it was in memory
            seen = run(loader)[0]
            assert 9 in seen
            return
    assert 9 not in seen and len(errors) == 1
    assert names[9].name in errors[0]
    assert {10, 11} <= set(seen)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_bad_at_open_is_said_or_left_out(tmp_path, kind, way):
    if way == "forbidden" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    config, names = make(tmp_path / "data", kind)
    WAYS[way](names[4])
    whole = FILES - (way == "gone" and kind != "audio")
    with forebay.Loader({**config, "on_error": "skip"}, as_="numpy") as loader:
        seen, errors = run(loader)
    assert not errors
    assert len(seen) in ((whole,) if way == "gone" and kind != "audio" else (FILES - 1,))
    if way == "gone" and kind != "audio":
        return
    if kind.startswith("tar") and way == "empty":
        return  # as with WebDataset: an archive without members is none
    with pytest.raises(forebay.Error, match=names[4].name):
        with forebay.Loader(config, as_="numpy") as loader:
            errors = run(loader)[1]
            raise forebay.Error(errors[0])


@pytest.mark.parametrize("name", ["a\0b.wav", "../" * 40 + "etc/passwd", "/etc/passwd", "", ".",
                                  "x" * 300 + ".wav", "x" * 5000])
def test_paths_of_a_manifest_that_lead_nowhere(tmp_path, name):
    config, names = make(tmp_path / "data", "audio")
    manifest = tmp_path / "data" / "manifest.jsonl"
    line = json.dumps({"audio_filepath": name, "duration": 0.5, "text": ""}) + "\n"
    manifest.write_text(manifest.read_text() + line)
    with forebay.Loader(config, as_="numpy") as loader:
        seen, errors = run(loader)
    assert seen == list(range(FILES)) and len(errors) == 1
    with forebay.Loader({**config, "on_error": "skip"}, as_="numpy") as loader:
        assert run(loader) == (list(range(FILES)), [])


def test_an_npz_that_becomes_more_than_memory_is_refused(tmp_path):
    """100 MB of zeros in 100 kB, in a budget of 64 MiB; and one whose header lies about that."""
    path = tmp_path / "z.tar"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False,
                                                  "shape": (100_000_000,)})
    bomb, lie, good = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(100_000_000))
    data = bytearray(bomb.getvalue())
    for sign, at in ((b"PK\3\4", 22), (b"PK\1\2", 24)):  # it says that it is small
        struct.pack_into("<I", data, data.index(sign) + at, 200)
    lie.write(data)
    np.savez(good, a=np.arange(10, dtype="u1"))
    with tarfile.open(path, "w") as archive:
        for number, file in enumerate((good, bomb, lie, good)):
            info = tarfile.TarInfo(f"{number}.npz")
            info.size = len(file.getvalue())
            archive.addfile(info, io.BytesIO(file.getvalue()))
    config = {"source": {"kind": "tar", "path": str(path)}, "order": {"shuffle": False},
              "batch": {"collate": "ragged"}, "memory": {"budget": "64MiB", "cache": "off"},
              "workers": 1, "prefetch": 1}
    with forebay.Loader(config, as_="numpy") as loader:
        seen, errors = run(loader)
    assert set(seen) >= {0, 3} and 1 not in seen and 2 not in seen
    assert len(errors) == 2 and "memory.budget" in errors[0], errors


def test_empty_shards_and_no_shards_are_said(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"")
    config = {"source": {"kind": "tar", "path": str(path)}, "memory": {"budget": "64MiB"}}
    with pytest.raises(forebay.Error, match="hold no sample"):
        forebay.Loader(config)
    path.write_bytes(bytes(10240))
    with pytest.raises(forebay.Error, match="hold no sample"):
        forebay.Loader(config)
