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
import tarfile

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


# The bench sets' shapes: small sets for every day, the real sizes under FOREBAY_SOAK=1.
SHAPES = {
    "lidar": (["lidar", *((640, "1MB") if SOAK else (64, "1MB"))], dict(
        source__kind="bin", source__path="{}/*.bin", batch__size=4, batch__collate="pad")),
    "lidar15": (["lidar", *((48, "15MB") if SOAK else (24, "2MB"))], dict(
        source__kind="bin", source__path="{}/*.bin", source__sequence=8, batch__size=4,
        batch__collate="pad")),
    "frames": (["frames", *((12, "140083200") if SOAK else (5, "12MB"))], dict(
        source__kind="npy", source__fields='{{blur: "{0}/*_blur.npy", sharp: "{0}/*_sharp.npy", '
        'voxel: "{0}/*_voxel.npy"}}', batch__size=1)),
    "images": (["images", *((2000, "110kB") if SOAK else (120, "110kB"))], dict(
        source__kind="images", source__path="{}/*/*.jpg", source__size=224, source__crop="random",
        batch__size=16)),
    "audio": (["audio", *((1000, "320kB") if SOAK else (100, "200kB"))], dict(
        source__kind="audio", source__path="{}/manifest.jsonl", batch__size=8,
        batch__collate="pad")),
    "windows": (["windows", *((200, "2400128") if SOAK else (20, "2400128"))], dict(
        source__kind="windows", source__path="{}/*.npy", source__window=64, source__stride=20,
        batch__size=64)),
    "table": (["table", *((8, "47MB") if SOAK else (8, "8MB"))], dict(
        source__kind="table", source__path="{}/data.csv", source__as="matrix", batch__size=512)),
}
# Shards of the images above: as they are, and packed.
SHARDS = dict(source__kind="tar", source__size=224, source__crop="random", batch__size=16)
SHAPES |= {form: (["images", 120, "110kB"], dict(SHARDS, source__path="{}/*." + form))
           for form in ("tar", "tar.gz", "tar.zst")}
# Windows again, from the units that `forebay pack` wrote of them.
SHAPES["packed-windows"] = (["windows", 20, "2400128"], dict(
    source__kind="tar", source__path="{}/out-*.tar", batch__size=64))


def shard(folder, form):
    """The folder's images as four shards; `form` is how they end."""
    images = sorted(folder.glob("*/*.jpg"))
    for number in range(4):
        path = folder / f"{number}.tar"
        with tarfile.open(path, "w") as archive:
            for image in images[number::4]:
                archive.add(image, image.name)
        if form == "tar.gz":
            subprocess.run(["gzip", "-1", path], check=True)
        elif form == "tar.zst":
            if not shutil.which("zstd"):
                pytest.skip("no zstd")
            subprocess.run(["zstd", "-q", "-1", "--rm", path], check=True)


