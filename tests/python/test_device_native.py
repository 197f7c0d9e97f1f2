"""Batches that the engine itself hands out in device memory, on the emulated CUDA driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from known import SCANS


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(os.environ.get("FOREBAY_PROGRAM", "build/forebay")).resolve()
    folder = program.parent.parent / "tests/emulated"
    if not (folder / "libcuda.so.1").exists():
        pytest.skip(f"no emulated driver in {folder}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


def test_a_field_on_a_device_speaks_dlpack(emulated, config, python):
    """In a process of its own: the loader of libraries reads its path when a process starts."""
    config["device"] = {"kind": "cuda:0"}
    python(f"""
        import forebay
        loader = forebay.Loader({config!r}, as_="dlpack")
        seen = 0
        for batch in loader:
            points = batch["points"]
            assert points.__dlpack_device__() == (2, 0)
            for stream in (None, 1, -1):
                points.__dlpack__(stream=stream)
            try:
                points.__dlpack__(stream=0)
            except BufferError:
                seen += len(batch["points"].shape) and 1
            try:
                memoryview(points)
            except BufferError as error:
                assert "device memory" in str(error)
            else:
                raise AssertionError("device memory has no buffer")
        assert seen == {SCANS // 2}, seen
        assert loader.stats()["device"]["bytes_copied"] > 0
        del batch, points
        loader.close()
        """)
