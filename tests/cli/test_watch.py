"""A run that is watched: monitor.log, alarms and what they do, the governor's words."""
import json

import pytest


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_log_has_start_snapshots_decisions_and_end(result, scans, tmp_path):
    log = tmp_path / "run.log"
    stats = result("run", *scans.settings, "--epochs", 2000, "--set", f"monitor.log={log}",
                   "--set", "batch.collate=pad", "--set", "batch.size=8")
    kinds = [line["kind"] for line in lines(log)]
    assert kinds[0] == "start" and kinds[-1] == "end" and kinds.count("snapshot") >= 1
    assert set(kinds) <= {"start", "snapshot", "decision", "end"}
    for line in lines(log):
        if line["kind"] == "decision":
            assert line["reason"] and line["figures"] and {"view", "past"} <= set(line)
        else:
            assert line["memory"]["used_bytes"] <= line["memory"]["budget_bytes"]
            assert line["host"]["total_bytes"] > 0
    assert stats["samples"] == 2000 * 40


def test_a_log_that_cannot_be_written_is_an_error(failure, scans):
    error = failure(1, "run", *scans.settings, "--set", "monitor.log=/nowhere/run.log")
    assert error["place"] == "monitor.log" and "/nowhere/run.log" in error["message"]


def test_an_alarm_stops_the_run_and_saves_its_state(forebay, scans, tmp_path):
    state = tmp_path / "state.json"
    done = forebay("run", *scans.settings, "--epochs", 1000000, "--json", "--set",
                   "monitor.alarm.process=1MiB", "--set", "monitor.alarm.action=stop", "--set",
                   f"monitor.alarm.state={state}", "--set", "batch.collate=pad")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["status"] == "STOPPED" and str(state) in error["message"]
    assert "resident memory of the process" in error["message"]
    assert "warning: alarm: resident memory of the process" in done.stderr
    assert json.loads(state.read_text())


def test_an_alarm_runs_a_command_without_a_shell(forebay, scans, tmp_path):
    told = tmp_path / "told"
    command = f'["python3", "-c", "import os; open({str(told)!r}, \'w\')' \
              f'.write(os.environ[\'FOREBAY_ALARM\'])"]'
    done = forebay("run", *scans.settings, "--epochs", 3000, "--set", "batch.collate=pad", "--set",
                   "monitor.alarm.system=1%", "--set", "monitor.alarm.action=command", "--set",
                   f"monitor.alarm.command={command}")
    assert done.returncode == 0, done.stderr
    assert "used memory of the system" in told.read_text()
    assert done.stderr.count("alarm: ") == 1, "once"


def test_an_alarm_shrinks(forebay, scans):
    done = forebay("run", *scans.settings, "--epochs", 3000, "--set", "batch.collate=pad", "--set",
                   "monitor.alarm.system=1%", "--set", "monitor.alarm.action=shrink")
    assert done.returncode == 0, done.stderr
    assert "governor: " in done.stderr and "an alarm asks for memory" in done.stderr


@pytest.mark.parametrize("key, value", [("process", "lots"), ("system", "120%"), ("swap", "-1"),
                                        ("gpu", "%")])
def test_a_threshold_that_makes_no_sense(failure, scans, key, value):
    error = failure(1, "run", *scans.settings, "--set", f"monitor.alarm.{key}={value}")
    assert error["status"] == "BAD_CONFIG" and f"monitor.alarm.{key}" in error["message"]


def test_what_was_given_is_not_moved(forebay, scans):
    done = forebay("run", *scans.settings, "--epochs", 3000, "--set", "batch.collate=pad", "--set",
                   "workers=2", "--set", "prefetch=3", "--set", "memory.cache=off")
    assert done.returncode == 0
    assert "governor: workers" not in done.stderr and "governor: prefetch" not in done.stderr
