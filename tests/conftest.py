"""What all pytest files share: the program under test, and how to call it."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from running import Running  # noqa: E402 (beside this file, for tests in folders below)

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def program():
    """The program of the build under test: $FOREBAY_PROGRAM, else build/forebay."""
    path = pathlib.Path(os.environ.get("FOREBAY_PROGRAM", ROOT / "build/forebay"))
    assert path.exists(), f"{path} is not there: run make first"
    return path


@pytest.fixture
def forebay(program, tmp_path):
    """forebay("run", ..., cwd=, env=, timeout=) -> CompletedProcess with text; .json() if --json."""
    def call(*arguments, env=None, timeout=300, **more):
        surroundings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"),
                        "FOREBAY_RUN_DIR": str(tmp_path / "run"), **(env or {})}
        done = subprocess.run([program, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, env=surroundings, timeout=timeout, **more)
        done.json = lambda: json.loads(done.stdout)
        return done
    return call


@pytest.fixture
def running(program, tmp_path):
    """running("--epochs", 1000, ...) -> Running, killed at the end of the test."""
    started = []

    def start(*arguments, **more):
        started.append(Running(program, tmp_path, *arguments, **more))
        return started[-1]
    yield start
    for one in started:
        one.end()
        one.errors.close()
