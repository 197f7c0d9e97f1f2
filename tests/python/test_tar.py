"""Tar shards, held against webdataset (or, where it is not installed, its rules over tarfile)."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

import forebay

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


@pytest.fixture(autouse=True)
def own_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def member(archive: tarfile.TarFile, name: str, data: bytes = b"", **options) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in options.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(data) if data else None)


def npy(array: np.ndarray) -> bytes:
    to = io.BytesIO()
    np.save(to, array)
    return to.getvalue()


def read_by_the_rules(paths: list[Path]) -> list[dict]:
    """What WebDataset makes of shards: key, and bytes by extension."""
    try:
        import webdataset
    except ImportError:
        samples = []
        for path in paths:
            samples += read_one(path)
        return samples
    found = webdataset.WebDataset([str(p) for p in paths], shardshuffle=False, empty_check=False)
    return [{k: v for k, v in sample.items() if k == "__key__" or not k.startswith("__")}
            for sample in found]


def read_one(path: Path) -> list[dict]:
    samples: list[dict] = []
    with tarfile.open(path, "r|*") as archive:
        for info in archive:
            match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", info.name)
            if not info.isreg() or re.match(r"__[^/]*__($|/)", info.name) or not match:
                continue
            key, extension = match.group(1), match.group(2).lower()
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            samples[-1][extension] = archive.extractfile(info).read()
    return samples


def load(path, **more) -> list[dict]:
    """All samples, in order, as {field: array}."""
    config = {"source": {"kind": "tar", "path": str(path)}, "order": {"shuffle": False},
              "batch": {"size": 3, "collate": "ragged"}, "memory": {"budget": "64MiB"}}
    for key, value in more.items():
        section, _, name = key.partition("_")
        config.setdefault(section, {})[name] = value
    samples = []
    with forebay.Loader(config, as_="numpy") as loader:
        for batch in loader:
            samples += split(batch)
    return samples


def split(batch) -> list[dict]:
    names = [n for n in batch if n != "index" and not n.endswith(("_offsets", "_length"))]
    samples = []
    for i in range(len(batch["index"])):
        sample = {}
        for name in names:
            if name + "_offsets" in batch:
                offsets = batch[name + "_offsets"]
                sample[name] = np.array(batch[name][offsets[i]:offsets[i + 1]])
            else:
                sample[name] = np.array(batch[name][i])
        samples.append(sample)
    return samples


def fill(archive: tarfile.TarFile, count: int, shard: int, long: bool) -> None:
    rng = np.random.default_rng(shard)
    member(archive, "__meta__/about.json", b"{}")
    member(archive, "folder", type=tarfile.DIRTYPE)
    for i in range(count):
        key = f"shard.{shard}/{'long' * (40 if long and i % 3 == 0 else 1)}{shard}{i:04d}"
        member(archive, key + ".Points.NPY", npy(rng.standard_normal((i % 4, 3)).astype("f4")))
        member(archive, key + ".cls", b" %d\n" % (i * 7 - 30))
        member(archive, key + ".txt", ("größe %d" % i).encode() * (i % 3))
        member(archive, key + ".json", json.dumps({"n": i}).encode())
        member(archive, key + ".weird.thing", bytes(range(i)))
    member(archive, "README", b"no extension")


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"train-{i:06d}.tar" for i in range(3)]
    for i, path in enumerate(paths):
        with tarfile.open(path, "w", format=FORMATS[i]) as archive:
            fill(archive, 5 + i, i, FORMATS[i] != tarfile.USTAR_FORMAT)
    return paths


def check(ours: list[dict], theirs: list[dict]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        assert set(one) == set(other) - {"__key__"}
        for name, array in one.items():
            data = other[name]
            if name.endswith("npy"):
                assert np.array_equal(array, np.load(io.BytesIO(data)))
            elif name == "cls":
                assert array == int(data)
            else:
                assert array.tobytes() == data


@pytest.mark.parametrize("collate", ["ragged", "pad"])
def test_samples_are_those_of_webdataset(shards, tmp_path, collate):
    ours = load(tmp_path / "train-{000000..000002}.tar", batch_size=1, batch_collate=collate)
    check(ours, read_by_the_rules(shards))


def test_a_saved_index_gives_the_same_and_a_changed_shard_is_read_anew(shards, tmp_path):
    first = load(tmp_path / "train-*.tar")
    assert len(list((tmp_path / "cache" / "forebay").glob("tar-*"))) == 3
    check(load(tmp_path / "train-*.tar"), read_by_the_rules(shards))
    with tarfile.open(shards[1], "w") as archive:
        fill(archive, 2, 9, False)
    second = load(tmp_path / "train-*.tar")
    check(second, read_by_the_rules(shards))
    assert len(second) == len(first) - 4


def test_an_index_file_of_any_bytes_is_not_believed(shards, tmp_path):
    theirs = read_by_the_rules(shards)
    load(tmp_path / "train-*.tar")
    kept = sorted((tmp_path / "cache" / "forebay").glob("tar-*"))[0]
    good = kept.read_bytes()
    for at in range(0, len(good), 7):
        kept.write_bytes(good[:at] + bytes([good[at] ^ 0xff]) + good[at + 1:])
        check(load(tmp_path / "train-*.tar"), theirs)
        kept.write_bytes(good[:at])
        check(load(tmp_path / "train-*.tar"), theirs)


def test_shuffled_epochs_have_each_sample_once(shards, tmp_path):
    theirs = sorted(s["txt"] + s["json"] + s["cls"] for s in read_by_the_rules(shards))
    ours = load(tmp_path / "train-*.tar", order_shuffle=True)
    assert sorted(s["txt"].tobytes() + s["json"].tobytes() + b" %d\n" % s["cls"]
                  for s in ours) == theirs


def test_without_the_blocks_at_its_end_it_is_read_all_the_same(shards, tmp_path):
    with tarfile.open(shards[0]) as archive:
        last = archive.getmembers()[-1]
    data = shards[0].read_bytes()
    shards[0].write_bytes(data[:last.offset_data + 512])
    check(load(shards[0]), read_by_the_rules(shards[:1]))


def test_zero_length_members_and_links(tmp_path):
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w") as archive:
        member(archive, "a.txt", b"")
        member(archive, "b.txt", b"x")
        member(archive, "c.txt", type=tarfile.LNKTYPE, linkname="b.txt")
        member(archive, "d.txt", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        member(archive, "../../e.txt", b"up")
        member(archive, "/etc/f.txt", b"root")
    ours = load(path)
    assert [s["txt"].tobytes() for s in ours] == [b"", b"x", b"up", b"root"]
    check(ours, read_by_the_rules([path]))


def test_sizes_in_base_256(tmp_path):
    path = tmp_path / "big.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        member(archive, "a.bin", b"abc")
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + (3).to_bytes(11, "big")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    assert load(path)[0]["bin"].tobytes() == b"abc"


FORMS = ["gnu", "posix", "posix --sparse-version=0.1", "posix --sparse-version=0.0"]


@pytest.mark.parametrize("form", FORMS)
def test_sparse_members_are_read_with_their_holes(tmp_path, form):
    rng = np.random.default_rng(1)
    for name, holes in ("a", 1), ("b", 40), ("c", 0), ("d", 3), ("e" * 150, 20):
        with open(tmp_path / f"{name}.bin", "wb") as file:
            for i in range(holes):
                file.seek(65536 * (2 * i + (name != "d")))
                file.write(rng.bytes(5000 + i))
            file.truncate(65536 * 100 + 17)
    path = tmp_path / "holes.tar"
    if os.system(f"cd {tmp_path} && tar --sparse --format={form} -cf {path} *.bin") != 0:
        pytest.skip("no GNU tar")
    assert path.stat().st_size < 1 << 20
    check(load(path, memory_budget="256MiB"), read_one(path))


@pytest.mark.parametrize("what,text", [
    ("GNU.sparse.map=0,5,x", "something else than numbers"),
    ("GNU.sparse.map=0,5,4,1", "goes back"),
    ("GNU.sparse.map=0,9", "more bytes than the archive has"),
    ("GNU.sparse.map=0,5,99,1", "outside of the file"),
    ("GNU.sparse.offset=3", "an offset without a length"),
])
def test_a_sparse_map_that_lies_breaks_its_sample_only(tmp_path, what, text):
    path = tmp_path / "lies.tar"
    key, value = what.split("=")
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member(archive, "a.bin", b"good")
        member(archive, "b.bin", b"12345", pax_headers={"GNU.sparse.size": "50", key: value})
    with pytest.raises(forebay.Error, match=f"'b'.*{text}"):
        load(path)
    config = {"source": {"kind": "tar", "path": str(path)}, "on_error": "skip",
              "order": {"shuffle": False}, "memory": {"budget": "64MiB"}}
    with forebay.Loader(config, as_="numpy") as loader:
        assert [b["bin"].tobytes() for b in loader] == [b"good"]


def test_a_sparse_file_that_claims_more_than_the_budget_breaks_its_sample_only(tmp_path):
    path = tmp_path / "bomb.tar"
    with open(tmp_path / "b.bin", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "a.bin").write_bytes(b"good")
    (tmp_path / "c.bin").write_bytes(b"also")
    if os.system(f"cd {tmp_path} && tar --sparse -cf {path} a.bin b.bin c.bin") != 0:
        pytest.skip("no GNU tar")
    with pytest.raises(forebay.Error, match="more bytes than memory.budget"):
        load(path)
    config = {"source": {"kind": "tar", "path": str(path)}, "on_error": "skip",
              "order": {"shuffle": False}, "memory": {"budget": "64MiB"},
              "batch": {"collate": "ragged"}}
    with forebay.Loader(config, as_="numpy") as loader:
        assert [b["bin"].tobytes() for b in loader] == [b"good", b"also"]


def test_a_missing_field_breaks_its_sample_only(tmp_path):
    path = tmp_path / "gap.tar"
    with tarfile.open(path, "w") as archive:
        for i in range(9):
            if i != 4:
                member(archive, f"{i}.cls", b"%d" % i)
            member(archive, f"{i}.txt", b"t%d" % i)
    with pytest.raises(forebay.Error, match=r"'4'.*\.cls.*does not have it"):
        load(path)
    config = {"source": {"kind": "tar", "path": str(path)}, "on_error": "skip",
              "order": {"shuffle": False}, "memory": {"budget": "64MiB"}}
    with forebay.Loader(config, as_="numpy") as loader:
        assert [int(b["cls"][0]) for b in loader] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert len(load(path, batch_fields=["txt"])) == 9


def test_a_member_twice_is_an_error_like_webdatasets(tmp_path):
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as archive:
        member(archive, "a.txt", b"1")
        member(archive, "a.TXT", b"2")
    with pytest.raises(forebay.Error, match="twice"):
        load(path)


def test_npz_members_are_fields_by_name(tmp_path):
    path = tmp_path / "z.tar"
    with tarfile.open(path, "w") as archive:
        for i in range(5):
            to = io.BytesIO()
            (np.savez if i % 2 else np.savez_compressed)(to, a=np.arange(i), b=np.float64(i))
            member(archive, f"{i}.npz", to.getvalue())
    for i, sample in enumerate(load(path)):
        assert np.array_equal(sample["npz.a"], np.arange(i))
        assert sample["npz.b"] == i
    assert [set(s) for s in load(path, batch_fields=["npz.b"])] == [{"npz.b"}] * 5


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", "u1", "?", "<c8"])
def test_arrays_of_every_kind(tmp_path, order, dtype):
    arrays = [np.asarray(np.arange(24 * i).reshape(4, 3, 2 * i) % 200, dtype=dtype, order=order)
              for i in (1, 1)]
    path = tmp_path / "n.tar"
    with tarfile.open(path, "w") as archive:
        for i, array in enumerate(arrays):
            member(archive, f"{i}.npy", npy(array))
    for sample, array in zip(load(path, batch_collate="stack"), arrays):
        assert np.array_equal(sample["npy"], array)


@pytest.mark.parametrize("cut", [100, 511, 1100, 1700])
def test_a_shard_that_is_cut_names_the_place(shards, cut):
    data = shards[0].read_bytes()
    shards[0].write_bytes(data[:cut])
    with pytest.raises(forebay.Error, match=r"train-000000\.tar.*byte \d+"):
        load(shards[0])


def test_what_is_no_tar_is_said_to_be_none(tmp_path):
    path = tmp_path / "x.tar"
    path.write_bytes(b"not a tar" * 200)
    with pytest.raises(forebay.Error, match="no tar archive"):
        load(path)


def test_a_shard_that_changes_while_it_is_read_is_noticed(shards):
    config = {"source": {"kind": "tar", "path": str(shards[2])}, "workers": 1, "prefetch": 1,
              "memory": {"budget": "64MiB", "cache": "off"}, "batch": {"collate": "ragged"}}
    with forebay.Loader(config, as_="numpy") as loader:
        next(iter(loader))
        shards[2].write_bytes(shards[2].read_bytes() + bytes(512))
        with pytest.raises(forebay.Error, match="changed since it was indexed"):
            for _ in range(3):
                for _ in loader:
                    pass


def test_sounds_in_shards(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "s.tar"
    waves = [np.sin(np.arange(1000 + 77 * i) / 9).astype("f4") / 2 for i in range(6)]
    with tarfile.open(path, "w") as archive:
        for i, wave in enumerate(waves):
            to = io.BytesIO()
            soundfile.write(to, wave, 16000, format="FLAC" if i % 2 else "WAV")
            member(archive, f"{i}.flac", to.getvalue())
            waves[i] = soundfile.read(io.BytesIO(to.getvalue()), dtype="float32")[0]
    for sample, wave in zip(load(path), waves):
        assert np.array_equal(sample["flac"], wave)


@pytest.mark.parametrize("options", [
    {}, {"size": 32}, {"size": [24, 40], "crop": "center", "mean": 0.5, "std": 0.25},
    {"size": 24, "crop": "random", "flip": True, "layout": "chw", "mean": [0.4, 0.5, 0.6]},
])
def test_pictures_in_shards_are_those_of_loose_files(tmp_path, options):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(3)
    folder = tmp_path / "files" / "one"
    folder.mkdir(parents=True)
    path = tmp_path / "p.tar"
    with tarfile.open(path, "w") as archive:
        for i in range(7):
            pixels = rng.integers(0, 255, (50 + 7 * i, 90 - 5 * i, 3)).astype("u1")
            name = f"{i}.{'png' if i % 2 else 'jpg'}"
            image.fromarray(pixels).save(folder / name)
            member(archive, f"{i}.jpg", (folder / name).read_bytes())
            member(archive, f"{i}.cls", b"%d" % i)
    seen = []
    for source in ({"kind": "images", "path": f"{tmp_path}/files/*/*"},
                   {"kind": "tar", "path": str(path)}):
        config = {"source": {**source, **options}, "batch": {"size": 2, "collate": "pad"},
                  "memory": {"budget": "128MiB"}, "workers": 2}
        name = "image" if source["kind"] == "images" else "jpg"
        with forebay.Loader(config, as_="numpy") as loader:
            seen.append([(b["index"].copy(), b[name].copy()) for _ in range(2) for b in loader])
    for (index, one), (other_index, other) in zip(*seen, strict=True):
        assert np.array_equal(index, other_index)
        assert one.dtype == other.dtype and np.array_equal(one, other)
