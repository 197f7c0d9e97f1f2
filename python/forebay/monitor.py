"""forebay.MemoryMonitor: the memory line of a training run, every so many steps. Needs no psutil."""

from __future__ import annotations

import os

from ._arrays import loaded

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO

_MB = 2**20
_GB = 2**30


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdigit() else None


def _kilobytes(text: str | None, key: str) -> int | None:
    """Bytes of a line such as "Pss:   12 kB"."""
    for line in (text or "").splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return None


def _children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        for child in (_read(f"/proc/{pid}/task/{thread}/children") or "").split():
            yield int(child)


def process_tree(root: int) -> list[int]:
    """`root` and all that descend from it."""
    found = [root]
    for pid in found:  # grows while it is walked
        found.extend(child for child in _children(pid) if child not in found)
    return found


def process_bytes(pid: int) -> int:
    """Resident size of one process; 0 once it is gone."""
    resident = (_read(f"/proc/{pid}/statm") or "0 0").split()[1]
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def _caches(pid: int) -> dict[tuple[int, int], int]:
    """Bytes of each of forebay's shared caches that the process has open, by device and inode."""
    found = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for name in names:
        path = f"/proc/{pid}/fd/{name}"
        try:
            if "memfd:forebay-" in os.readlink(path):
                about = os.stat(path)
                found[about.st_dev, about.st_ino] = about.st_blocks * 512
        except OSError:  # closed meanwhile
            continue
    return found


def tree_bytes(pids: list[int]) -> int:
    """Memory of these processes: the resident size of each, without the pages of shared caches,
    and each cache once, whole. smaps would take 14 ms per GiB."""
    caches, total = {}, 0
    for pid in pids:
        own = _caches(pid)
        shared = _kilobytes(_read(f"/proc/{pid}/status"), "RssShmem:") or 0
        total += max(0, process_bytes(pid) - min(shared, sum(own.values())))
        caches.update(own)
    return total + sum(caches.values())


def _cgroup_folders() -> Iterator[str]:
    """This process's group in cgroup 2 and all above it, as far as they are visible."""
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            path = line[3:].strip("/")
            while True:
                yield os.path.join("/sys/fs/cgroup", path)
                if not path:
                    return
                path = os.path.dirname(path)


def cgroup_use() -> float | None:
    """The fullest memory limit this process lives under, as a share; None without a limit."""
    shares = []
    for folder in _cgroup_folders():
        limit = _number(_read(os.path.join(folder, "memory.max")))
        used = _number(_read(os.path.join(folder, "memory.current")))
        # Clean pages of files are given back before anything fails.
        spare = _number_of(_read(os.path.join(folder, "memory.stat")), "inactive_file")
        if limit and used is not None:
            shares.append(max(used - (spare or 0), 0) / limit)
    return max(shares, default=None)


def _number_of(text: str | None, key: str) -> int | None:
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return _number(value)
    return None


class MemoryMonitor:
    """Prints the memory line every `every` steps and warns above `warn` of the memory.

    >>> monitor = forebay.MemoryMonitor(every=100, warn=0.9)
    >>> for batch in loader:
    ...     train(batch)
    ...     monitor.step()
    [Step 100] Memory - Process: 15678.9MB (6.1%), System: 125.4/256.0GB (49.0%), GPU: n/a

    Process is this process and all its children (MB and GB are 2**20 and 2**30). The GPU columns
    are torch's, if torch is loaded and has CUDA. With `empty_cache_every`, torch.cuda.empty_cache()
    is called every that many steps, and what it gave back is said.
    """

    def __init__(self, every: int = 100, warn: float = 0.9, empty_cache_every: int | None = None,
                 *, file: TextIO | None = None) -> None:
        if every < 1 or (empty_cache_every is not None and empty_cache_every < 1):
            raise ValueError("every and empty_cache_every are at least 1")
        if not 0 < warn <= 1:
            raise ValueError(f"warn is a share of the memory between 0 and 1, not {warn!r}")
        self.every = every
        self.warn = warn
        self.empty_cache_every = empty_cache_every
        self.steps = 0
        self._file = file  # None: stdout as it is at that moment
        self._log: str | None = None

    def log(self, path: str | os.PathLike | None) -> MemoryMonitor:
        """Append every further line to this file, too; None ends that."""
        self._log = None if path is None else os.fspath(path)
        if self._log is not None:
            with open(self._log, "a", encoding="utf-8"):
                pass  # fail now, not at step 100
        return self

    def step(self) -> str | None:
        """Count a step. On every `every`-th prints the line and returns it, else returns None."""
        self.steps += 1
        if self.empty_cache_every and self.steps % self.empty_cache_every == 0:
            self._empty_cache()
        if self.steps % self.every:
            return None
        return self.report(f"Step {self.steps}")

    def report(self, label: str) -> str:
        """Print the line now, under a label of its own, e.g. "After dataset creation"."""
        measured = self.measure()
        line = _line(label, measured)
        self._say(line)
        use = measured["use"]
        if use is not None and use > self.warn:
            self._say("\u26a0\ufe0f  WARNING: System memory usage is critically high "
                      f"({100 * use:.1f}%)!\n"
                      "   Consider reducing memory.budget (CACHE_SIZE_GB) or workers (NUM_WORKERS) "
                      "in config.")
        return line

    def measure(self) -> dict[str, Any]:
        """What the line is made of; what could not be measured is None."""
        meminfo = _read("/proc/meminfo")
        total = _kilobytes(meminfo, "MemTotal:")
        available = _kilobytes(meminfo, "MemAvailable:")
        used = total - available if total and available is not None else None
        uses = [use for use in (used / total if used is not None and total else None, cgroup_use())
                if use is not None]
        allocated, reserved = _gpu()
        return {
            "process_bytes": tree_bytes(process_tree(os.getpid())),
            "system_used_bytes": used,
            "system_total_bytes": total,
            "gpu_allocated_bytes": allocated,
            "gpu_reserved_bytes": reserved,
            "use": max(uses, default=None),  # the fuller of machine and container
        }

    def _say(self, text: str) -> None:
        print(text, file=self._file, flush=True)
        if self._log is not None:
            with open(self._log, "a", encoding="utf-8") as file:
                file.write(text + "\n")

    def _empty_cache(self) -> None:
        torch = _torch_with_cuda()
        if torch is None:
            return
        before = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        given_back = before - torch.cuda.memory_reserved()
        self._say(f"[Step {self.steps}] torch.cuda.empty_cache() gave back {given_back / _MB:.1f}MB")


def _torch_with_cuda() -> Any:
    """torch if the program has loaded it and it has a CUDA device in use; nothing is started."""
    torch = loaded("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_available() and cuda.is_initialized() else None


def _gpu() -> tuple[int | None, int | None]:
    torch = _torch_with_cuda()
    if torch is None:
        return None, None
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def _line(label: str, measured: dict[str, Any]) -> str:
    process, used, total = (measured[key] for key in
                            ("process_bytes", "system_used_bytes", "system_total_bytes"))
    allocated, reserved = measured["gpu_allocated_bytes"], measured["gpu_reserved_bytes"]
    share = f" ({100 * process / total:.1f}%)" if total else ""
    system = (f"{used / _GB:.1f}/{total / _GB:.1f}GB ({100 * used / total:.1f}%)"
              if used is not None and total else "n/a")
    gpu = ("n/a" if allocated is None else
           f"{allocated / _MB:.1f}MB allocated, {reserved / _MB:.1f}MB reserved")
    return f"[{label}] Memory - Process: {process / _MB:.1f}MB{share}, System: {system}, GPU: {gpu}"
