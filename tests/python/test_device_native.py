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


def test_a_field_on_a_device_is_copied_to_the_host_when_that_is_asked_for(emulated, config, python):
    config["device"] = {"kind": "cuda:0"}
    python(f"""
        import forebay, numpy
        class AskForHost:
            def __init__(self, field):
                self.field = field
            def __dlpack_device__(self):
                return 1, 0
            def __dlpack__(self, **options):
                return self.field.__dlpack__(**{{**options, "dl_device": (1, 0)}})
        with forebay.Loader({config!r}, as_="dlpack") as loader, \
                forebay.Loader({config!r}, device="host") as plain:
            for batch, expected in zip(loader, plain):
                points = batch["points"]
                copy = numpy.from_dlpack(AskForHost(points))
                assert numpy.array_equal(copy, expected["points"])
                interface = points.__cuda_array_interface__
                assert interface["shape"] == expected["points"].shape
                assert (interface["typestr"], interface["version"]) == ("<f4", 3)
                assert interface["data"][0] > 0 and interface["data"][1] is False
                for refused in ({{"copy": True}}, {{"dl_device": (1, 0), "copy": False}},
                                {{"dl_device": (2, 1)}}):
                    try:
                        points.__dlpack__(**refused)
                    except BufferError:
                        continue
                    raise AssertionError(refused)
            del batch, points, copy
        """)


def test_retry_on_oom_trims_the_engines_device_cache_too(emulated, config, python):
    pytest.importorskip("torch")
    config["device"] = {"kind": "cuda:0", "cache": "32MiB"}
    config["epochs"] = 2  # what a batch of a third one, in flight, counted on would stay
    python(f"""
        import forebay, torch
        calls = []
        def fn():
            calls.append(loader.stats()["device"]["cache_bytes"])
            if len(calls) == 1:
                raise torch.OutOfMemoryError("no memory")
            return "done"
        with forebay.Loader({config!r}, as_="dlpack") as loader:
            for _ in range(2):
                for batch in loader:
                    pass
            del batch
            assert forebay.retry_on_oom(fn) == "done"
        assert len(calls) == 2 and calls[0] > calls[1], calls
        """)
