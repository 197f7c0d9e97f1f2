"""Data sets of known values, and what the tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import pytest

forebay = pytest.importorskip("forebay", reason="the package is not installed: make python")

ROWS = 5000  # of 16 bytes: a scan is above 64 KiB, so its array shares the batch
SCANS = 12


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests are one rank, and leave nothing in the user's folders."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "PMI_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FOREBAY_RUN_DIR", str(tmp_path / "run"))


def scan(number: int, rows: int = ROWS) -> numpy.ndarray:
    """The values of one file: all different, between files, too."""
    first = number * rows * 4
    return numpy.arange(first, first + rows * 4, dtype=numpy.float32).reshape(rows, 4)


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    for number in range(SCANS):
        scan(number).tofile(folder / f"{number:06d}.bin")
    return folder


def bin_config(folder: Path, **sections: dict) -> dict:
    config = {
        "source": {"kind": "bin", "path": f"{folder}/*.bin"},
        "order": {"shuffle": False},
        "batch": {"size": 2},
        "memory": {"budget": "64MiB", "share": "off"},
        "workers": 2,
    }
    for name, values in sections.items():
        config[name] = {**config.get(name, {}), **values} if isinstance(values, dict) else values
    return config


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
