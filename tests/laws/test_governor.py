"""The governor in a real memory control group: never over the limit, and out of a neighbour's way;
the batches stay the same."""
import json
import os
import signal
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


def test_the_warning_knows_the_groups_limit(program, scans, group, tmp_path):
    done = subprocess.run(
        [program, "run", "--steps", "2", "--set", "monitor.every=1", "--set", "monitor.warn=2%",
         *scans.settings], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        preexec_fn=group.join, env={**os.environ, "FOREBAY_RUN_DIR": str(tmp_path / "run")})
    assert done.returncode == 0, done.stderr
    assert "WARNING: Control group memory usage is critically high (" in done.stderr
    assert "Consider reducing memory.budget, memory.cache or workers." in done.stderr


@pytest.mark.parametrize("number", range(20 if SOAK else 4))
def test_our_own_growth_is_no_pressure(program, scans, group, tmp_path, number):
    """Slots and cache are reserved long before they are filled: nobody else takes what they do."""
    for path in scans.folder.iterdir():  # so that filling takes the governor's time, too
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    done = subprocess.run(
        [program, "run", "--json", "--steps", "40", *scans.settings, "--set", "batch.size=8", "--set",
         "memory.budget=440MiB", "--set", "workers=2", "--set", "prefetch=2"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=group.join, timeout=1200,
        env={**os.environ, "FOREBAY_RUN_DIR": str(tmp_path / "run")})
    assert group.kills() == 0 and done.returncode == 0, done.stderr
    assert "governor: cache" not in done.stderr
    cache = json.loads(done.stdout)["cache"]
    assert cache["limit_bytes"] > 300 * MIB and cache["bytes"] > 0.95 * cache["limit_bytes"]


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


def expected(program, scans, stats):
    """The checksum of as many batches, by a run that nobody disturbs: whole epochs, and the first
    batches of one (the order is the files' own)."""
    whole, rest = divmod(stats["samples"], scans.files)
    assert rest % 4 == 0, "a batch is 4 samples, but for the last of an epoch"
    part = 0
    if rest:
        done = subprocess.run([program, "run", "--json", "--steps", str(rest // 4), *scans.settings,
                               "--set", "order.shuffle=false", "--set", "memory.cache=off"],
                              check=True, stdin=subprocess.DEVNULL, capture_output=True)
        part = int(json.loads(done.stdout)["checksum"], 16)
    return (whole * scans.checksum + part) % 2 ** 64


@pytest.mark.parametrize("number", range(10 if SOAK else 1))
def test_a_growing_neighbour_is_given_way(program, scans, group, tmp_path, number):
    """It takes 60 % of the group at 100 MiB/s, stays a while and goes; nobody is killed."""
    with Running(program, tmp_path, *scans.settings, "--epochs", 1000000, "--json", "--set",
                 "order.shuffle=false", "--set", "memory.budget=400MiB", "--set",
                 f"monitor.log={tmp_path}/log", preexec_fn=group.join) as loader:
        before = loader.until(lambda now: now["cache"]["bytes"] > 150 * MIB, 120)
        neighbour = subprocess.Popen(
            ["python3", "-c", NEIGHBOUR.format(limit=LIMIT, stay=3)], preexec_fn=group.join,
            stdout=subprocess.PIPE, text=True)
        assert neighbour.stdout.readline() == "grown\n", "the neighbour was killed"
        small = loader.until(lambda now: now["cache"]["limit_bytes"] < 0.7 *
                             before["cache"]["limit_bytes"], 20)
        assert neighbour.wait(timeout=30) == 0
        assert any("cache" in one["text"] and "->" in one["text"] for one in small["decisions"])
        if SOAK and number == 0:  # it comes back a minute after the pressure, at half the speed
            loader.until(lambda now: now["cache"]["limit_bytes"] >
                         1.2 * small["cache"]["limit_bytes"], 120)
        out = loader.end(signal.SIGINT)
        assert group.kills() == 0 and out, loader.said()
    stats = json.loads(out)
    assert int(stats["checksum"], 16) == expected(program, scans, stats)
    check_replay(program, tmp_path / "log")


def check_replay(program, log):
    """Every decision of the log can be made again from what stands beside it."""
    replay = program.resolve().parent.parent / "tests/replay"
    done = subprocess.run([replay, log], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 1, "no decision was recorded"
