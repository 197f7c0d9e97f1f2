"""The ceiling in the kernel's words: runs finish in a memory cgroup of budget + 48 MiB, no swap.

The ledger's own peak is law_ceiling.c's; here the program reads generated sets of the bench sets'
shapes, small, and a set with broken files, while the kernel counts.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

MIB = 1 << 20
BESIDE = 48 * MIB    # the program itself, its libraries, page tables, what the kernel keeps for it
PSS_BESIDE = 16 * MIB
V1 = pathlib.Path("/sys/fs/cgroup/memory")
V2 = pathlib.Path("/sys/fs/cgroup")
SOAK = os.environ.get("FOREBAY_SOAK", "0") not in ("", "0")

pytestmark = pytest.mark.skipif("FOREBAY_SANITIZED" in os.environ,
                                reason="a sanitizer's own memory is far above any budget")


class Group:
    """A memory cgroup of our own, v1 or v2; one without swap."""

    def __init__(self, limit):
        v2 = (V2 / "cgroup.controllers").exists()
        parent = V2 if v2 else V1
        self.path = parent / f"forebay-test-{os.getpid()}"
        self.v2 = v2
        try:
            if v2:
                (V2 / "cgroup.subtree_control").write_text("+memory")
            self.path.mkdir()
            self.write("memory.max" if v2 else "memory.limit_in_bytes", limit)
            self.forbid_swap(limit)
        except OSError as error:
            self.remove()
            pytest.skip(f"memory cgroups are not permitted here: {error}")

    def forbid_swap(self, limit):
        if self.v2:
            if (self.path / "memory.swap.max").exists():
                self.write("memory.swap.max", 0)
        elif (self.path / "memory.memsw.limit_in_bytes").exists():
            self.write("memory.memsw.limit_in_bytes", limit)
        else:
            self.write("memory.swappiness", 0)

    def write(self, name, value):
        (self.path / name).write_text(str(value))

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        name = "memory.events" if self.v2 else "memory.oom_control"
        for line in (self.path / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self):
        if self.path.exists():
            self.path.rmdir()


def run_limited(program, budget, tmp_path, *arguments):
    """forebay run --json under the limit; the result, or a failure that says who killed it."""
    group = Group(budget + BESIDE)
    try:
        done = subprocess.run(
            [program, "run", "--json", "--set", f"memory.budget={budget}", *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=group.join,
            timeout=600, env={**os.environ, "FOREBAY_RUN_DIR": str(tmp_path / "run"),
                              "XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert group.kills() == 0, f"killed: {budget} bytes of budget + {BESIDE} were too few"
    finally:
        group.remove()
    assert done.returncode != -signal.SIGKILL
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def settings(**values):
    """source__path="x" -> --set source.path=x"""
    for key, value in values.items():
        yield from ("--set", f"{key.replace('__', '.')}={value}")


@pytest.fixture(scope="module")
def lidar(program, tmp_path_factory):
    """64 scans of about 1 MB."""
    folder = tmp_path_factory.mktemp("ceiling") / "lidar"
    subprocess.run([program, "generate", "lidar", folder, "--files", str(640 if SOAK else 64),
                    "--bytes", "1MB"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    yield folder
    shutil.rmtree(folder)


def check_memory(result, budget):
    memory = result["memory"]
    assert memory["budget_bytes"] == budget
    assert 0 < memory["peak_bytes"] <= budget
    assert memory["peak_pss_bytes"] is None or memory["peak_pss_bytes"] <= budget + PSS_BESIDE


@pytest.mark.parametrize("budget", [48 * MIB, 128 * MIB])
@pytest.mark.parametrize("cache", ["off", "auto"])
@pytest.mark.parametrize("workers", [1, 8])
def test_scans_finish_below_the_limit(program, lidar, tmp_path, budget, cache, workers):
    files = len(list(lidar.glob("*.bin")))
    result = run_limited(program, budget, tmp_path, "--epochs", 2, *settings(
        source__kind="bin", source__path=f"{lidar}/*.bin", batch__size=4, batch__collate="pad",
        memory__cache=cache, workers=workers))
    assert result["samples"] == 2 * files
    check_memory(result, budget)


def test_sequences_finish_below_the_limit(program, lidar, tmp_path):
    """The shape of lidar15: samples of 8 scans that overlap."""
    files = len(list(lidar.glob("*.bin")))
    budget = 160 * MIB
    result = run_limited(program, budget, tmp_path, "--epochs", 1, *settings(
        source__kind="bin", source__path=f"{lidar}/*.bin", source__sequence=8, batch__size=4,
        batch__collate="pad", workers=2))
    assert result["samples"] == files - 7
    check_memory(result, budget)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_broken_files_cost_no_memory(program, lidar, tmp_path, on_error):
    broken = tmp_path / "broken"
    shutil.copytree(lidar, broken)
    names = sorted(broken.glob("*.bin"))
    for path in names[::5]:
        path.write_bytes(path.read_bytes()[:-3])  # no whole number of rows any more
    names[1].chmod(0)
    budget = 64 * MIB
    result = run_limited(program, budget, tmp_path, "--epochs", 2, *settings(
        source__kind="bin", source__path=f"{broken}/*.bin", batch__size=4, batch__collate="pad",
        on_error=on_error))
    good = len(names) - len(names[::5]) - (os.geteuid() != 0)
    assert result["samples"] == 2 * (good if on_error == "skip" else len(names))
    check_memory(result, budget)


def test_the_limit_itself_works(tmp_path):
    """A program that takes more than the limit is killed: the tests above can fail."""
    group = Group(64 * MIB)
    try:
        done = subprocess.run(["python3", "-c", "b'x' * (200 << 20)"], preexec_fn=group.join,
                              capture_output=True)
        assert done.returncode != 0
        assert group.kills() >= 1
    finally:
        group.remove()
