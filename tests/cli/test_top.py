"""forebay top and set: a loader is seen while it runs, and changed, by its own user only."""
import json
import os
import shutil
import subprocess
import time

import pytest

NOBODY = 65534


def slow(settings):
    """Long enough to be looked at; the tests end it."""
    return [*settings, "--epochs", 1000000, "--set", "batch.size=8", "--set", "batch.collate=pad"]


def test_without_loaders_the_list_is_empty(forebay, result):
    assert result("top") == {"loaders": []}
    done = forebay("top")
    assert done.returncode == 0 and "No loader of this user is running" in done.stdout


def test_who_is_not_there_is_told(forebay, failure):
    assert failure(1, "top", "4000000")["status"] == "MISSING"
    assert failure(2, "top", "train")["status"] == "BAD_USE"
    assert failure(1, "set", "4000000", "workers=2")["status"] == "MISSING"
    assert failure(2, "set", "4000000")["status"] == "BAD_USE"
    assert failure(2, "set", "4000000", "workers")["status"] == "BAD_USE"
    assert failure(1, "top", "--last")["status"] == "MISSING"
    assert forebay("set").returncode == 2


def test_a_running_loader_is_shown(running, scans):
    loader = running(*slow(scans.settings), "--set", "memory.budget=64MiB")
    now = loader.until(lambda now: now["samples_per_s"])
    assert now["name"] == "train" and now["samples"] > 0 and now["bytes"] > 0
    memory = now["memory"]
    assert memory["budget_bytes"] == 64 << 20
    assert 0 < memory["used_bytes"] <= memory["peak_bytes"] <= memory["budget_bytes"]
    assert sum(memory["stages"].values()) == memory["used_bytes"]
    assert 0 <= now["wait_share"] <= 1
    assert abs(now["read_share"] + now["decode_share"] + now["copy_share"] - 1) < 0.01
    assert now["limit"] in ("read", "decode", "copy", "consumer")
    assert len(now["doing"]) == now["workers"] or now["decisions"]
    assert set(now["doing"]) <= {"waits", "reads", "decodes"}
    text = loader.forebay("top", f"{loader.pid}:train", "--once").stdout
    for word in ("Throughput", "Waiting", "Epoch", "Memory", "slots", "Cache", "Workers", "Host",
                 "GPU", "Limit", "[#"):
        assert word in text
    assert not [line for line in text.splitlines() if len(line) > 80]


def test_two_loaders_are_listed(running, scans):
    one = running(*slow(scans.settings), name="train")
    two = running(*slow(scans.settings), name="val")
    lines = one.forebay("top", "--once").stdout.splitlines()
    assert any(f"{one.pid}:train" in line for line in lines)
    assert any(f"{two.pid}:val" in line for line in lines)


def test_a_clean_end_leaves_nothing(running, scans, tmp_path):
    import signal
    loader = running(*slow(scans.settings), "--json")
    assert json.loads(loader.end(signal.SIGINT))["stopped"]
    assert list((tmp_path / "run").iterdir()) == []


def test_set_changes_a_run_and_not_its_batches(running, scans, result):
    epochs = 3000
    loader = running(*scans.settings, "--epochs", epochs, "--set", "batch.size=8", "--set",
                     "batch.collate=pad", "--set", "memory.budget=64MiB", "--json")
    done = json.loads(loader.forebay("set", loader.pid, "workers=5", "prefetch=7",
                                     "memory.budget=48MiB", "--json").stdout)
    assert done["loader"] == f"{loader.pid}:train"
    assert [(r["key"], r["new"]) for r in done["results"]] == [
        ("workers", "5"), ("prefetch", "7"), ("memory.budget", str(48 << 20))]
    now = loader.until(lambda now: now["workers"] == 5 and now["prefetch"] == 7)
    assert now["memory"]["budget_bytes"] == 48 << 20
    done = loader.forebay("set", f"{loader.pid}:train", "workers=1").stdout
    assert done == f"{loader.pid}:train workers: 5 -> 1\n"
    assert "auto (1)" in loader.forebay("set", loader.pid, "workers=auto").stdout
    done = loader.forebay("set", loader.pid, "memory.budget=40MiB").stdout
    assert done == f"{loader.pid}:train memory.budget: 48.0 MiB -> 40.0 MiB\n"
    out, _ = loader.process.communicate(timeout=120)
    stats = json.loads(out)
    assert stats["samples"] == epochs * 40
    plain = result("run", *scans.settings, "--set", "batch.collate=pad")
    assert int(stats["checksum"], 16) == epochs * int(plain["checksum"], 16) % 2 ** 64


