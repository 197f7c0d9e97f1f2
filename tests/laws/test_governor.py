"""The governor in a real memory control group: never over the limit, and out of a neighbour's way;
the batches stay the same."""
import json
import os
import subprocess
import time

import pytest

from running import Running
from test_ceiling import MIB, SOAK, Group

pytestmark = pytest.mark.skipif("FOREBAY_SANITIZED" in os.environ,
                                reason="a sanitizer's own memory is far above any limit")
LIMIT = 512 * MIB
SET_BYTES = 8000 if SOAK else 700  # MB: larger than the group in any case


@pytest.fixture(scope="module")
def scans(program, tmp_path_factory):
    class Scans:
        folder = tmp_path_factory.mktemp("governed") / "scans"
        files = SET_BYTES // 4
        made = json.loads(subprocess.run(
            [program, "generate", "lidar", folder, "--files", str(files), "--bytes", "4MB",
             "--json"], check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout)
        settings = ["--set", "source.kind=bin", "--set", f"source.path={folder}/*.bin", "--set",
                    "batch.size=4", "--set", "batch.collate=pad"]
        checksum = int(made["checksum"], 16)
    yield Scans
    subprocess.run(["rm", "-r", Scans.folder], check=True)


@pytest.fixture
def group():
    group = Group(LIMIT)
    yield group
    end = time.monotonic() + 20
    while True:  # a process that was killed leaves its group a moment later
        try:
            return group.remove()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_budget_auto_finishes_in_a_small_group(program, scans, group, tmp_path):
    done = subprocess.run(
        [program, "run", "--json", "--epochs", "2", *scans.settings], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, preexec_fn=group.join, timeout=1200,
        env={**os.environ, "FOREBAY_RUN_DIR": str(tmp_path / "run")})
    assert group.kills() == 0 and done.returncode == 0, done.stderr
    stats = json.loads(done.stdout)
    assert stats["samples"] == 2 * scans.files
    assert stats["memory"]["budget_bytes"] <= LIMIT // 2
    assert int(stats["checksum"], 16) == 2 * scans.checksum % 2 ** 64


NEIGHBOUR = """
import time
blocks, step, most = [], 5 << 20, int(0.6 * {limit})
begin = time.monotonic()
while len(blocks) * step < most:
    blocks.append(b'x' * step)
    time.sleep(max(0, begin + len(blocks) * step / (100 << 20) - time.monotonic()))
print('grown', flush=True)
time.sleep({stay})
"""


def epochs_for(program, scans, seconds, tmp_path):
    """How many epochs take about this long; the control group is the slower one."""
    begin = time.monotonic()
    subprocess.run([program, "run", *scans.settings, "--set", "memory.cache=off"], check=True,
                   capture_output=True, env={**os.environ,
                                             "FOREBAY_RUN_DIR": str(tmp_path / "run")})
    return max(3, int(seconds / (time.monotonic() - begin)))


def test_a_growing_neighbour_is_given_way(program, scans, group, tmp_path):
    """It takes 60 % of the group at 100 MiB/s, stays a while and goes; nobody is killed."""
    patience = 85 if SOAK else 20
    epochs = epochs_for(program, scans, patience, tmp_path)
    with Running(program, tmp_path, *scans.settings, "--epochs", epochs, "--json", "--set",
                 "memory.budget=400MiB", "--set", f"monitor.log={tmp_path}/log",
                 preexec_fn=group.join) as loader:
        before = loader.until(lambda now: now["cache"]["bytes"] > 150 * MIB, 120)
        neighbour = subprocess.Popen(
            ["python3", "-c", NEIGHBOUR.format(limit=LIMIT, stay=3)], preexec_fn=group.join,
            stdout=subprocess.PIPE, text=True)
        assert neighbour.stdout.readline() == "grown\n", "the neighbour was killed"
        small = loader.until(lambda now: now["cache"]["limit_bytes"] < 0.7 *
                             before["cache"]["limit_bytes"], 20)
        assert neighbour.wait(timeout=30) == 0
        assert any("cache" in one["text"] and "->" in one["text"] for one in small["decisions"])
        if SOAK:  # it comes back a minute after the pressure, at half the speed
            loader.until(lambda now: now["cache"]["limit_bytes"] >
                         1.2 * small["cache"]["limit_bytes"], 120)
        out, _ = loader.process.communicate(timeout=900)
        assert loader.process.returncode == 0 and group.kills() == 0, loader.said()
    stats = json.loads(out)
    assert stats["samples"] == epochs * scans.files
    assert int(stats["checksum"], 16) == epochs * scans.checksum % 2 ** 64
    check_replay(program, tmp_path / "log")


def check_replay(program, log):
    """Every decision of the log can be made again from what stands beside it."""
    replay = program.resolve().parent.parent / "tests/replay"
    done = subprocess.run([replay, log], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 1, "no decision was recorded"
