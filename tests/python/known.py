"""Data sets of known values."""

from __future__ import annotations

from pathlib import Path

import numpy

ROWS = 5000  # of 16 bytes: a scan is above 64 KiB, so its array shares the batch
SCANS = 12


def scan(number: int, rows: int = ROWS) -> numpy.ndarray:
    """The values of one file: all different, between files, too."""
    first = number * rows * 4
    return numpy.arange(first, first + rows * 4, dtype=numpy.float32).reshape(rows, 4)


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