@pytest.mark.parametrize("setting, status, says", [
    ("batch.size=4", "BAD_CONFIG", "while running"), ("worker=4", "BAD_CONFIG", "workers"),
    ("workers=many", "BAD_CONFIG", "workers"), ("memory.budget=1kB", "OVER_BUDGET", "floor"),
    ("workers=999", "BAD_CONFIG", "256"), ("prefetch=4294967297", "BAD_CONFIG", "1024"),
    ("memory.budget=1", "OVER_BUDGET", "floor")])
def test_what_cannot_be_set_is_told_and_nothing_changes(running, scans, setting, status, says):
    loader = running(*slow(scans.settings), "--set", "workers=2")
    done = loader.forebay("set", loader.pid, "workers=1", setting, "--json", check=False)
    assert done.returncode == 1, done.stdout
    error = json.loads(done.stdout)["error"]
    assert error["status"] == status and says in error["message"]
    assert loader.look()["workers"] == 2


@pytest.mark.parametrize("setting", ["workers=", "prefetch=", "memory.budget="])
def test_an_empty_value_is_bad_use(running, scans, setting):
    loader = running(*slow(scans.settings), "--set", "workers=2")
    done = loader.forebay("set", loader.pid, setting, "--json", check=False)
    assert done.returncode == 2 and "value is missing" in done.stdout


def test_prefetch_auto_takes_back_what_was_set_by_hand(running, scans):
    loader = running(*slow(scans.settings), "--set", "prefetch=3")
    set_ = lambda value: json.loads(loader.forebay("set", loader.pid, f"prefetch={value}",
                                                   "--json").stdout)["results"][0]
    assert set_(7)["new"] == "7"
    assert set_("auto")["new"] == "auto (3)"


def test_a_lowered_budget_leaves_a_cache_that_still_fits(running, scans):
    loader = running(*slow(scans.settings), "--set", "memory.budget=400MiB", "--set",
                     "memory.cache=100MiB", "--set", "workers=2", "--set", "prefetch=2")
    set_ = lambda size: json.loads(loader.forebay("set", loader.pid, f"memory.budget={size}MiB",
                                                  "--json").stdout)["results"][0]
    limit = lambda: loader.look()["cache"]["limit_bytes"]
    full = loader.until(lambda now: now["cache"]["limit_bytes"])["cache"]["limit_bytes"]
    assert set_(260)["also"] == ""  # it fits: nothing else changes
    loader.until(lambda now: now["memory"]["budget_bytes"] == 260 << 20)
    assert limit() == full
    low = set_(80)
    assert "memory.cache 100" in low["also"]
    loader.until(lambda now: now["memory"]["budget_bytes"] == 80 << 20)
    loader.until(lambda now: 0 < now["cache"]["limit_bytes"] < 80 << 20)
    assert "memory.cache" in set_(400)["also"]  # and it comes back
    loader.until(lambda now: now["cache"]["limit_bytes"] == full)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(running, scans, program, tmp_path):
    loader = running(*slow(scans.settings))
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program]
    if subprocess.run([*command, "--version"], capture_output=True).returncode:
        pytest.skip("another user cannot run the program where it lies")
    for arguments in (["set", str(loader.pid), "workers=7"], ["top", str(loader.pid)]):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True,
                              env=loader.env)
        assert done.returncode == 1 and "cannot be used" in done.stderr
    ask = ("import socket\n"
           "name = next(l.split()[-1] for l in open('/proc/net/unix') "
           f"if '@forebay-0-{loader.pid}-' in l)\n"
           "s = socket.socket(socket.AF_UNIX)\n"
           "s.connect('\\0' + name[1:])\n"
           "try: s.send(b'set workers=7\\n')\n"
           "except BrokenPipeError: pass\n"
           "print(s.recv(4096).decode())")
    done = subprocess.run([*command[:-1], shutil.which("python3", path="/usr/bin"), "-c", ask],
                          capture_output=True, text=True)
    assert "another user" in done.stdout, done.stderr
    assert loader.look()["workers"] != 7


