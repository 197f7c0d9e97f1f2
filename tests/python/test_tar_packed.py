"""Shards that are packed (.tar.gz, .tar.zst), and shards that are read from front to back."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

import forebay
from test_tar import check, fill, load, member, read_by_the_rules

FORMS = ["gz", "zst"]


@pytest.fixture(autouse=True)
def own_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pack(path: Path, form: str, *options: str) -> Path:
    """The shard packed, beside it; the plain one is gone."""
    packed = path.with_name(path.name + "." + form)
    if form == "gz":
        with open(path, "rb") as plain, gzip.open(packed, "wb", 1) as to:
            shutil.copyfileobj(plain, to)
    elif shutil.which("zstd"):
        subprocess.run(["zstd", "-q", *options, str(path), "-o", str(packed)], check=True)
    else:
        pytest.skip("no zstd")
    path.unlink()
    return packed


def large(folder: Path, shards: int, samples: int, bytes_each: int = 30000) -> list[Path]:
    """Samples of several chunks together, that do not pack to nothing."""
    paths = []
    for shard in range(shards):
        paths.append(folder / f"s-{shard:03d}.tar")
        with tarfile.open(paths[-1], "w") as archive:
            rng = np.random.default_rng(shard)
            for i in range(samples):
                number = shard * samples + i
                data = rng.integers(0, 16, bytes_each + number % 777, dtype="u1").tobytes()
                member(archive, f"{number:06d}.cls", b"%d" % number)
                member(archive, f"{number:06d}.bin", data)
    return paths


def batches(path, epochs: int = 1, state=None, steps: int | None = None, **more):
    """[(cls, bytes)] of each batch, and the state behind the last."""
    config = {"source": {"kind": "tar", "path": str(path)}, "memory": {"budget": "48MiB"},
              "batch": {"size": 5, "collate": "ragged"}}
    for key, value in more.items():
        section, _, name = key.partition("_")
        if key == "on_error":
            config[key] = value
        elif name:
            config.setdefault(section, {})[name] = value
        else:
            config[section] = value
    seen = []
    with forebay.Loader(config, as_="numpy") as loader:
        if state is not None:
            loader.load_state_dict(state)
        for _ in range(epochs):
            for batch in loader:
                seen.append((batch["cls"].tolist(), batch["bin"].tobytes()))
                if steps and len(seen) == steps:
                    return seen, loader.state_dict()
        return seen, loader.state_dict()


@pytest.mark.parametrize("form", FORMS)
def test_samples_are_those_of_webdataset(tmp_path, form):
    paths = []
    for i in range(3):
        plain = tmp_path / f"train-{i}.tar"
        with tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as archive:
            fill(archive, 5 + i, i, True)
        paths.append(plain)
    theirs = read_by_the_rules(paths)
    for plain in paths:
        pack(plain, form)
    for _ in range(2):  # scanned, then from the index that was kept
        check(load(tmp_path / f"train-*.tar.{form}"), theirs)


def test_plain_and_packed_shards_go_together_whatever_they_are_called(tmp_path):
    paths = large(tmp_path, 3, 8)
    theirs = read_by_the_rules(paths)
    pack(paths[0], "gz").rename(tmp_path / "s-000.tar")
    pack(paths[2], "zst").rename(tmp_path / "s-002.tar")
    check(load(tmp_path / "s-*.tar"), theirs)


@pytest.mark.parametrize("form", [*FORMS, "plain"])
def test_shuffled_epochs_have_each_sample_once_and_differ(tmp_path, form):
    paths = large(tmp_path, 4, 60)
    if form != "plain":
        for path in paths:
            pack(path, form)
    seen, _ = batches(tmp_path / "s-*", epochs=2, source_access="sequential", order_window=50)
    numbers = [n for cls, _ in seen for n in cls]
    assert sorted(numbers[:240]) == sorted(numbers[240:]) == list(range(240))
    assert numbers[:240] != numbers[240:]
    # Whole shards are in one stretch after the other, mixed by 50.
    shards = [n // 60 for n in numbers[:240]]
    for begin in range(0, 240, 50):
        assert len(set(shards[begin:begin + 50])) <= 3
    assert numbers[:50] != sorted(numbers[:50])


@pytest.mark.parametrize("form", FORMS)
def test_same_batches_whatever_the_workers_cache_and_budget(tmp_path, form):
    for path in large(tmp_path, 5, 40):
        pack(path, form)
    path = tmp_path / "s-*"
    first, _ = batches(path, epochs=2, order_window=64)
    for more in ({"workers": 0}, {"workers": 1}, {"workers": 5, "prefetch": 7},
                 {"memory_cache": "off"}, {"memory_cache": "2MiB"},
                 {"memory_cache": "3MiB", "memory_policy": "lru"},
                 {"memory_budget": "32MiB"}, {"memory_budget": "256MiB"}):
        assert batches(path, epochs=2, order_window=64, **more)[0] == first, more


@pytest.mark.parametrize("form", FORMS)
def test_a_run_goes_on_where_it_was(tmp_path, form):
    for path in large(tmp_path, 3, 40):
        pack(path, form)
    path = tmp_path / "s-*"
    whole, _ = batches(path, epochs=2, order_window=50)
    for steps in (1, 13, 24, 30):
        begun, state = batches(path, epochs=2, steps=steps, order_window=50)
        rest, _ = batches(path, epochs=2 - (steps >= 24), state=state, order_window=50)
        assert (begun + rest)[:48] == whole[:48]
    with pytest.raises(forebay.Error, match="mixed by 50 samples"):
        batches(path, state=state, order_window=60)


def test_random_access_to_packed_shards_is_the_plain_order(tmp_path):
    paths = large(tmp_path, 2, 30)
    plain, _ = batches(tmp_path / "s-*.tar")
    for path in paths:
        pack(path, "gz")
    packed, _ = batches(tmp_path / "s-*.tar.gz", source_access="random")
    assert packed == plain


def test_a_shard_much_larger_than_memory_is_read(tmp_path):
    """64 MiB of samples, and 2 MiB that are mixed."""
    pack(large(tmp_path, 1, 64, 1 << 20)[0], "gz")
    seen, _ = batches(tmp_path / "s-*", order_window=2, memory_cache="off", memory_budget="40MiB")
    assert sorted(n for cls, _ in seen for n in cls) == list(range(64))


@pytest.mark.parametrize("sparse", ["gnu", "posix", "posix --sparse-version=0.1",
                                    "posix --sparse-version=0.0"])
def test_sparse_members_and_pictures_in_packed_shards(tmp_path, sparse):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for i in range(4):
        pixels = rng.integers(0, 255, (40, 30 + i, 3)).astype("u1")
        image.fromarray(pixels).save(tmp_path / f"{i}.png")
        with open(tmp_path / f"{i}.bin", "wb") as file:
            file.seek(100000)
            file.write(b"%d" % i)
            file.truncate(300000)
    path = tmp_path / "x.tar"
    names = " ".join(f"{i}.png {i}.bin" for i in range(4))
    if os.system(f"cd {tmp_path} && tar --sparse --format={sparse} -cf {path} {names}") != 0:
        pytest.skip("no GNU tar")
    plain = load(path, batch_collate="pad", memory_budget="128MiB")
    pack(path, "gz")
    packed = load(tmp_path / "x.tar.gz", batch_collate="pad", memory_budget="128MiB")
    for i, (one, other) in enumerate(zip(plain, packed, strict=True)):
        assert np.array_equal(one["png"], other["png"])
        assert np.array_equal(one["bin"], other["bin"])
        assert other["bin"].tobytes() == (tmp_path / f"{i}.bin").read_bytes()


# ---- bad input ----

@pytest.mark.parametrize("form", FORMS)
def test_a_packed_shard_that_is_cut_or_changed_names_the_place(tmp_path, form):
    path = pack(large(tmp_path, 1, 40)[0], form)
    good = path.read_bytes()
    for cut in (3, 20, len(good) // 2, len(good) - 2):
        path.write_bytes(good[:cut])
        with pytest.raises(forebay.Error, match=rf"s-000\.tar\.{form}.*byte \d+"):
            load(path)
    path.write_bytes(good[:len(good) // 2] + b"rubbish" + good[len(good) // 2 + 7:])
    with pytest.raises(forebay.Error, match=rf"s-000\.tar\.{form}"):
        load(path)
    path.write_bytes(good + b"rubbish")
    with pytest.raises(forebay.Error, match="something else follows"):
        load(path)


def test_what_came_before_the_damage_is_read_by_rule(tmp_path):
    path = pack(large(tmp_path, 1, 40)[0], "gz")
    good = path.read_bytes()
    path.write_bytes(good[:len(good) // 2])
    seen, _ = batches(path, order_shuffle=False, on_error="skip")
    numbers = [n for cls, _ in seen for n in cls]
    assert numbers == list(range(len(numbers))) and 10 < len(numbers) < 30


def test_an_archive_cut_before_it_was_packed_is_noticed(tmp_path):
    path = large(tmp_path, 1, 10)[0]
    path.write_bytes(path.read_bytes()[:50000])
    with pytest.raises(forebay.Error, match="behind the archive's end"):
        load(pack(path, "gz"))


def test_a_window_above_the_allowance_is_refused_with_the_number(tmp_path):
    path = pack(large(tmp_path, 1, 40, 1 << 20)[0], "zst", "--long=25", "-1")
    with pytest.raises(forebay.Error, match=r"window of 33554432 bytes.*decode_memory allows "
                                            r"8388608"):
        load(path)
    assert len(load(path, source_decode_memory="32MiB", memory_budget="512MiB")) == 40


def test_a_bomb_is_refused_inside_the_budget(tmp_path):
    path = tmp_path / "bomb.tar"
    with open(path, "wb") as file:
        info = tarfile.TarInfo("a.bin")
        info.size = (1 << 30) + (1 << 26)
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(512 + info.size + 1024)
    with pytest.raises(forebay.Error, match="taken for a bomb"):
        load(pack(path, "zst", "-1"))


def test_other_packings_are_named(tmp_path):
    path = tmp_path / "a.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        member(archive, "a.txt", b"x")
    with pytest.raises(forebay.Error, match=r"a\.tar\.xz.*packed with xz"):
        load(path)


@pytest.mark.parametrize("form", FORMS)
def test_a_shard_that_is_replaced_while_running_is_noticed(tmp_path, form):
    paths = [pack(path, form) for path in large(tmp_path, 6, 60)]
    config = {"source": {"kind": "tar", "path": str(tmp_path / "s-*")}, "workers": 1,
              "prefetch": 1, "memory": {"budget": "48MiB", "cache": "off"},
              "order": {"window": 10}, "batch": {"collate": "ragged"}}
    with forebay.Loader(config, as_="numpy") as loader:
        next(iter(loader))
        for path in paths:
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data[:-9] + bytes(9))
        with pytest.raises(forebay.Error, match="changed since it was indexed"):
            for _ in range(3):
                for _ in loader:
                    pass
