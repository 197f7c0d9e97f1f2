#!/usr/bin/env python3
"""test.py [--fuzz-seconds N] [STEP...] -- what `make test` runs: everything, or the steps named.

Each step prints one heading and one result; its whole output is in build/logs/STEP.log, and is
shown when it failed. The last line counts all tests of all steps; the exit code is 0 only if none
failed. FOREBAY_SOAK=1 (make soak) lets the tests take their full counts.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTHON = ROOT / ".venv/bin/python"
PYTHON_OLD = ROOT / ".venv-numpy1/bin/python"  # NumPy 1.26, no torch
SOAK = os.environ.get("FOREBAY_SOAK", "0") not in ("", "0")
SKIP = 77  # a test program's exit code: not possible here, and it said why
NOBODY = 65534

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
}

# What an unprivileged user can see otherwise than root: closed files and folders, limits of memory
# and files, sockets and memory of other users, cgroups.
PERMISSION_PROGRAMS = ("read", "folder", "host", "pressure", "block", "cache", "cache_calls",
                       "cache_shared", "control", "snapshot_file", "source_files",
                       "source_table_keep", "device")
PERMISSION_TESTS = [
    "tests/laws/test_ceiling.py", "tests/laws/test_governor.py", "tests/laws/test_postmortem.py",
    "tests/laws/test_launchers.py", "tests/cli/test_bad_series.py", "tests/cli/test_cache.py",
    "tests/cli/test_cmd_monitor.py", "tests/cli/test_monitor_faults.py", "tests/cli/test_pack.py",
    "tests/cli/test_reads.py", "tests/cli/test_run.py", "tests/cli/test_shared_runs.py",
    "tests/cli/test_top.py", "tests/cli/test_watch.py", "tests/python/test_bad_media.py",
    "tests/python/test_cached.py", "tests/python/test_monitor.py",
    "tests/python/test_process.py"]
# Minutes of arithmetic in one thread: the thread sanitizer can find nothing there.
ONE_THREAD = ("curve", "cache_policy")
# Where the version of NumPy, or torch that is not there, can make a difference.
NUMPY_TESTS = [f"tests/python/test_{name}.py" for name in
               ("arrays", "values", "npy_values", "public", "device", "errors", "state", "table",
                "windows")]


class Step:
    """What one step did: its log and its counts."""

    def __init__(self, name):
        self.name, self.passed, self.failed, self.skipped = name, 0, 0, 0
        self.notes = []
        (BUILD / "logs").mkdir(parents=True, exist_ok=True)
        self.log_path = BUILD / "logs" / f"{name}.log"
        self.log = open(self.log_path, "w", errors="replace")

    def write(self, text):
        self.log.write(text)
        self.log.flush()

    def fail(self, note):
        self.failed += 1
        self.notes.append(note)

    def skip(self, note):
        self.skipped += 1
        self.notes.append("skipped: " + note)

    def run(self, command, what=None, timeout=1800, env=None, cwd=ROOT):
        """Run a command as one test of its own: true if it exited with 0."""
        code, text = run_bounded(command, timeout, env, cwd)
        self.write(f"$ {' '.join(map(str, command))}\n{text}\n")
        if code == 0:
            self.passed += 1
        else:
            self.fail(f"{what or command[0]}: exit {code}")
        return code == 0


def run_bounded(command, timeout, env=None, cwd=ROOT):
    """(exit code, output). The whole group of processes ends with the time-out; no stdin."""
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd,
                               env={**os.environ, **(env or {})}, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nkilled after {timeout} s\n".encode()
        code = -signal.SIGKILL
    return code, output.decode(errors="replace")


# ---- builds ----

def build(step, folder, *options, compiler="gcc", targets=()):
    """Configure once, then build what changed. Compiler and warnings are part of the test."""
    path = BUILD / folder
    env = {"CC": compiler}
    if not (path / "build.ninja").exists():
        command = ["meson", "setup", path, "-Dtests=enabled", *options]
        if not step.run(command, f"configuring build/{folder}", env=env):
            return None
    if not step.run(["ninja", "-C", path, *targets], f"building build/{folder}", env=env):
        return None
    return path


def build_release(step):
    path = build(step, "release")
    if path and (path / "cli/forebay").exists():
        link = BUILD / "forebay"
        link.unlink(missing_ok=True)
        link.symlink_to("release/cli/forebay")
    return path


# ---- test programs ----

CMOCKA_RUN = re.compile(r"\[==========\] (?:[^\n]*?: )?(\d+) test\(s\) run")
CMOCKA_FAILED = re.compile(r"\[  FAILED  \] (?:[^\n]*?: )?(\d+) test\(s\)")


def count_program(step, name, code, output):
    """A cmocka program counts its tests itself; any other program is one test."""
    ran = sum(int(n) for n in CMOCKA_RUN.findall(output))
    failed = sum(int(n) for n in CMOCKA_FAILED.findall(output))
    if code == SKIP:
        step.skip(f"{name}: {(output.strip().splitlines() or ['no reason given'])[-1]}")
    elif code == 0:
        step.passed += max(1, ran - output.count("[  SKIPPED ]"))
    else:
        step.passed += max(0, ran - failed)
        step.failed += max(1, failed)
        step.notes.append(f"{name}: exit {code}")


def run_programs(step, path, wrap=(), env=None, slower=1, moved=None, choose=lambda test: True):
    """The test programs of a build that `choose` takes, two at a time; `moved` (from, to) if the
    tree was copied."""
    listing = subprocess.run(["meson", "introspect", "--tests", str(path)], check=True,
                             capture_output=True, text=True).stdout
    tests = [test for test in json.loads(listing) if choose(test)]

    cache = tempfile.TemporaryDirectory(prefix="forebay-cache-")  # not the user's
    env = {"XDG_CACHE_HOME": cache.name, **(env or {})}

    def run_one(test):
        command = [part.replace(*moved) if moved else part for part in test["cmd"]]
        limit = test["timeout"] * slower * (10 if SOAK else 1)
        began = time.monotonic()
        code, output = run_bounded([*wrap, *command], limit, {**test["env"], **env},
                                   cwd=moved[1] if moved else ROOT)
        return test["name"], code, output, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for name, code, output, seconds in pool.map(run_one, tests):
            step.write(f"==== {name}: exit {code}, {seconds:.1f} s\n{output}\n")
            count_program(step, name, code, output)
    cache.cleanup()
    if not tests:
        step.fail("the build has no such tests")


def is_law(test):
    return "forebay:law" in test["suite"]


def halves(root):
    """All of pytest in two parts that take about as long as each other."""
    return (["tests/cli", "tests/laws", *(str(path.relative_to(root)) for path in
                                          sorted((root / "tests").glob("test_*.py")))],
            ["tests/python"])


def run_pytest(step, program, *parts, wrap=(), env=None, root=ROOT, python=PYTHON):
    """pytest over parts (lists of folders and files), all at the same time: one uses one processor."""
    def run_part(part):
        scratch = tempfile.mkdtemp(prefix="forebay-pytest-")
        os.chmod(scratch, 0o777)
        command = [*wrap, python, "-m", "pytest", "-q", "-rs", "--durations=15", "-p",
                   "no:cacheprovider", f"--basetemp={scratch}/t", f"--junitxml={scratch}/report.xml",
                   *part]
        code, output = run_bounded(command, 14400 if SOAK else 1500, {
            "FOREBAY_PROGRAM": str(program), "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": f"{scratch}/cache", **(env or {})}, cwd=root)
        return scratch, code, f"$ {' '.join(map(str, command))}\n{output}\n"

    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        for scratch, code, output in pool.map(run_part, parts):
            step.write(output)
            count_pytest(step, code, pathlib.Path(scratch) / "report.xml")
            shutil.rmtree(scratch, ignore_errors=True)


def count_pytest(step, code, report):
    if not report.exists():
        step.fail(f"pytest: exit {code}, no report")
        return
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    total, skipped = int(suite.get("tests")), int(suite.get("skipped"))
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    step.passed += total - failed - skipped
    step.skipped += skipped
    step.failed += failed
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            step.notes.append(f"{case.get('classname')}.{case.get('name')} failed")
        elif case.find("skipped") is not None:
            step.notes.append(f"skipped: {case.get('name')}: {case.find('skipped').get('message')}")
    if code not in (0, 5) and not failed:
        step.fail(f"pytest: exit {code}")


# ---- the steps, in order ----

def step_layers(step):
    step.run([sys.executable, ROOT / "tools/check_layers.py"], "layers")


def step_size(step):
    step.run([sys.executable, ROOT / "tools/check_size.py"], "size")


def step_release(step):
    path = build_release(step)
    if path:
        step.run([sys.executable, ROOT / "tools/check_exports.py", path / "libforebay.so"],
                 "exports")
        run_programs(step, path)


def step_python_package(step):
    step.run(["make", "--no-print-directory", "python"], "make python")


def step_pytest(step):
    run_pytest(step, BUILD / "forebay", *halves(ROOT))


def step_numpy1(step):
    if not PYTHON_OLD.exists():
        step.skip("NumPy 1.26 is not to be had for this Python")
        return
    run_pytest(step, BUILD / "forebay", NUMPY_TESTS[::2], NUMPY_TESTS[1::2], python=PYTHON_OLD)


def step_extension(step):
    """The package built with sanitizers, in an interpreter that has none: their runtime goes first."""
    path = build(step, "asan-python", "-Dpython=enabled", "-Dtests=disabled", "-Db_lundef=false",
                 "-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined", "--prefix=/usr")
    if not path or not PYTHON_OLD.exists():
        return
    shutil.rmtree(path / "root", ignore_errors=True)
    if not step.run(["meson", "install", "-C", path, "--no-rebuild", "--destdir", path / "root",
                     "--tags=runtime,python-runtime"], "installing build/asan-python"):
        return
    package = next((path / "root").rglob("_forebay*.so")).parent.parent
    runtime = [subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True,
                              check=True).stdout.strip() for name in ("libasan.so", "libubsan.so")]
    # The sources' values are tested with the command in the step "address".
    tests = [f"tests/python/test_{name}.py" for name in
             ("arrays", "cached", "errors", "free_threads", "process", "settings", "state",
              "values")]
    run_pytest(step, path / "cli/forebay", tests, python=PYTHON_OLD, env={
        **SANITIZERS, "ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": " ".join(runtime),
        "PYTHONPATH": str(package), "PYTHONMALLOC": "malloc", "FOREBAY_SANITIZED": "1"})


def step_address(step):
    path = build(step, "asan", "-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined",
                 "-Db_lundef=false")
    if path:
        run_programs(step, path, env=SANITIZERS, slower=4)
        # Hit rates are statistics, and take the same paths as the rest.
        files = sorted(f"tests/cli/{path.name}" for path in (ROOT / "tests/cli").glob("test_*.py")
                       if path.name != "test_hit_rates.py")
        run_pytest(step, path / "cli/forebay", files[::2], files[1::2], env={
            **SANITIZERS, "FOREBAY_SANITIZED": "1"})


def thread_wrap():
    """ThreadSanitizer of this age cannot place its shadow where addresses are random over more than
    28 bits; then it runs without randomness."""
    try:
        bits = int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except (OSError, ValueError):
        bits = 32
    possible = shutil.which("setarch") and subprocess.run(
        ["setarch", "-R", "true"], stderr=subprocess.DEVNULL).returncode == 0
    return ["setarch", "-R"] if bits > 28 and possible else []


def step_thread(step):
    path = build(step, "tsan", "-Dbuildtype=debugoptimized", "-Db_sanitize=thread",
                 "-Db_lundef=false")
    if path:
        run_programs(step, path, wrap=thread_wrap(), env=SANITIZERS, slower=6,
                     choose=lambda test: test["name"] not in ONE_THREAD)


def step_clang(step):
    path = build(step, "clang", compiler="clang")
    if path:
        run_programs(step, path, choose=is_law)


def step_fuzz(step):
    # The library itself is instrumented, not only the harness: else nothing guides the search.
    path = BUILD / "fuzz"
    guided = "-fsanitize=fuzzer-no-link"
    if not (path / "build.ninja").exists() and not step.run(
            ["meson", "setup", path, "-Dfuzzers=true", "-Dtests=disabled", "-Db_lundef=false",
             "-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined", f"-Dc_args={guided}",
             f"-Dc_link_args={guided}"], "configuring build/fuzz", env={"CC": "clang"}):
        return
    step.run(["ninja", "-C", path, "build.ninja"], "configuring build/fuzz anew")  # lists are made by it
    listing = subprocess.run(["meson", "introspect", "--targets", str(path)], check=True,
                             capture_output=True, text=True).stdout
    names = sorted(t["name"] for t in json.loads(listing) if t["name"].startswith("fuzz_"))
    if not names:
        step.skip("there are no fuzzers yet")
    elif step.run(["ninja", "-C", path, *names], "building the fuzzers"):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            for name, code, output in pool.map(lambda name: run_fuzzer(path, name), names):
                step.write(f"==== {name}: exit {code}\n{output}\n")
                count_program(step, name, code, output)


def run_fuzzer(path, name):
    seeds = ROOT / "tests/corpus" / name.removeprefix("fuzz_")
    found = path / "corpus" / name
    crashes = path / "crashes"
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(exist_ok=True)
    seconds = arguments.fuzz_seconds
    command = [path / name, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1024",
               "-print_final_stats=1", f"-artifact_prefix={crashes}/{name}-", found]
    return (name, *run_bounded([*command, *([seeds] if seeds.is_dir() else [])], seconds + 120,
                               SANITIZERS))


def copy_for_nobody(step):
    """A copy of the tree that any user may read, if this one lies behind a closed folder."""
    probe = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                            PYTHON, "-c", f"open({str(ROOT / 'Makefile')!r})"],
                           stderr=subprocess.DEVNULL)
    if probe.returncode == 0:
        return ROOT
    copy = pathlib.Path(tempfile.mkdtemp(prefix="forebay-nobody-")) / "forebay"
    step.write(f"{ROOT} cannot be read by an unprivileged user; its copy is {copy}\n")
    ignore = shutil.ignore_patterns(".git", ".venv", "asan*", "tsan", "clang", "fuzz", "*.o", "*.p")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    os.chmod(copy.parent, 0o755)
    subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
    return copy


def step_unprivileged(step):
    if os.geteuid() != 0:
        step.skip("this run is unprivileged already: all steps above were")
        return
    if not shutil.which("setpriv"):
        step.fail("setpriv (util-linux) is not there to become an unprivileged user")
        return
    path = build_release(step)
    if not path:
        return
    root = copy_for_nobody(step)
    with tempfile.TemporaryDirectory(prefix="forebay-home-") as home:
        os.chown(home, NOBODY, NOBODY)
        wrap = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        env = {"HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": home + "/.cache",
               "XDG_RUNTIME_DIR": "", "FOREBAY_RUN_DIR": home + "/run"}
        run_programs(step, path, wrap, env, moved=(str(ROOT), str(root)),
                     choose=lambda test: is_law(test) or test["name"] in PERMISSION_PROGRAMS)
        # The small one: torch need not be copied for it.
        python = (PYTHON_OLD if PYTHON_OLD.exists() else PYTHON).relative_to(ROOT)
        run_pytest(step, root / "build/forebay", PERMISSION_TESTS[::2], PERMISSION_TESTS[1::2],
                   wrap=wrap, env=env, root=root, python=root / python)
    if root != ROOT:
        shutil.rmtree(root.parent, ignore_errors=True)


STEPS = {
    "layers": (step_layers, "every include against src/LAYERS"),
    "size": (step_size, "functions, files and lines within their limits"),
    "release": (step_release, "gcc, release: build, exports, unit tests and laws"),
    "package": (step_python_package, "the Python package, into .venv"),
    "pytest": (step_pytest, "commands, README, laws from outside; Python with NumPy 2 and torch"),
    "numpy1": (step_numpy1, "the Python package with NumPy 1.26 and without torch"),
    "extension": (step_extension, "the Python package under address and undefined sanitizers"),
    "address": (step_address, "address and undefined-behaviour sanitizers: tests, commands"),
    "thread": (step_thread, "thread sanitizer: tests"),
    "clang": (step_clang, "clang: its warnings; the laws in its code"),
    "fuzz": (step_fuzz, "each fuzzer for a while"),
    "unprivileged": (step_unprivileged, "what depends on permissions, as the user nobody"),
}


def run_step(name):
    function, title = STEPS[name]
    step = Step(name)
    print(f"== {name}: {title}", flush=True)
    began = time.monotonic()
    try:
        function(step)
    except Exception as error:  # a step that breaks is a failure, not the end of the others
        step.fail(f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - began
    step.log.close()
    if step.failed:
        print("".join("   | " + line + "\n" for line in
                      step.log_path.read_text(errors="replace").splitlines()[-80:]), end="")
    for note in step.notes:
        print(f"   {note}")
    print(f"   {step.passed} passed, {step.failed} failed, {step.skipped} skipped, "
          f"{seconds:.1f} s", flush=True)
    return step, seconds


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fuzz-seconds", type=int, default=60 if SOAK else 6)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parsed = parser.parse_args()
    unknown = [name for name in parsed.steps if name not in STEPS]
    if unknown:
        parser.error(f"no such step: {unknown[0]} (there are {', '.join(STEPS)})")
    return parsed


def main():
    results = [run_step(name) for name in (arguments.steps or STEPS)]
    print("\n== summary")
    for step, seconds in results:
        print(f"   {'FAIL' if step.failed else 'ok':4}  {step.name:13} {step.passed:5} passed "
              f"{step.failed:3} failed {step.skipped:3} skipped {seconds:8.1f} s")
    print(f"   {sum(seconds for _, seconds in results):.0f} s in all; logs in build/logs/")
    failed = sum(step.failed for step, _ in results)
    result = f"{sum(step.passed for step, _ in results)} passed, {failed} failed"
    (BUILD / "logs/result").write_text(result + "\n")
    print(result)
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = parse_arguments()
    sys.exit(main())
