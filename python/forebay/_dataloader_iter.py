"""The iterators of forebay.DataLoader: torch's own, with memory, progress and a place to resume from."""

from __future__ import annotations

import time
import warnings
import weakref
from typing import TYPE_CHECKING

from torch.utils.data import _utils
from torch.utils.data import dataloader as theirs

from . import _death, _forebay
from ._progress import Noted, Progress, is_stateful, set_random
from ._samples import Key, show_inside
from ._sending import Nothing, WithNote, begin_notes, enter_worker, frozen
from .loader import ForebayWarning

if TYPE_CHECKING:
    from typing import Any

    from ._progress import Resume
    from .dataloader import DataLoader


class _Start:
    """worker_init_fn of our workers: what ours needs first, then the user's, then the place to resume."""

    def __init__(self, init: Any, resume: Resume | None) -> None:
        self.init = init
        self.random = {} if resume is None else resume.worker_random
        self.dataset = {} if resume is None else resume.worker_dataset

    def __call__(self, worker_id: int) -> None:
        enter_worker()
        show_inside()
        if self.init is not None:
            self.init(worker_id)
        if self.dataset.get(worker_id) is not None:
            _utils.worker.get_worker_info().dataset.load_state_dict(self.dataset[worker_id])
        if self.random.get(worker_id) is not None:
            set_random(self.random[worker_id])
        begin_notes()


class _View:
    """The loader as torch's iterator sees it while it starts."""

    def __init__(self, loader: DataLoader, resume: Resume | None) -> None:
        self._loader = loader
        self.dataset = loader._samples(resume)
        self.worker_init_fn = _Start(loader.worker_init_fn, resume)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Counted:
    """What both iterators share: the progress, and the place they resume from."""

    def _begin(self, loader: DataLoader, resume: Resume | None) -> None:
        self._loader = weakref.ref(loader)
        self._resume = resume
        self._skip = 0
        self._pending = resume.pending if resume is not None else None
        self._progress = Progress(loader, loader.num_workers, "new")
        self._progress.iterator = weakref.ref(self)
        loader._progress = self._progress
        if resume is not None:
            resume.copy_to(self._progress)
            resume.begin(loader)
            self._skip = resume.drawn

    @property
    def _base_seed(self) -> int:
        return self._seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        self._seed = drawn
        resume = self._resume
        if resume is not None and resume.base_seed is not None:
            self._seed = resume.base_seed
            if self._progress.kind == "again":  # then no seed was drawn at this epoch's start
                resume.set_start(self._loader())
        self._progress.base_seed = self._seed

    def _draw(self) -> Any:
        """The next index batch: of those that were pending, else of the sampler."""
        if self._skip:
            skip, self._skip = self._skip, 0
            for _ in range(skip):
                next(self._sampler_iter)
            self._resume.end()
        if self._pending:
            return self._pending.popleft()
        index = next(self._sampler_iter)
        self._progress.drawn += 1
        return index

    def _keys(self, index: Any) -> Any:
        """With seed_per_sample: each index with its seed."""
        seed = (self._seed, self._progress.epoch)
        return [Key(one, seed) for one in index] if self._auto_collation else Key(index, seed)

    def __next__(self) -> Any:
        before = time.monotonic()
        try:
            data = super().__next__()
        except StopIteration:
            self._progress.finished = True
            raise
        except RuntimeError as error:
            _death.explain(error, self._progress)
            raise
        self._progress.yielded += 1
        self._progress.wait_s += time.monotonic() - before
        return data


class SingleProcessIter(_Counted, theirs._SingleProcessDataLoaderIter):
    def __init__(self, loader: DataLoader, resume: Resume | None) -> None:
        self._begin(loader, resume)
        self._keyed = loader.seed_per_sample
        try:
            if resume is not None and 0 in resume.worker_dataset:
                loader.dataset.load_state_dict(resume.worker_dataset[0])
            super().__init__(_View(loader, resume))
            if resume is not None and not resume.fresh:
                self._prime()
        finally:
            if resume is not None:
                resume.end()

    def _note(self) -> Noted | None:
        dataset = getattr(self._dataset, "inside", self._dataset)
        return Noted(None, dataset.state_dict(), []) if is_stateful(dataset) else None

    def _prime(self) -> None:
        """Draw the next index batch while the random states are those of the state."""
        try:
            self._pending.appendleft(self._draw())
        except StopIteration:
            pass

    def _next_index(self) -> Any:
        index = self._draw()
        return self._keys(index) if self._keyed else index

    def _next_data(self) -> Any:
        while True:
            data = super()._next_data()
            self._progress.note(0, self._note())
            bad, self._collate_fn.bad = self._collate_fn.bad, []
            if bad:
                self._loader()._record(bad)
            if type(data) is not Nothing:
                return data

    def _describe_workers(self) -> list[dict[str, int]]:
        return []