class Tmux:
    """A terminal of its own: 80 x 24 at first."""

    def __init__(self, folder):
        self.socket = folder / "tmux"

    def __call__(self, *arguments):
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *map(str, arguments)],
                              capture_output=True, text=True, timeout=20).stdout

    def until(self, word, there=True):
        end = time.monotonic() + 30
        while (word in self("capture-pane", "-p", "-t", "top")) != there:
            assert time.monotonic() < end, self("capture-pane", "-p", "-t", "top")
            time.sleep(0.1)
        return self("capture-pane", "-p", "-t", "top")


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not there")
def test_the_live_view_in_a_terminal(running, scans, tmp_path):
    one = running(*slow(scans.settings), name="train")
    running(*slow(scans.settings), name="val")
    tmux = Tmux(tmp_path)
    tmux("new-session", "-d", "-s", "top", "-x", 80, "-y", 24, "env",
         f"FOREBAY_RUN_DIR={tmp_path}/run", "TERM=screen", one.program, "top")
    try:
        text = tmux.until("LOADER")
        assert f"{one.pid}:train" in text and ":val" in text and "Enter show" in text
        tmux("send-keys", "-t", "top", "Down")
        tmux("send-keys", "-t", "top", "Enter")
        text = tmux.until("Throughput")
        assert ":val" in text and "Memory" in text and "Limit" in text
        assert len(text.splitlines()) == 24
        tmux("resize-window", "-t", "top", "-x", 130, "-y", 40)
        deadline = time.monotonic() + 20
        while max(map(len, tmux("capture-pane", "-p", "-t", "top").splitlines())) <= 80:
            assert time.monotonic() < deadline, tmux("capture-pane", "-p", "-t", "top")
            time.sleep(0.1)
        tmux("send-keys", "-t", "top", "l")
        tmux.until("LOADER")
        tmux("send-keys", "-t", "top", "q")
        end = time.monotonic() + 20
        while tmux("list-sessions"):
            assert time.monotonic() < end, "q does not end it"
            time.sleep(0.1)
    finally:
        tmux("kill-server")


def test_the_process_counts_its_share_of_a_shared_cache(running, tmp_path, result):
    folder = tmp_path / "large"
    result("generate", "lidar", folder, "--files", 40, "--bytes", "1MB")
    settings = ["--set", "source.kind=bin", "--set", f"source.path={folder}/*.bin", "--set",
                "memory.share=node", "--set", "memory.budget=256MiB", "--set", "memory.cache=100MiB"]
    one, two = running(*slow(settings), name="one"), running(*slow(settings), name="two")
    for loader in (one, two):  # both have read all 40 MB of it: half of that counts for each
        now = loader.until(lambda now: now["memory"]["process_bytes"] and
                           now["memory"]["process_bytes"] < now["memory"]["resident_bytes"] - (10 << 20))
        assert now["memory"]["process_bytes"] > 10 << 20


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not there")
@pytest.mark.parametrize("columns, rows, locale, mark", [
    (80, 24, "C.UTF-8", "█"), (200, 50, "C.UTF-8", "█"), (80, 24, "C", "#")])
def test_charts_fill_the_screen(running, scans, tmp_path, columns, rows, locale, mark):
    one = running(*slow(scans.settings), name="train")
    tmux = Tmux(tmp_path)
    tmux("-u", "new-session", "-d", "-s", "top", "-x", columns, "-y", rows, "env",
         f"FOREBAY_RUN_DIR={tmp_path}/run", "TERM=screen", f"LC_ALL={locale}", one.program, "top")
    try:
        tmux.until("Samples/s")
        text = tmux.until(mark + mark)
        lines = text.splitlines()
        assert len(lines) == rows and max(map(len, lines)) <= columns
        for word in ("Samples/s", "Waiting", "Memory", "Limit", "q quit"):
            assert word in text
        assert ("last " in text) == (rows == 50)  # charts of several rows
        tmux("resize-window", "-t", "top", "-x", 100, "-y", 45)
        assert len(tmux.until("last ").splitlines()) == 45
    finally:
        tmux("kill-server")


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not there")
def test_the_list_is_sorted_by_a_key(running, scans, tmp_path):
    small = running(*slow(scans.settings), "--set", "memory.budget=64MiB", name="small")
    large = running(*slow(scans.settings), "--set", "memory.budget=256MiB", name="large")
    tmux = Tmux(tmp_path)
    tmux("new-session", "-d", "-s", "top", "-x", 120, "-y", 24, "env",
         f"FOREBAY_RUN_DIR={tmp_path}/run", "TERM=screen", small.program, "top")
    order = lambda text: text.index(f"{large.pid}:large") < text.index(f"{small.pid}:small")
    try:
        tmux.until("sort: PID")
        for _ in range(2):
            tmux("send-keys", "-t", "top", "s")
        assert order(tmux.until("sort: BUDGET"))
        tmux("send-keys", "-t", "top", "r")
        assert not order(tmux.until("sort: BUDGET reversed"))
    finally:
        tmux("kill-server")


@pytest.mark.parametrize("term", ["dumb", "no-such-terminal"])
def test_a_terminal_without_a_cursor_gets_text_once(program, term, tmp_path):
    import pty
    ours, theirs = pty.openpty()
    child = subprocess.Popen([program, "top"], stdin=theirs, stdout=theirs, stderr=theirs,
                             env={**os.environ, "TERM": term, "FOREBAY_RUN_DIR": str(tmp_path / "run")})
    os.close(theirs)
    assert child.wait(timeout=60) == 0
    assert b"No loader of this user is running" in os.read(ours, 65536)
    os.close(ours)