class Set:
    """Generated data of one shape: its folder, the settings that read it, its samples."""

    def __init__(self, program, folder, shape):
        (kind, files, size), values = SHAPES[shape]
        subprocess.run([program, "generate", kind, folder, "--files", str(files), "--bytes", size],
                       check=True, stdin=subprocess.DEVNULL, capture_output=True)
        if shape.startswith("tar"):
            shard(folder, shape)
        if shape == "packed-windows":
            config = folder / "windows.yaml"
            config.write_text("source: {kind: windows, path: '*.npy', window: 64, stride: 20}")
            subprocess.run([program, "pack", config, folder / "out"], check=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        self.folder, self.shape = folder, shape
        self.values = values
        found = subprocess.run([program, "inspect", "--json", *self.settings()], check=True,
                               stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.samples = json.loads(found.stdout)["samples"]
        assert self.samples == {"lidar15": files - 7, "windows": files * 310,
                                "packed-windows": files * 310, "table": self.samples}.get(shape, files)

    def settings(self, folder=None, **more):
        values = {key: str(value).format(folder or self.folder)
                  for key, value in self.values.items()}
        return list(settings(**values, **more))


@pytest.fixture(scope="module")
def sets(program, tmp_path_factory):
    """sets["lidar"]: made when first asked for."""
    class Sets(dict):
        def __missing__(self, shape):
            self[shape] = Set(program, tmp_path_factory.mktemp("ceiling") / shape, shape)
            return self[shape]
    made = Sets()
    yield made
    for one in made.values():
        shutil.rmtree(one.folder)


def floor_of(program, *arguments):
    """What the plan says that a run needs, asked with memory in plenty."""
    done = subprocess.run([program, "run", "--json", "--steps", "1", "--set", "memory.budget=4GiB",
                           *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)["memory"]["floor_bytes"]


def check_memory(result, budget):
    memory = result["memory"]
    assert memory["budget_bytes"] == budget
    assert 0 < memory["peak_bytes"] <= budget
    assert memory["peak_pss_bytes"] is None or memory["peak_pss_bytes"] <= budget + PSS_BESIDE


@pytest.mark.parametrize("budget", [48 * MIB, 128 * MIB])
@pytest.mark.parametrize("cache", ["off", "auto", "8MiB"])
@pytest.mark.parametrize("workers", [1, 8])
def test_scans_finish_below_the_limit(program, sets, tmp_path, budget, cache, workers):
    lidar = sets["lidar"]
    result = run_limited(program, budget, tmp_path, "--epochs", 2, *lidar.settings(
        memory__cache=cache, workers=workers))
    assert result["samples"] == 2 * lidar.samples
    assert result["cache"]["limit_bytes"] <= 8 * MIB if cache == "8MiB" else True
    check_memory(result, budget)


@pytest.mark.parametrize("cache", [0, 20 * MIB])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_set_finishes_on_its_floor(program, sets, tmp_path, shape, cache):
    """The floor to the byte, which is what the plan promises; with a cache, that comes on top."""
    data = sets[shape]
    arguments = data.settings(memory__cache=cache or "off", memory__policy="lru")
    floor = floor_of(program, *arguments)
    result = run_limited(program, floor + cache, tmp_path, "--epochs", 2, *arguments)
    assert result["samples"] == 2 * data.samples
    assert (result["cache"]["limit_bytes"] > 0) == (cache > 0)
    check_memory(result, floor + cache)


@pytest.mark.parametrize("more", [
    dict(batch__dtype="f16"), dict(source__direct="true"), dict(workers=0), dict(order__group="block"),
    dict(batch__collate="ragged"),
], ids=lambda more: "-".join(more))
@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_finishes_on_its_floor(program, sets, tmp_path, shape, more):
    if shape not in ("lidar", "lidar15", "audio") and "batch__collate" in more:
        pytest.skip("they have one shape: ragged is stack")
    data = sets[shape]
    arguments = [*data.settings(), *settings(**more)]
    floor = floor_of(program, *arguments)
    result = run_limited(program, floor, tmp_path, *arguments)
    assert result["samples"] == data.samples
    check_memory(result, floor)


def test_a_table_five_times_the_budget_is_parsed_and_streamed(program, sets, tmp_path):
    """Parsed under the limit too: its cache folder is new."""
    table = sets["table"]
    budget = sum(path.stat().st_size for path in table.folder.glob("*.csv")) // 5
    arguments = table.settings()
    result = run_limited(program, budget, tmp_path, "--epochs", 2, *arguments)
    assert result["samples"] == 2 * table.samples
    check_memory(result, budget)
    plenty = subprocess.run([program, "run", "--json", "--epochs", "2", *arguments], check=True,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert json.loads(plenty.stdout)["checksum"] == result["checksum"]


@pytest.mark.parametrize("where", ["header", "row", "quote"])
def test_a_line_of_a_gigabyte_is_refused_below_the_limit(program, tmp_path, where):
    head = {"header": b"", "row": b"a,b\n1,2\n3,", "quote": b'a,b\n1,2\n3,"'}[where]
    path = tmp_path / "t.csv"
    path.write_bytes(head + b"x" * 4096)
    with open(path, "ab") as file:  # the rest of it is a hole: NUL bytes, and no line end
        file.truncate(10**9)
    group = Group(32 * MIB + BESIDE)
    try:
        done = subprocess.run([program, "run", "--json", "--set", f"memory.budget={32 * MIB}",
                               *settings(source__kind="table", source__path=path)],
                              stdin=subprocess.DEVNULL, text=True, capture_output=True,
                              preexec_fn=group.join, timeout=60,
                              env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert group.kills() == 0
    finally:
        group.remove()
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["status"] == "BAD_DATA" and "t.csv" in error["message"]
    assert "longer than" in error["message"] or "does not close" in error["message"], error


def break_files(folder, kind):
    """Every fifth file is cut off, one may not be read (by others than root), one is gone while
    the list still names it."""
    names = sorted(folder.glob("*.bin" if kind == "lidar" else "*_blur.npy"))
    for path in names[::5]:
        os.truncate(path, path.stat().st_size - 3)
    names[1].chmod(0)
    return len(names[::5]) + (os.geteuid() != 0), len(names)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("shape", ["lidar", "frames"])
def test_broken_files_cost_no_memory(program, sets, tmp_path, shape, on_error):
    data = sets[shape]
    broken = tmp_path / "broken"
    shutil.copytree(data.folder, broken)
    bad, files = break_files(broken, shape)
    arguments = data.settings(broken, on_error=on_error)
    floor = floor_of(program, *arguments)
    result = run_limited(program, floor, tmp_path, "--epochs", 2, *arguments)
    assert result["samples"] == 2 * (files - bad if on_error == "skip" else files)
    assert result["skipped" if on_error == "skip" else "replaced"] == 2 * bad
    check_memory(result, floor)
    shutil.rmtree(broken)


def test_a_run_that_fails_does_so_below_the_limit(program, sets, tmp_path):
    data = sets["lidar"]
    broken = tmp_path / "broken"
    shutil.copytree(data.folder, broken)
    break_files(broken, "lidar")
    group = Group(64 * MIB + BESIDE)
    try:
        done = subprocess.run([program, "run", "--json", "--set", f"memory.budget={64 * MIB}",
                               *data.settings(broken)], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, preexec_fn=group.join)
        assert group.kills() == 0
    finally:
        group.remove()
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["status"] in ("BAD_DATA", "MISSING")


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