class _HeldBack:
    """A worker's index queue. Tasks wait here while there is no memory for their batches: the
    sampler was asked as early as torch asks it, only the work begins later."""

    def __init__(self, queue: Any, iterator: MultiProcessIter) -> None:
        self._queue, self._tasks = queue, iterator._tasks
        self._keys = weakref.WeakMethod(iterator._keys) if iterator._keyed else None

    def put(self, item: Any) -> None:
        if type(item) is not tuple:
            self._queue.put(item)
            return
        if self._keys is not None:
            item = (item[0], self._keys()(item[1]))
        self._tasks.append((self._queue, item))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class MultiProcessIter(_Counted, theirs._MultiProcessingDataLoaderIter):
    def __init__(self, loader: DataLoader, resume: Resume | None) -> None:
        self._begin(loader, resume)
        self._memory = loader.collate_fn.memory
        self._bounded = loader.memory is not None and self._memory is not None
        self._keyed = loader.seed_per_sample
        self._tasks: list[Any] = []  # drawn, not yet given to a worker
        self._deaths = _death.Before()
        try:
            with frozen():
                super().__init__(_View(loader, resume))
        finally:
            if resume is not None:
                resume.end()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if first_iter:
            self._first = 0 if self._resume is None else self._resume.first
            self._say_inexact()
            if self._bounded or self._keyed:
                self._index_queues = [_HeldBack(queue, self) for queue in self._index_queues]
        else:
            self._next_epoch(loader)
        self._tasks.clear()
        super()._reset(loader, first_iter)
        self._hand_out()

    def _next_epoch(self, loader: DataLoader) -> None:
        old, self._progress = self._progress, Progress(loader, self._num_workers, "again")
        self._progress.iterator, self._progress.base_seed = weakref.ref(self), self._seed
        self._progress.epoch, self._progress.notes = old.epoch + 1, old.notes
        loader._progress = self._progress
        self._pending, self._skip = None, 0

    def _say_inexact(self) -> None:
        resume, loader = self._resume, self._loader()
        if resume is None or resume.same_workers or loader.seed_per_sample:
            return
        if any(resume.state["worker_random"].values()):
            warnings.warn(
                f"the state is of {resume.state['workers']} workers, this loader has {loader.num_workers}: the "
                "index batches are the same, but random values of the data set are not; use the same "
                "num_workers, or seed_per_sample=True", ForebayWarning, stacklevel=6)

    # ---- Tasks ----

    def _next_index(self) -> Any:
        for _ in range(self._first):  # the worker whose turn it was
            next(self._worker_queue_idx_cycle)
        self._first = 0
        self._drawn_index = self._draw()
        return self._drawn_index

    def _try_put_index(self) -> None:
        if self._tasks_outstanding >= self._prefetch_factor * self._num_workers:
            return  # after a change
        number = self._send_idx
        super()._try_put_index()
        if self._send_idx != number:
            self._progress.indexes[number] = (self._task_info[number][0], self._drawn_index)

    def _hand_out(self) -> None:
        """Give workers as many tasks as there is memory for; without a measure, one."""
        while self._tasks:
            working = self._tasks_outstanding - len(self._tasks)
            if self._bounded and working > 0 and not self._fits(working + 1):
                return
            queue, task = self._tasks.pop(0)
            queue.put(task)

    def _fits(self, batches: int) -> bool:
        largest, stats = self._memory.largest, self._memory.transport.stats()
        return (self._memory.batches > 0
                and stats["held_bytes"] + batches * largest <= stats["limit_bytes"])

    def _get_data(self) -> Any:
        if self._tasks:
            self._hand_out()
        if self._bounded:
            self._check_held()
        return super()._get_data()

    def _check_held(self) -> None:
        """Raise if the batches that the caller holds leave no room for the next one."""
        stats, largest = self._memory.transport.stats(), self._memory.largest
        if not largest or stats["held_bytes"] + largest <= stats["limit_bytes"]:
            return
        if largest > stats["limit_bytes"]:
            return  # such batches travel torch's way, which is said
        raise _forebay.HeldError(
            f"a batch takes {largest / 2**20:.1f} MiB and batches of {stats['held_bytes'] / 2**20:.1f}"
            f" MiB are still held, but memory={stats['limit_bytes'] / 2**20:.1f} MiB has no room for "
            "one more: hold fewer batches, make them smaller, or raise memory=")

    def _next_data(self) -> Any:
        while True:
            data = super()._next_data()
            if type(data) is not Nothing:
                return data

    def _process_data(self, data: Any, worker_idx: int, *rest: Any) -> Any:
        note = None
        if type(data) is WithNote:
            note, data = data.note, data.batch
        progress = self._progress
        progress.note(worker_idx, note)
        data = super()._process_data(data, worker_idx, *rest)
        for number in [number for number in progress.indexes if number not in self._task_info]:
            del progress.indexes[number]
        if self._tasks:
            self._hand_out()
        self._say_refused()
        if note is not None and note.errors:
            self._loader()._record(note.errors)
        return data

    def _say_refused(self) -> None:
        """Once: tensors came torch's way, because they found no room."""
        memory = self._memory
        if memory is None or memory.said or not memory.transport.stats()["refused"]:
            return
        memory.said = True
        limit = memory.transport.stats()["limit_bytes"] / 2**20
        whose = f"memory={limit:.1f} MiB" if self._bounded else f"the {limit:.1f} MiB for batches (memory=None)"
        warnings.warn(
            f"a tensor of a batch did not fit into {whose} and came in ordinary shared memory, beyond that "
            "limit: hold fewer batches, raise memory=, or make batches smaller", ForebayWarning, stacklevel=5)

    # ---- Changes in mid-epoch ----

    def _change(self, loader: DataLoader) -> None:
        self._bounded = loader.memory is not None and self._memory is not None
        self._prefetch_factor = loader.prefetch_factor
        self._try_put_index_all()

    def _try_put_index_all(self) -> None:
        before = -1
        while before != self._send_idx and not self._progress.finished:
            before = self._send_idx
            self._try_put_index()
        self._hand_out()

    # ---- The end ----

    def _describe_workers(self) -> list[dict[str, int]]:
        return [{"pid": worker.pid, "memory_bytes": _death.memory_of(worker.pid)}
                for worker in self._workers if worker.pid is not None and worker.is_alive()]

    def _shutdown_workers(self) -> None:
        self._tasks.clear()
        super()._shutdown_workers()
        if getattr(self, "_shutdown", False) and self._memory is not None:
            for worker in self._workers:
                if worker.pid is not None and not worker.is_alive():
                    self._memory.transport.reclaim(worker.pid)
