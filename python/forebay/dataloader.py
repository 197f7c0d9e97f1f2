"""forebay.DataLoader: torch's DataLoader, its batches in memory that is used again."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from . import _forebay
from ._arrays import import_torch
from ._settings import parse_size
from .loader import ForebayWarning

import_torch("forebay.DataLoader")

import torch.utils.data  # noqa: E402
from torch.utils.data import dataloader as theirs  # noqa: E402

from ._sending import Memory, Sending, enter_worker, frozen  # noqa: E402

if TYPE_CHECKING:
    from typing import Any


class DataLoader(torch.utils.data.DataLoader):
    """torch.utils.data.DataLoader: the same arguments, the same batches, another transport.

    >>> from forebay import DataLoader
    >>> loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=4)

    memory: bytes of the batches that are in flight or held by the caller ("8GB"). If the caller holds
            so many that the next does not fit, forebay.HeldError says so. None: a quarter of the
            memory that is free now; what does not fit travels torch's way
    """

    def __init__(self, *args: Any, memory: int | str | None = None, **keywords: Any) -> None:
        limit = 0 if memory is None else parse_size(memory)
        super().__init__(*args, **keywords)
        self.memory = memory
        if isinstance(self.collate_fn, Sending):
            return  # of a loader that this one was rebuilt from
        self.collate_fn = Sending(self.collate_fn, Memory(limit))

    def _get_iterator(self) -> Any:
        if not isinstance(self.collate_fn, Sending):  # the user set another one
            limit = 0 if self.memory is None else parse_size(self.memory)
            self.collate_fn = Sending(self.collate_fn, Memory(limit))
        if self.num_workers == 0:
            return theirs._SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def stats(self) -> dict[str, int]:
        """Bytes of the transport (limit, used, held by this process, resident), batches received
        and the largest of them, and how often there was no room."""
        memory = self.collate_fn.memory
        if memory is None:
            return {}
        return {**memory.transport.stats(), "batches": memory.batches,
                "largest_batch_bytes": memory.largest}


class _Start:
    """worker_init_fn of our workers: what ours needs first, then the user's."""

    def __init__(self, init: Any) -> None:
        self.init = init

    def __call__(self, worker_id: int) -> None:
        enter_worker()
        if self.init is not None:
            self.init(worker_id)


class _View:
    """The loader as torch's iterator sees it while it starts workers."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self.worker_init_fn = _Start(loader.worker_init_fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _HeldBack:
    """A worker's index queue. Tasks wait here while there is no memory for their batches: the
    sampler was asked as early as torch asks it, only the work begins later."""

    def __init__(self, queue: Any, iterator: _MultiProcessingDataLoaderIter) -> None:
        self._queue, self._tasks = queue, iterator._tasks

    def put(self, item: Any) -> None:
        if type(item) is tuple:
            self._tasks.append((self._queue, item))
        else:
            self._queue.put(item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _MultiProcessingDataLoaderIter(theirs._MultiProcessingDataLoaderIter):
    def __init__(self, loader: DataLoader) -> None:
        self._memory = loader.collate_fn.memory
        self._bounded = loader.memory is not None and self._memory is not None
        self._tasks: list[Any] = []  # drawn, not yet given to a worker
        with frozen():
            super().__init__(_View(loader))

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if self._bounded and first_iter:
            self._index_queues = [_HeldBack(queue, self) for queue in self._index_queues]
        self._tasks.clear()
        super()._reset(loader, first_iter)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give workers as many tasks as there is memory for; without a measure, one."""
        while self._tasks:
            working = self._tasks_outstanding - len(self._tasks)
            if working > 0 and not self._fits(working + 1):
                return
            queue, task = self._tasks.pop(0)
            queue.put(task)

    def _fits(self, batches: int) -> bool:
        largest, stats = self._memory.largest, self._memory.transport.stats()
        return (self._memory.batches > 0
                and stats["held_bytes"] + batches * largest <= stats["limit_bytes"])

    def _get_data(self) -> Any:
        if self._bounded:
            self._hand_out()
            self._check_held()
        return super()._get_data()

    def _check_held(self) -> None:
        """Raise if the batches that the caller holds leave no room for the next one."""
        stats, largest = self._memory.transport.stats(), self._memory.largest
        if not largest or stats["held_bytes"] + largest <= stats["limit_bytes"]:
            return
        raise _forebay.HeldError(
            f"a batch takes {largest / 2**20:.1f} MiB and batches of {stats['held_bytes'] / 2**20:.1f}"
            f" MiB are still held, but memory={stats['limit_bytes'] / 2**20:.1f} MiB has no room for "
            "one more: hold fewer batches, make them smaller, or raise memory=")

    def _process_data(self, *args: Any) -> Any:
        data = super()._process_data(*args)
        if self._bounded:
            self._hand_out()
            self._say_refused()
        return data

    def _say_refused(self) -> None:
        """Once: tensors came torch's way, because they found no room."""
        stats = self._memory.transport.stats()
        if stats["refused"] and not self._memory.said:
            self._memory.said = True
            warnings.warn(
                f"a tensor of a batch did not fit into memory={stats['limit_bytes'] / 2**20:.1f} MiB "
                "and came in ordinary shared memory, beyond that limit: raise memory=, or make "
                "batches smaller", ForebayWarning, stacklevel=4)

    def _shutdown_workers(self) -> None:
        self._tasks.clear()
        super()._shutdown_workers()
        if getattr(self, "_shutdown", False) and self._memory is not None:
            for worker in self._workers:
                if worker.pid is not None and not worker.is_alive():
                    self._memory.transport.reclaim(worker.pid)
