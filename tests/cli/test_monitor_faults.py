"""monitor, set and run under faults: full disks, file size limits, slow clients, terminals."""
import json
import os
import pty
import resource
import signal
import socket
import subprocess
import time

import pytest



def limited(size):
    """Run in the child before exec: no file may grow above `size` bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def on_a_terminal(program, *arguments):
    """What a command writes to a terminal, stdout and stderr together."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([program, *map(str, arguments)], stdin=theirs, stdout=theirs,
                             stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return child.wait(), seen.decode(errors="replace")


@pytest.mark.parametrize("key", ["process", "system", "swap", "gpu"])
def test_a_threshold_without_a_unit_is_refused_with_both_spellings(forebay, key):
    done = forebay("monitor", "--samples", 1, "--set", f"monitor.alarm.{key}=40")
    assert done.returncode == 1
    assert "40GiB" in done.stderr and "90%" in done.stderr and "needs a unit" in done.stderr


def test_an_alarm_stays_on_a_terminal(program):
    code, seen = on_a_terminal(program, "monitor", "--samples", 2, "--set",
                               "monitor.alarm.system=1MiB")
    assert code == 0
    last = seen.split("\033[H\033[J")[-1]
    assert "warning: alarm: used memory of the system" in last


def test_an_alarms_command_prints_to_stderr_and_ends_with_the_run(forebay):
    done = forebay("monitor", "--samples", 1, "--json", "--set", "monitor.alarm.system=1MiB",
                   "--set", "monitor.alarm.action=command", "--set",
                   'monitor.alarm.command=["sh", "-c", "echo noise; sleep 1000"]', timeout=100)
    assert json.loads(done.stdout)["alarms"] == 1
    assert "noise" in done.stderr


def test_a_log_that_cannot_be_written_is_a_failure(forebay):
    done = forebay("monitor", "--samples", 1, "--log", "/dev/full")
    assert done.returncode == 1 and "/dev/full" in done.stderr


def test_hangup_is_passed_on_to_the_command(program, tmp_path):
    script = 'trap "exit 7" HUP; echo ready; while :; do sleep 0.05; done'
    child = subprocess.Popen([program, "monitor", "--log", tmp_path / "log", "--", "sh", "-c",
                              script], stdout=subprocess.PIPE, text=True,
                             # nohup, if the tests run under it, would make the shell ignore it
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGHUP)
    assert child.wait(timeout=60) == 7


def test_slow_clients_do_not_hold_every_place(program):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen([program, "monitor", "--listen", str(port)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = child.stdout.readline()
        if not line and "built without" in child.stderr.read():
            pytest.skip("built without libmicrohttpd")
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
        answer = b""
        for _ in range(120):  # a byte from each once a second: never silent, never done
            for one in slow:
                try:
                    one.send(b"G")
                except OSError:
                    pass
            with socket.create_connection(("127.0.0.1", port)) as asks:
                asks.settimeout(1)
                try:
                    asks.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                    answer = asks.recv(4096)
                except OSError:
                    pass
            if answer:
                break
            time.sleep(0.2)
        assert answer.startswith(b"HTTP/1.1 200")
        for one in slow:
            one.close()
    finally:
        child.kill()
        child.communicate()


def test_a_run_goes_on_where_its_snapshot_file_has_no_room(program, scans):
    done = subprocess.run([program, "run", *map(str, scans.settings), "--set",
                           "batch.collate=pad"], capture_output=True, text=True,
                          preexec_fn=limited(4096))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("forebay top cannot see this loader") == 1


def test_pack_above_the_file_size_limit_fails_in_words_and_leaves_nothing(program, scans, tmp_path):
    out, config = tmp_path / "packed", tmp_path / "c.yaml"
    config.write_text(f"source: {{kind: bin, path: '{scans.folder}/*.bin'}}\n")
    done = subprocess.run([program, "pack", config, out], capture_output=True, text=True,
                          preexec_fn=limited(4096))
    assert done.returncode == 1 and "too large" in done.stderr, done
    assert not out.exists() or not list(out.iterdir())


def test_lines_do_not_flood_a_terminal(program, forebay, scans):
    run = ["run", *scans.settings, "--set", "batch.collate=pad", "--epochs", 20, "--set",
           "monitor.every=1"]
    code, seen = on_a_terminal(program, *run)
    assert code == 0
    piped = forebay(*run).stderr
    assert piped.count("Speed - ") == 20 * 40
    assert 0 < seen.count("Speed - ") < 20 * 40


def test_one_worker_is_one_worker(forebay, scans):
    done = forebay("run", *scans.settings, "--set", "batch.collate=pad", "--set", "workers=1",
                   "--set", "prefetch=1")
    assert "1 worker, 1 batch in flight" in done.stdout
