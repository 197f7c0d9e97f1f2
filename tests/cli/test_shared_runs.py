"""Four processes of a job, one cache: together they hit what one would, and it is there once."""
import json
import subprocess

import pytest

RANKS = 4
FILES, BYTES, EPOCHS = 400, 16000, 12


@pytest.mark.parametrize("share", (0.3, 0.7))
def test_ranks_share_one_cache(result, program, tmp_path, share):
    folder = tmp_path / "scans"
    made = result("generate", "lidar", folder, "--files", FILES, "--bytes", BYTES)
    # The index and what each process has for itself are part of the size. That they are one job is
    # told by their process group, where no launcher names it.
    limit = int(FILES * (BYTES * share + 37)) + (1300 << 10)
    command = [program, "run", "--json", "--epochs", str(EPOCHS)]
    settings = {"source.kind": "bin", "source.path": f"{folder}/*.bin", "order.world": RANKS,
                "memory.ranks_here": RANKS, "memory.budget": "256MiB", "memory.cache": limit,
                "memory.policy": "fill", "batch.size": 4, "workers": 1, "monitor.every": 1000000}
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    runs = [subprocess.Popen([*command, "--set", f"order.rank={rank}"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(RANKS)]
    try:
        ends = [run.communicate(timeout=100) for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert all(run.returncode == 0 for run in runs), [end[1] for end in ends]
    stats = [json.loads(out) for out, _ in ends]
    assert sum(one["samples"] for one in stats) == EPOCHS * FILES
    total = sum(int(one["checksum"], 16) for one in stats) % 2 ** 64
    assert total == EPOCHS * int(made["checksum"], 16) % 2 ** 64
    assert all("not shared" not in end[1] for end in ends)
    check_theory(stats, share, limit)


def check_theory(stats, share, limit):
    """In the middle, when all have begun and none has ended yet."""
    middle = [epoch for one in stats for epoch in one["epochs"][3:-3]]
    hits, misses = (sum(epoch[key] for epoch in middle) for key in ("hits", "misses"))
    held = max(one["cache"]["items"] for one in stats) / FILES
    assert abs(held - share) < 0.1, "the cache has another size"
    assert hits / (hits + misses) == pytest.approx(held, abs=0.02)
    # What is not there is read, once for each use, by whoever wants it.
    assert sum(epoch["bytes_read"] for epoch in middle) == pytest.approx(misses * BYTES, rel=0.02)
    # Counted once: each process has its share of the limit, and all of them one cache.
    assert max(one["cache"]["bytes"] for one in stats) <= limit
    assert all(one["memory"]["peak_bytes"] <= one["memory"]["budget_bytes"] for one in stats)
