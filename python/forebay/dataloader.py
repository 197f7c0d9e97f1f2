"""forebay.DataLoader: torch's DataLoader, its batches in memory that is used again."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from ._arrays import import_torch
from ._settings import parse_size
from .loader import ForebayWarning

import_torch("forebay.DataLoader")

import torch.utils.data  # noqa: E402

from ._dataloader_iter import MultiProcessIter, SingleProcessIter  # noqa: E402
from ._progress import Progress, Resume  # noqa: E402
from ._samples import MAX_LISTED, Onward, Samples  # noqa: E402
from ._sending import Memory, Sending  # noqa: E402

if TYPE_CHECKING:
    from typing import Any


class DataLoader(torch.utils.data.DataLoader):
    """torch.utils.data.DataLoader: the same arguments, the same batches, another transport.

    >>> from forebay import DataLoader
    >>> loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=4)

    num_workers: also "auto": one for each CPU that this process may use, at most 8
    memory: bytes of the batches that are in flight or held by the caller ("8GB"). If the caller holds
            so many that the next does not fit, forebay.HeldError says so. None: a quarter of the
            memory that is free now; what does not fit travels torch's way
    cache:  bytes of a forebay.Cached under it ("50GB"); `dataset` is then that Cached
    device: batches arrive there, through a forebay.DeviceLoader
    seed_per_sample: random, numpy and torch are seeded anew for each sample, from the loader's seed,
            the epoch and the index. Values then do not depend on the number of workers
    on_error: "fail", "skip" (leave a bad sample out) or "replace" (its neighbour in the batch instead);
            `errors` lists them as (index, text)
    max_errors: so many are allowed; one more is an error. None: any number
    """

    def __init__(self, *args: Any, memory: int | str | None = None, cache: int | str | None = None,
                 device: Any = None, seed_per_sample: bool = False, on_error: str = "fail",
                 max_errors: int | None = None, **keywords: Any) -> None:
        limit = 0 if memory is None else parse_size(memory)
        if keywords.get("num_workers") == "auto":
            keywords["num_workers"] = _automatic_workers()
        elif len(args) > 5 and args[5] == "auto":
            args = (*args[:5], _automatic_workers(), *args[6:])
        if cache is not None:
            args, keywords = _with_cache(cache, args, keywords)
        super().__init__(*args, **keywords)
        self.memory, self.cache, self.device = memory, cache, device
        self.seed_per_sample, self.on_error, self.max_errors = seed_per_sample, on_error, max_errors
        self.errors: list[tuple[Any, str]] = []
        self.error_count = 0
        self._check_options()
        self._progress: Progress | None = None
        self._resume: Resume | None = None
        self._early: Any = None  # made by state_dict() before the first iter()
        self._wrap_collate(limit)

    def _check_options(self) -> None:
        if self.on_error not in ("fail", "skip", "replace"):
            raise ValueError(f"on_error is {self.on_error!r}, but should be 'fail', 'skip' or 'replace'")
        asked = [name for name, on in (("seed_per_sample", self.seed_per_sample),
                                       ("on_error", self.on_error != "fail")) if on]
        if asked and isinstance(self.dataset, torch.utils.data.IterableDataset):
            raise ValueError(f"{asked[0]} needs a data set with __getitem__, but {_name(self.dataset)} is "
                             "an IterableDataset, whose samples have no index: remove the option")
        if asked and not hasattr(self.dataset, "__getitem__"):
            raise ValueError(f"{asked[0]} reads samples one by one with __getitem__, but "
                             f"{_name(self.dataset)} has none: add it, or remove the option")

    def _wrap_collate(self, limit: int) -> None:
        if not isinstance(self.collate_fn, Sending):  # else: of a loader that this one was rebuilt from
            self.collate_fn = Sending(self.collate_fn, Memory(limit))
        if self.on_error != "fail":
            self.collate_fn.on_error = self.on_error

    # ---- Iterate ----

    def __iter__(self) -> Any:
        if self.device is None:
            return self._host_iter()
        from .device import DeviceLoader

        return iter(DeviceLoader(_OnHost(self), self.device))

    def _host_iter(self) -> Any:
        early, self._early = self._early, None
        if early is not None:
            return early
        kept = getattr(self, "_iterator", None)
        if kept is not None and (self._resume is not None or kept._num_workers != self.num_workers):
            kept._shutdown_workers()
            self._iterator = None
        return super().__iter__()

    def _get_iterator(self) -> Any:
        self._wrap_collate(0 if self.memory is None else parse_size(self.memory))
        resume, self._resume = self._resume, None
        if self.num_workers == 0:
            return SingleProcessIter(self, resume)
        self.check_worker_number_rationality()
        return MultiProcessIter(self, resume)

    def _samples(self, resume: Resume | None) -> Any:
        """The data set as workers shall see it."""
        if self._dataset_kind == torch.utils.data._DatasetKind.Iterable:
            if resume is None or not (resume.counts or resume.worker_dataset):
                return self.dataset
            return self._stream(resume)
        if self.seed_per_sample or self.on_error != "fail":
            return Samples(self.dataset, self.seed_per_sample, self.on_error != "fail")
        return self.dataset

    def _stream(self, resume: Resume) -> Onward:
        if not resume.same_workers:
            raise ValueError(f"this state is of {resume.state['workers']} workers, but num_workers is "
                             f"{self.num_workers}: the place of an IterableDataset is known for each worker, "
                             "so use the same number")
        skip = {}
        for worker, batches in resume.counts.items():
            if worker not in resume.worker_dataset:
                skip[worker] = batches * (self.batch_size or 1)
        if skip:
            warnings.warn(f"{_name(self.dataset)} has no state_dict(), so {sum(skip.values())} samples are "
                          "read and dropped to come to the place of the state", ForebayWarning, stacklevel=5)
        return Onward(self.dataset, skip, resume.worker_random)

    def _record(self, bad: list[Any]) -> None:
        """Count bad samples; raise if there are too many."""
        self.error_count += len(bad)
        self.errors.extend((one.index, one.text) for one in bad[:MAX_LISTED - len(self.errors)])
        if self.max_errors is not None and self.error_count > self.max_errors:
            last = bad[-1]
            raise RuntimeError(
                f"{self.error_count} samples could not be loaded, more than max_errors={self.max_errors}; "
                f"the last one was sample {last.index}: {last.text}")

    # ---- State ----

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch is, counted in batches that were yielded; plain values, so JSON takes it."""
        if self._progress is None:
            self._early = self._host_iter()
        assert self._progress is not None
        return self._progress.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iter() goes on where the state was taken. {}: it starts anew."""
        self._early = None
        self._resume = Resume(state, self) if state else None

    def set(self, workers: int | None = None, prefetch: int | None = None,
            memory: int | str | None = None) -> None:
        """Change prefetch and memory now, workers from the next epoch on. Which samples are in which
        batch stays as it is.

        workers:  processes
        prefetch: batches in flight, of all workers together
        memory:   as at the start; at most twice of what the loader was made with
        """
        for name, value in (("workers", workers), ("prefetch", prefetch)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is {value!r}, but should be a whole number of at least 1")
        if self.num_workers == 0 and (workers or prefetch):
            raise ValueError("this loader has num_workers=0, so it has no workers that could be changed: "
                             "make it with num_workers of 1 or more")
        if memory is not None:
            self.collate_fn.memory.transport.set_limit(parse_size(memory))
            self.memory = memory
        if prefetch is not None:
            self.prefetch_factor = -(-prefetch // (workers or self.num_workers))
        if workers is not None:
            self.num_workers = workers
        running = self._progress.iterator() if self._progress is not None else None
        if running is not None and running._num_workers > 0:
            running._change(self)

    def stats(self) -> dict[str, Any]:
        """Bytes of the transport (limit, used, held by this process, resident), batches received
        and the largest of them, how often there was no room, workers and their memory, bad samples."""
        memory = self.collate_fn.memory
        found: dict[str, Any] = {"errors": self.error_count}
        if memory is not None:
            found.update(memory.transport.stats(), batches=memory.batches,
                         largest_batch_bytes=memory.largest)
        running = self._progress.iterator() if self._progress is not None else None
        found["workers"] = [] if running is None else running._describe_workers()
        found["wait_s"] = 0.0 if self._progress is None else self._progress.wait_s
        return found


class _OnHost:
    """A loader with device=, as its DeviceLoader sees it."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Any:
        return self._loader._host_iter()

    def __len__(self) -> int:
        return len(self._loader)


def _automatic_workers() -> int:
    return max(1, min(8, len(os.sched_getaffinity(0))))


def _with_cache(cache: int | str, args: tuple[Any, ...],
                keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from .cached import Cached

    dataset = args[0] if args else keywords.get("dataset")
    if dataset is None or isinstance(dataset, Cached):
        return args, keywords
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise ValueError(f"cache= keeps samples by their index, but {_name(dataset)} is an IterableDataset, "
                         "whose samples have none: remove cache=")
    cached = Cached(dataset, cache, quiet=True)
    return ((cached, *args[1:]), keywords) if args else (args, {**keywords, "dataset": cached})


def _name(dataset: Any) -> str:
    return type(dataset).__qualname__
