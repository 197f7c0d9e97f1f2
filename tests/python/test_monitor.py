"""The memory line keeps the guides' words."""

import os
import re
import subprocess
import sys

import pytest

import forebay
from forebay import monitor as module

LINE = re.compile(r"\[Step 3\] Memory - Process: \d+\.\dMB \(\d+\.\d%\), "
                  r"System: \d+\.\d/\d+\.\dGB \(\d+\.\d%\), "
                  r"GPU: (n/a|\d+\.\dMB allocated, \d+\.\dMB reserved)")


def test_every_third_step_prints_the_line(capsys):
    monitor = forebay.MemoryMonitor(every=3, warn=1.0)
    assert [monitor.step() is None for _ in range(4)] == [True, True, False, True]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 and LINE.fullmatch(printed[0])


def test_above_the_threshold_it_warns_with_advice(capsys):
    forebay.MemoryMonitor(every=1, warn=1e-9).step()
    printed = capsys.readouterr().out
    assert "WARNING: System memory usage is critically high (" in printed
    assert "NUM_WORKERS" in printed


def test_lines_go_to_a_log_file_too(tmp_path, capsys):
    log = tmp_path / "memory.log"
    monitor = forebay.MemoryMonitor(every=1, warn=1.0).log(log)
    monitor.report("After dataset creation")
    monitor.step()
    lines = log.read_text().splitlines()
    assert lines == capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[After dataset creation] Memory - Process: ")
    with pytest.raises(OSError):
        monitor.log(tmp_path / "no" / "folder")


def test_the_process_tree_counts_children():
    code = "x = bytearray(64 << 20); print('ready', flush=True); input()"
    before = forebay.MemoryMonitor().measure()["process_bytes"]
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        assert child.pid in module.process_tree(os.getpid())
        assert forebay.MemoryMonitor().measure()["process_bytes"] - before > 60 << 20
    finally:
        child.communicate(b"\n")
    assert module.process_bytes(child.pid) == 0


def test_gpu_columns_are_torchs(monkeypatch, capsys):
    class Cuda:
        reserved = 9216 << 20
        is_available = is_initialized = staticmethod(lambda: True)
        memory_allocated = staticmethod(lambda: 8192 << 20)

        @classmethod
        def memory_reserved(cls):
            return cls.reserved

        @classmethod
        def empty_cache(cls):
            cls.reserved -= 512 << 20

    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": Cuda}))
    monitor = forebay.MemoryMonitor(every=1, warn=1.0, empty_cache_every=2)
    monitor.step()
    monitor.step()
    first, gave_back, second = capsys.readouterr().out.splitlines()
    assert first.endswith("GPU: 8192.0MB allocated, 9216.0MB reserved")
    assert gave_back == "[Step 2] torch.cuda.empty_cache() gave back 512.0MB"
    assert second.endswith("GPU: 8192.0MB allocated, 8704.0MB reserved")


@pytest.mark.parametrize("wrong", [{"every": 0}, {"warn": 0}, {"warn": 90},
                                   {"empty_cache_every": 0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        forebay.MemoryMonitor(**wrong)
