"""forebay run --save-state and --resume: exact, under another budget, with a copy of the data."""
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from running import Running  # noqa: E402


def sets(*settings):
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture
def data(tmp_path):
    for group in "ab":
        (tmp_path / "set" / group).mkdir(parents=True)
    for number in range(50):
        np.full((64 + number, 4), number, "f4").tofile(
            tmp_path / "set" / "ab"[number % 2] / f"{number:03}.bin")
    return tmp_path / "set"


def settings_of(folder, *more):
    return sets("source.kind=bin", f"source.path={folder}/*/*.bin", "batch.size=4",
                "batch.collate=pad", "memory.share=off", *more)


def added(*results):
    return f"{sum(int(result['checksum'], 16) for result in results) % 2 ** 64:016x}"


def test_a_run_in_three_parts_is_the_whole_run(result, tmp_path, data):
    settings, state = settings_of(data), tmp_path / "state.json"
    whole = result("run", *settings, "--epochs", 2)
    parts = [result("run", *settings, "--epochs", 2, "--steps", 5, "--save-state", state)]
    assert json.loads(state.read_text())["position"] == 20
    parts.append(result("run", *settings, "--epochs", 2, "--steps", 11, "--resume", state,
                        "--save-state", state))
    parts.append(result("run", *settings, "--epochs", 2, "--resume", state, "--save-state", state))
    assert added(*parts) == whole["checksum"]
    assert sum(part["samples"] for part in parts) == whole["samples"] == 100
    assert [path.name for path in tmp_path.iterdir() if "state" in path.name] == ["state.json"]
    done = result("run", *settings, "--epochs", 2, "--resume", state)
    assert done["samples"] == 0, "both epochs are done"


def test_a_state_resumes_under_any_budget(result, tmp_path):
    rows = "".join(f"{i},{i * 7 % 1000},{i % 13}\n" for i in range(400000))
    (tmp_path / "t.csv").write_text("a,b,c\n" + rows)
    settings = sets("source.kind=table", f"source.path={tmp_path}/t.csv", "order.group=block",
                    "batch.size=4096")
    state = tmp_path / "state.json"
    whole = result("run", *settings)
    for first, second in (("16MiB", "300MiB"), ("300MiB", "16MiB")):
        begun = result("run", *settings, *sets(f"memory.budget={first}"), "--steps", 20,
                       "--save-state", state)
        rest = result("run", *settings, *sets(f"memory.budget={second}"), "--resume", state)
        assert added(begun, rest) == whole["checksum"]


def test_a_copy_of_the_data_resumes_and_other_data_does_not(result, failure, tmp_path, data):
    state = tmp_path / "state.json"
    begun = result("run", *settings_of(data), "--steps", 5, "--save-state", state)
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(data, copy)
    for path in copy.rglob("*.bin"):
        os.utime(path, (1, 1))
    rest = result("run", *settings_of(copy), "--resume", state)
    assert begun["samples"] + rest["samples"] == 50
    (copy / "a" / "000.bin").rename(copy / "a" / "000x.bin")
    assert "names or sizes" in failure(1, "run", *settings_of(copy), "--resume", state)["message"]
    (copy / "a" / "000x.bin").rename(copy / "a" / "000.bin")
    np.zeros((63, 4), "f4").tofile(copy / "a" / "000.bin")
    assert "names or sizes" in failure(1, "run", *settings_of(copy), "--resume", state)["message"]


def test_damaged_states_are_refused_and_old_ones_taken(forebay, result, failure, tmp_path, data):
    settings, file = settings_of(data), tmp_path / "state.json"
    result("run", *settings, "--steps", 5, "--save-state", file)
    saved = json.loads(file.read_text())
    for key, value, words in (("position", 24, "checksum"), ("position", 4000, "damaged"),
                              ("epoch", 2 ** 62, "more than can be"), ("world", 0, "damaged"),
                              ("nodes", 9, "damaged"), ("epoch", 1, "checksum")):
        file.write_text(json.dumps({**saved, key: value}))
        assert words in failure(1, "run", *settings, "--resume", file)["message"], key
    old = {key: value for key, value in saved.items() if key not in ("data", "sum")}
    file.write_text(json.dumps({**old, "forebay_state": 1}))
    done = forebay("run", *settings, "--resume", file, "--json")
    assert done.returncode == 0 and "older forebay" in done.stderr
    assert json.loads(done.stdout)["samples"] == 30
    os.mkfifo(tmp_path / "fifo")
    assert "regular file" in failure(1, "run", *settings, "--resume", tmp_path / "fifo")["message"]
    failure(1, "run", *settings, "--resume", tmp_path / "none")


@pytest.mark.parametrize("number", (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT))
def test_the_state_is_saved_before_a_signal_ends_the_run(program, result, tmp_path, data, number):
    state, settings = tmp_path / "state.json", settings_of(data)
    running = Running(program, tmp_path, *settings, "--epochs", 10 ** 9, "--save-state", state)
    running.until(lambda now: now["batches"] > 5)
    running.end(number)
    assert running.process.returncode == 128 + number
    epoch = json.loads(state.read_text())["epoch"]
    rest = result("run", *settings, "--epochs", epoch + 1, "--resume", state)
    assert rest["samples"] == 50 - json.loads(state.read_text())["position"]
