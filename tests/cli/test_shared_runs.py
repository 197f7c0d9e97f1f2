"""Four processes of a job, one cache: together they hit what one would, and it is there once."""
import json
import os
import time

import numpy as np
import pytest

RANKS = 4
FILES, BYTES = 400, 16000


@pytest.mark.parametrize("share", (0.3, 0.7))
def test_ranks_share_one_cache(result, running, tmp_path, share):
    folder = tmp_path / "scans"
    result("generate", "lidar", folder, "--files", FILES, "--bytes", BYTES)
    # The index and what each process has for itself are part of the size. That they are one job is
    # told by their process group, where no launcher names it.
    limit = int(FILES * (BYTES * share + 37)) + (1000 << 10)
    runs = ranks(running, folder, limit)
    cache = settled(runs)
    hits, misses, read = counts_of_epochs(runs, 20)
    held = cache["items"] / FILES
    assert abs(held - share) < 0.15, "the cache has another size"
    assert hits / (hits + misses) == pytest.approx(held, abs=0.01)
    # What is not there is read, once for each use, by whoever wants it.
    assert read == pytest.approx(misses * BYTES, rel=0.02)
    # There once: one cache of the size that was asked for all of them, in one file in memory.
    assert cache["members"] == RANKS and cache["bytes"] <= cache["limit_bytes"] <= limit
    files = {(status.st_dev, status.st_ino): status.st_blocks * 512
             for run in runs for status in memory_files(run.pid)}
    assert len(files) == 1 and sum(files.values()) <= limit


def ranks(running, folder, limit, **more):
    settings = {"source.kind": "bin", "source.path": f"{folder}/*.bin", "order.world": RANKS,
                "memory.ranks_here": RANKS, "memory.budget": "256MiB", "memory.cache": limit,
                "memory.policy": "fill", "batch.size": 4, "workers": 1, "monitor.every": 1000000, **more}
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [running(*given, "--set", f"order.rank={rank}", "--epochs", 1000000, "--json",
                    name=f"rank{rank}") for rank in range(RANKS)]


def counts_of_epochs(runs, epochs):
    before = counts(runs)
    for run in runs:
        begin = run.look()["epoch"]
        run.until(lambda now: now["epoch"] >= begin + epochs)
    return [b - a for a, b in zip(before, counts(runs))]


def settled(runs):
    """The one cache they share, when all are members and nothing is added any more."""
    end, before = time.monotonic() + 60, None
    while True:
        found = json.loads(runs[0].forebay("cache", "list", "--json").stdout)["shared"]
        mine = [one for one in found if runs[0].pid in one["pids"]]
        if mine and mine[0]["members"] == RANKS and mine[0]["items"] == before:
            return mine[0]
        before = mine[0]["items"] if mine else None
        assert time.monotonic() < end, found
        time.sleep(0.5)


def counts(runs):
    looks = [run.look() for run in runs]
    return [sum(one["cache"]["hits"] for one in looks), sum(one["cache"]["misses"] for one in looks),
            sum(one["bytes_read"] for one in looks)]


def memory_files(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if "memfd:forebay-cache" in os.readlink(f"/proc/{pid}/fd/{name}"):
                yield os.stat(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            pass  # a file of the data set, closed meanwhile
