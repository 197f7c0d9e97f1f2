"""A death explains itself: after kill -9 and after real out-of-memory kills the record names the
right run and the right cause, and nothing else is left behind."""
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from running import Running
from test_ceiling import MIB, SOAK, Group

pytestmark = pytest.mark.skipif("FOREBAY_SANITIZED" in os.environ,
                                reason="a sanitizer's own memory is far above any limit")


@pytest.fixture(scope="module")
def scans(program, tmp_path_factory):
    """64 scans of 4 MB."""
    folder = tmp_path_factory.mktemp("dead") / "scans"
    subprocess.run([program, "generate", "lidar", folder, "--files", "64", "--bytes", "4MB"],
                   check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return ["--set", "source.kind=bin", "--set", f"source.path={folder}/*.bin", "--set",
            "batch.size=4", "--set", "batch.collate=pad", "--epochs", 1000000]


def sockets():
    with open("/proc/net/unix") as file:
        return [line for line in file if "@forebay-" in line]


def last(loader):
    return json.loads(loader.forebay("top", "--last", "--json").stdout)


def test_kill_at_random_moments(program, scans, tmp_path):
    rng = random.Random(7)
    for number in range(100 if SOAK else 10):
        with Running(program, tmp_path, *scans, "--set", "memory.budget=96MiB",
                     name=f"run{number}") as loader:
            time.sleep(rng.random() * 0.4)
            loader.end(signal.SIGKILL)
            dead = last(loader)
            assert (dead["pid"], dead["name"]) == (loader.pid, f"run{number}")
            assert "no out-of-memory kill" in dead["verdict"]
            assert dead["memory"]["budget_bytes"] == 96 * MIB
            assert not any(f"-{loader.pid}-" in line for line in sockets())
            left = [path.name for path in (tmp_path / "run").iterdir()]
            assert all(name.endswith(".page") for name in left), left
            assert max(path.stat().st_size for path in (tmp_path / "run").iterdir()) <= 65536
    with Running(program, tmp_path, *scans, name="next") as loader:
        assert loader.said().count(f"run{number}, ended about") == 1, "the next run says it"
        assert "did not close: killed or crashed" in loader.said()
    with Running(program, tmp_path, *scans, name="after") as loader:
        assert f"run{number}, ended" not in loader.said(), "once"


TRAINER = """
import sys, forebay
loader = forebay.Loader({"name": sys.argv[1], "source": {"kind": "bin", "path": sys.argv[2]},
                         "batch": {"size": 4, "collate": "pad"}, "epochs": 1000000,
                         "memory": {"budget": "90MiB", "cache": "30MiB", "share": "off"}})
held = []
while True:
    for batch in loader:
        held.append(bytearray(b"x" * (2 << 20)))
"""


def oom(program, tmp_path, scans, name):
    """The trainer takes more and more beside the loader: the kernel ends it."""
    group = Group(160 * MIB)
    env = {**os.environ, "FOREBAY_RUN_DIR": str(tmp_path / "run")}
    files = next(one for one in scans if str(one).startswith("source.path=")).split("=", 1)[1]
    try:
        done = subprocess.Popen([sys.executable, "-c", TRAINER, name, files], env=env,
                                stderr=subprocess.PIPE, text=True, preexec_fn=group.join)
        said = done.communicate(timeout=60)[1]
        assert done.returncode == -signal.SIGKILL, said
        assert group.kills() >= 1
        dead = subprocess.run([program, "top", "--last", "--json"], env=env, check=True,
                              capture_output=True, text=True)
    finally:
        group.remove()
    return done.pid, json.loads(dead.stdout), said


def test_out_of_memory_kills(program, scans, tmp_path):
    for number in range(10 if SOAK else 2):
        pid, dead, said = oom(program, tmp_path, scans, f"oom{number}")
        assert (dead["pid"], dead["name"]) == (pid, f"oom{number}")
        assert dead["verdict"].startswith("killed by the kernel at "), dead["verdict"]
        assert "of cgroup limit 160 MiB; cache held " in dead["verdict"]
        assert "lower memory.budget (90.0 MiB) below " in dead["verdict"]
        assert "fixed by the configuration" in said or dead["host"]["left_bytes"] > 0


def test_a_plain_end_without_close_is_no_death(program, scans, tmp_path):
    """The library's user may just return from main."""
    done = subprocess.run([program, "run", *map(str, scans[:-2]), "--steps", "3"],
                          capture_output=True, text=True,
                          env={**os.environ, "FOREBAY_RUN_DIR": str(tmp_path / "run")})
    assert done.returncode == 0
    assert list((tmp_path / "run").iterdir()) == []
