"""The order never depends on the memory budget: the same first batches under every budget."""
import gzip
import io
import tarfile

import numpy as np
import pytest

BUDGETS = ("24MiB", "96MiB", "512MiB")


def scans(folder, result):
    for group in "ab":
        (folder / group).mkdir()
    for number in range(120):
        array = np.full((8192, 4), number, "f4")
        array.tofile(folder / "ab"[number % 2] / f"{number:03}.bin")
    return ["source.kind=bin", f"source.path={folder}/*/*.bin", "order.block=2"]


def arrays(folder, result):
    for number in range(120):
        np.save(folder / f"{number:03}.npy", np.full(32768, number, "f4"))
    return ["source.kind=npy", f"source.path={folder}/*.npy", "order.block=2"]


def windows(folder, result):
    for number in range(4):
        np.save(folder / f"{number}.npy", np.arange(800000, dtype="f4").reshape(-1, 2) + number)
    return ["source.kind=windows", f"source.path={folder}/*.npy", "source.window=64",
            "order.block=16"]


def table(folder, result):
    rows = "".join(f"{i},{i * 7 % 1000},{i % 13}\n" for i in range(500000))
    (folder / "t.csv").write_text("a,b,c\n" + rows)
    return ["source.kind=table", f"source.path={folder}/t.csv", "order.block=512"]


def shards(folder, result, packed=False):
    for shard in range(3):
        name = folder / (f"s{shard}.tar.gz" if packed else f"s{shard}.tar")
        with (gzip.open(name, "wb") if packed else open(name, "wb")) as out, \
                tarfile.open(fileobj=out, mode="w") as tar:
            for number in range(100):
                text = io.BytesIO()
                np.save(text, np.full(16384, shard * 100 + number, "f4"))
                member = tarfile.TarInfo(f"{shard}{number:03}.data.npy")
                member.size = text.tell()
                text.seek(0)
                tar.addfile(member, text)
    return ["source.kind=tar", f"source.path={folder}/s*.tar*", "order.block=4"]


def packed_shards(folder, result):
    return shards(folder, result, packed=True)


def images(folder, result):
    result("generate", "images", folder, "--files", 60)
    return ["source.kind=images", f"source.path={folder}/**/*.jpg", "source.size=64",
            "order.block=2"]


KINDS = (scans, arrays, windows, table, shards, packed_shards, images)


def first_batches(result, settings, more):
    arguments = [part for setting in (*settings, *more, "batch.size=8", "memory.share=off")
                 for part in ("--set", setting)]
    return [result("run", *arguments, "--steps", steps)["checksum"] for steps in (1, 3, 6)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_same_batches_under_three_budgets(result, tmp_path, kind):
    settings = kind(tmp_path, result)
    groups = [[], ["order.group=none"], ["order.group=block"]]
    if kind is scans:
        groups.append(["order.group=sequence"])
    if kind is shards:
        groups.append(["source.access=sequential"])
    for group in groups:
        found = {budget: first_batches(result, settings, [*group, f"memory.budget={budget}"])
                 for budget in BUDGETS}
        assert len({tuple(sums) for sums in found.values()}) == 1, (group, found)
