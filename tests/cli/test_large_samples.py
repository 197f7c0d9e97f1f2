"""Samples of more than 4 GiB come whole. Sparse files on disk, but 9 GB of memory for a minute each:
under FOREBAY_SOAK=1 only."""
import io
import os
import random
import tarfile

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not os.environ.get("FOREBAY_SOAK"), reason="needs 9 GB of memory")

SIZE = (4 << 30) + 123456  # of f32, of rows of four of them
EACH = 64 << 20


def pieces():
    """What is not zeros: (offset, bytes)."""
    rng = random.Random(1)
    for at in [*range(0, SIZE, EACH), SIZE - 5000]:
        yield at, rng.randbytes(5000)


def expected():
    """The first, the last and every 4096th byte, added up."""
    total, last = 0, 0
    for at, data in pieces():
        if at == SIZE - 5000:
            last = data[-1]
        total += sum(data[-at % 4096::4096])
    return total + last


def write(path, head):
    with open(path, "wb") as file:
        file.write(head)
        for at, data in pieces():
            file.seek(len(head) + at)
            file.write(data)
        end = len(head) + SIZE
        file.truncate(end if path.suffix != ".tar" else (end + 511) // 512 * 512 + 1024)


def npy_head():
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False,
                                                "shape": (SIZE // 4,)})
    return head.getvalue()


def tar_head(name, head):
    member = tarfile.TarInfo(name)
    member.size = len(head) + SIZE
    return member.tobuf(tarfile.GNU_FORMAT) + head


HEADS = {"a.bin": ("bin", lambda: b""), "a.npy": ("npy", npy_head),
         "bytes.tar": ("tar", lambda: tar_head("a.bin", b"")),
         "array.tar": ("tar", lambda: tar_head("a.npy", npy_head()))}


@pytest.mark.parametrize("name", HEADS)
def test_a_sample_of_more_than_4_gib_comes_whole(result, tmp_path, name):
    kind, head = HEADS[name]
    path = tmp_path / name
    write(path, head())
    run = result("run", "--set", f"source.kind={kind}", "--set", f"source.path={path}", "--set",
                 "memory.budget=10GiB", "--set", "memory.cache=off", "--set", "workers=1", "--set",
                 "prefetch=1", "--set", "batch.collate=pad", timeout=600)
    assert run["failed"] == 0 and run["samples"] == 1
    assert SIZE <= run["bytes"] < SIZE + 64, "and its number and its length"
    assert run["memory"]["peak_bytes"] <= 10 << 30
    assert int(run["checksum"], 16) == expected()
