"""What the tests of the Python package share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from known import SCANS, bin_config, scan


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests are one rank, and leave nothing in the user's folders."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "PMI_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FOREBAY_RUN_DIR", str(tmp_path / "run"))


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    for number in range(SCANS):
        scan(number).tofile(folder / f"{number:06d}.bin")
    return folder


@pytest.fixture
def config(scans: Path) -> dict:
    return bin_config(scans)


@pytest.fixture
def python(tmp_path: Path):
    """Runs a piece of Python in a process of its own; its last line is JSON."""
    def run(code: str, *args: object, **options: object) -> object:
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
                              capture_output=True, text=True, timeout=60, cwd=tmp_path, **options)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None

    return run
