"""Why a worker died: one sentence after torch's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_GIB = 2**30


def memory_of(pid: int) -> int:
    """Bytes that process `pid` does not share; 0: unknown."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(1024 * int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE))


def _cgroup() -> Path | None:
    """The folder of this process's memory cgroup (version 2 or 1)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, kinds, path = line.split(":", 2)
        for root in ([Path("/sys/fs/cgroup")] if not kinds else
                     [Path("/sys/fs/cgroup/memory")] if "memory" in kinds.split(",") else []):
            for folder in (root / path.lstrip("/"), root):  # in a container the path may be the host's
                if (folder / "memory.events").exists() or (folder / "memory.oom_control").exists():
                    return folder
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _count(text: str) -> int:
    found = re.search(r"^oom_kill (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def oom_kills() -> int:
    """How often the kernel killed for want of memory: in our cgroup, else on this machine."""
    folder = _cgroup()
    places = [] if folder is None else [folder / "memory.events", folder / "memory.oom_control"]
    for place in [*places, Path("/proc/vmstat")]:
        try:
            return _count(place.read_text())
        except OSError:
            continue
    return 0


class Before:
    """What was counted when the workers started."""

    def __init__(self) -> None:
        self.kills = oom_kills()


def _memory_words() -> str:
    folder = _cgroup()
    if folder is None:
        return ""
    used = _number(folder / "memory.peak") or _number(folder / "memory.max_usage_in_bytes")
    limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
    if used is None or limit is None or limit > 2**60:
        return ""
    return f" at {used / _GIB:.1f} GiB of the cgroup's {limit / _GIB:.1f} GiB"


def explain(error: RuntimeError, progress: Any) -> None:
    """Add a sentence to torch's text if a worker was killed."""
    text = str(error)
    if "DataLoader worker (pid" not in text or not ("killed by signal" in text or "exited" in text):
        return
    iterator = progress.iterator()
    held = sum(memory_of(worker.pid) for worker in iterator._workers if worker.pid is not None)
    others = f" The other workers hold {held / _GIB:.1f} GiB." if held > _GIB // 20 else ""
    if oom_kills() > iterator._deaths.kills:
        why = (f" The kernel's out-of-memory killer ended a process{_memory_words()}.{others} Use fewer workers, "
               "smaller batches, or memory=.")
    elif "Killed" in text:
        why = (f" The kernel's out-of-memory killer did not count a kill meanwhile, so another process sent "
               f"SIGKILL (a batch system does so at its own memory limit).{others}")
    else:
        return
    error.args = (text + why, *error.args[1:])
