"""Batches and samples in device memory, for any loader and any data set, through torch.

DeviceLoader copies batches ahead of the training step; DeviceDataset keeps samples on the device.
Both work with device="cpu", too.
"""

from __future__ import annotations

import atexit
import collections
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ._ahead import END, Ahead
from ._arrays import import_torch
from ._settings import parse_size
from .loader import trim_devices

_MB = 2**20

Result = TypeVar("Result")


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same nesting of dicts, lists, tuples and dataclasses, `function` applied to what is in
    it."""
    if isinstance(tree, Mapping):
        mapped = {key: map_leaves(function, value) for key, value in tree.items()}
        return mapped if type(tree) is dict else _rebuild(tree, mapped)
    if isinstance(tree, tuple):
        parts = [map_leaves(function, value) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else _rebuild(tree, tuple(parts))
    if isinstance(tree, list):
        return _rebuild(tree, [map_leaves(function, value) for value in tree])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        changes = {field.name: map_leaves(function, getattr(tree, field.name))
                   for field in dataclasses.fields(tree) if field.init}
        return dataclasses.replace(tree, **changes)
    return function(tree)


def _rebuild(like: Any, plain: Any) -> Any:
    """`plain` as the type of `like`, if that type lets itself be made so."""
    if type(like) is type(plain):
        return plain
    try:
        return type(like)(plain)
    except TypeError:
        return plain


def leaves(tree: Any) -> list[Any]:
    """All that is in a nesting."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def _as_tensor(leaf: Any, torch: Any) -> Any:
    """Arrays as tensors over the same memory; anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    if hasattr(leaf, "__array_interface__"):
        return _array_as_tensor(leaf, torch)
    if hasattr(leaf, "__dlpack__") and not hasattr(leaf, "to"):
        return torch.from_dlpack(leaf)
    return leaf


def _array_as_tensor(array: Any, torch: Any) -> Any:
    if array.dtype.name == "bfloat16":
        return _array_as_tensor(array.view("uint16"), torch).view(torch.bfloat16)
    if array.dtype.kind not in "biufc":
        return array  # text, dates, objects: no device has them
    if not array.ndim:
        return torch.as_tensor(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class _Mover:
    """Copies a nesting to the device: on CUDA through a stream of its own, without blocking."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        # The sources of copies that may still be under way, with the event behind each copy.
        self.under_way: collections.deque = collections.deque()

    def _move_leaf(self, leaf: Any) -> Any:
        tensor = _as_tensor(leaf, self.torch)
        if isinstance(tensor, self.torch.Tensor):
            if self.stream is None:
                return tensor.to(self.device)
            if tensor.device.type == "cpu" and not tensor.is_pinned():
                tensor = tensor.pin_memory()
            self.sources.append(tensor)
            return tensor.to(self.device, non_blocking=True)
        return tensor.to(self.device) if hasattr(tensor, "to") else tensor

    def move(self, batch: Any) -> tuple[Any, Any]:
        """(the batch on the device, the event behind its copy or None)."""
        if self.stream is None:
            return map_leaves(self._move_leaf, batch), None
        self.sources: list[Any] = [batch]
        with self.torch.cuda.stream(self.stream):
            moved = map_leaves(self._move_leaf, batch)
            event = self.torch.cuda.Event()
            event.record(self.stream)
        self.under_way.append((event, self.sources))
        while self.under_way and self.under_way[0][0].query():
            self.under_way.popleft()
        return moved, event

    def arrive(self, moved: Any, event: Any) -> Any:
        """Let the consumer's stream wait for the copy, and the allocator know that it reads it."""
        if event is not None:
            stream = self.torch.cuda.current_stream(self.device)
            stream.wait_event(event)
            for leaf in leaves(moved):
                if isinstance(leaf, self.torch.Tensor) and leaf.is_cuda:
                    leaf.record_stream(stream)
        return moved


class _DevicePlace:
    """How far one iter() has come."""

    def __init__(self) -> None:
        self.state: Any = None
        self.done = False
        self.ahead: Any = None  # an Ahead, as soon as there is one


_device_loaders: weakref.WeakSet[DeviceLoader] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for loader in list(_device_loaders):
        loader._stop(wait_s=1.0)


class DeviceLoader:
    """Wraps any loader: a background thread copies its batches to the device ahead of the consumer.

    >>> for batch in forebay.DeviceLoader(loader, "cuda:0", prefetch=2):
    ...     step(batch)

    On CUDA the copies do not block: they run on a stream of their own, from pinned memory (pinned
    here if the loader did not), and each source is kept until its copy is done. Batches may be any
    nesting of dicts, lists, tuples and dataclasses; NumPy arrays and DLPack objects become tensors.
    Exceptions of the loader arrive in order. `len()` and attributes are the inner loader's;
    state_dict() is the inner state as of the last batch that came out here.
    """

    def __init__(self, loader: Iterable[Any], device: Any = "cuda", prefetch: int = 2) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1, not {prefetch!r}")
        self._torch = import_torch("DeviceLoader")
        self.loader = loader
        self.device = self._torch.device(device)
        self.prefetch = prefetch
        self._place: _DevicePlace | None = None
        _device_loaders.add(self)

    def __iter__(self) -> _DeviceIterator:
        self._stop()
        iterator = iter(self.loader)
        mover = _Mover(self._torch, self.device)
        place = _DevicePlace()
        save = getattr(self.loader, "state_dict", None)
        place.state = save() if save else None
        place.ahead = Ahead(lambda: next(iterator, END), save or (lambda: None), mover.move,
                            self.prefetch, "forebay-device")
        self._place = place
        return _DeviceIterator(self, place, mover)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def state_dict(self) -> Any:
        """The inner loader's state as of the last batch that was yielded here."""
        place = self._place
        if place is not None and not place.done:
            return place.state
        return self.loader.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: Any) -> None:
        """Pass it to the inner loader; the next `iter()` goes on there."""
        self._stop()
        self._place = None
        self.loader.load_state_dict(state)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Stop the thread, and close the inner loader if it can be closed."""
        self._stop(wait_s=0.2)
        close = getattr(self.loader, "close", None)
        if close is not None:
            close()  # ends what the thread may still wait for
        self._stop(wait_s=2.0)

    def _stop(self, wait_s: float | None = None) -> None:
        place = self._place
        if place is not None and place.ahead is not None:
            place.ahead.stop(wait_s)

    def __enter__(self) -> DeviceLoader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class _DeviceIterator:
    def __init__(self, loader: DeviceLoader, place: _DevicePlace, mover: _Mover) -> None:
        self._loader = loader
        self._place = place
        self._mover = mover
        place.ahead.watch(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._place.done or self._loader._place is not self._place:
            raise StopIteration
        item = self._place.ahead.next(self._place)
        if item is END:
            self._place.done = True
            raise StopIteration
        return self._mover.arrive(*item)


# ---- Samples that live on the device ----

_device_datasets: weakref.WeakSet[DeviceDataset] = weakref.WeakSet()

_ROOM = 0.05  # of the device's memory that is left to the trainer before a sample is admitted


class DeviceDataset:
    """Wraps a map-style data set: samples that were asked for stay in device memory, bounded.

    >>> data = forebay.DeviceDataset(dataset, "cuda:0", size=5000)
    >>> data = forebay.DeviceDataset(dataset, "cuda:0", bytes="8GB", policy="lru", preload=True)

    size, bytes: how many samples, or how many bytes, may stay (5000 samples if neither is given)
    policy:      "fill" keeps what came first, the best there is when every sample is used once an
                 epoch; "lru" drops what was used longest ago
    preload:     fill it now, in the order of the indexes

    Memory comes from torch, so what is dropped here the trainer can use at once. When the device is
    short of memory the cache shrinks, and the run goes on. Samples are handed out as they are kept:
    do not change them in place. Use it in the training process (num_workers=0).
    """

    def __init__(self, dataset: Any, device: Any = "cuda", size: int | None = None,
                 bytes: int | str | None = None, policy: str = "fill",  # noqa: A002
                 preload: bool = False) -> None:
        if policy not in ("fill", "lru"):
            raise ValueError(f'policy is "fill" or "lru", not {policy!r}')
        if size is not None and size < 0:
            raise ValueError(f"size cannot be negative: {size!r}")
        self._torch = import_torch("DeviceDataset")
        self.dataset = dataset
        self.device = self._torch.device(device)
        self.policy = policy
        self.size = 5000 if size is None and bytes is None else size
        self.bytes = None if bytes is None else parse_size(bytes)
        self._lock = threading.RLock()
        self._kept: collections.OrderedDict[Any, tuple[Any, int]] = collections.OrderedDict()
        self._kept_bytes = 0
        self._hits = self._misses = self._trims = 0
        _device_datasets.add(self)
        if preload:
            self.preload()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        key = _key(index)
        with self._lock:
            kept = self._kept.get(key) if key is not None else None
            if kept is not None:
                self._hits += 1
                if self.policy == "lru":
                    self._kept.move_to_end(key)
                return kept[0]
            self._misses += 1
        sample = self._to_device(self.dataset[index])
        if key is not None:
            self._offer(key, sample)
        return sample

    def __getitems__(self, indexes: Iterable[Any]) -> list[Any]:
        return [self[index] for index in indexes]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __reduce__(self) -> Any:
        raise TypeError("a forebay.DeviceDataset lives in the process that trains and cannot be "
                        "pickled: use num_workers=0, or forebay.Cached for worker processes")

    def preload(self) -> int:
        """Fill it in the order of the indexes; how many samples there are then."""
        for index in range(len(self)):
            before = len(self._kept)
            if index not in self._kept:
                self._offer(index, self._to_device(self.dataset[index]), evict=False)
                if len(self._kept) == before:
                    break
        return len(self._kept)

    def clear(self) -> None:
        """Drop all samples."""
        self.trim(1.0)

    def trim(self, share: float = 0.5) -> int:
        """Drop this share of the samples, those first that would be missed least; the bytes."""
        with self._lock:
            before = self._kept_bytes
            for _ in range(min(len(self._kept), int(len(self._kept) * share) + (share < 1.0))):
                self._drop_one()
            return before - self._kept_bytes

    def cache_stats(self) -> dict[str, Any]:
        """Items, bytes, their limits, hits, misses and the hit rate (None before the first use)."""
        with self._lock:
            uses = self._hits + self._misses
            return {"policy": self.policy, "items": len(self._kept), "bytes": self._kept_bytes,
                    "limit_items": self.size, "limit_bytes": self.bytes, "hits": self._hits,
                    "misses": self._misses, "hit_rate": self._hits / uses if uses else None,
                    "trims": self._trims}

    def print_cache_stats(self) -> None:
        """The statistics, in words that existing log readers know."""
        stats = self.cache_stats()
        limit = "" if self.bytes is None else f" / {self.bytes / _MB:.1f}"
        rate = "n/a" if stats["hit_rate"] is None else f"{100 * stats['hit_rate']:.2f}%"
        print(f"[{type(self.dataset).__name__}] Cache Stats:\n"
              f"  - Size: {stats['items']} items\n"
              f"  - Memory: {stats['bytes'] / _MB:.1f}{limit} MB\n"
              f"  - Hit Rate: {rate} ({stats['hits']} hits / {stats['misses']} misses)")

    def _to_device(self, sample: Any) -> Any:
        """A copy on the device; when there is no room for it, in place of what was kept."""
        def move(leaf: Any) -> Any:
            tensor = _as_tensor(leaf, self._torch)
            if isinstance(tensor, self._torch.Tensor):
                # A copy even on the CPU: what is kept must not be the data set's own memory.
                return tensor.to(self.device, copy=True)
            return tensor.to(self.device) if hasattr(tensor, "to") else tensor

        for share in (0.5, 1.0):
            try:
                return map_leaves(move, sample)
            except _oom_errors(self._torch):
                self._give_way(share)
        return map_leaves(move, sample)  # nothing is kept now: if this fails it is not for the cache

    def _give_way(self, share: float) -> None:
        self.trim(share)
        self._trims += 1
        if self.device.type == "cuda":
            self._torch.cuda.empty_cache()

    def _is_short(self) -> bool:
        if self.device.type != "cuda":
            return False
        free, total = self._torch.cuda.mem_get_info(self.device)
        spare = (self._torch.cuda.memory_reserved(self.device)
                 - self._torch.cuda.memory_allocated(self.device))
        return free + spare < _ROOM * total

    def _offer(self, key: Any, sample: Any, evict: bool = True) -> None:
        sample_bytes = sum(leaf.numel() * leaf.element_size() for leaf in leaves(sample)
                           if isinstance(leaf, self._torch.Tensor))
        short = self._is_short()
        with self._lock:
            if short:
                self.trim(0.1)
                self._trims += 1
                return
            if key in self._kept or (self.bytes is not None and sample_bytes > self.bytes):
                return
            if not self._make_room(sample_bytes, evict and self.policy == "lru"):
                return
            self._kept[key] = (sample, sample_bytes)
            self._kept_bytes += sample_bytes

    def _make_room(self, sample_bytes: int, evict: bool) -> bool:
        while ((self.size is not None and len(self._kept) >= self.size)
               or (self.bytes is not None and self._kept_bytes + sample_bytes > self.bytes)):
            if not evict or not self._kept:
                return False
            self._drop_one()
        return True

    def _drop_one(self) -> None:
        """The one used longest ago; under "fill", which has no such thing, the newest."""
        _, (_, sample_bytes) = self._kept.popitem(last=self.policy == "fill")
        self._kept_bytes -= sample_bytes


def _key(index: Any) -> int | str | None:
    """What a sample is kept under; None for what is no plain index."""
    if isinstance(index, str):
        return index
    try:
        return index.__index__()
    except (AttributeError, TypeError):
        return None


def _oom_errors(torch: Any) -> tuple[type[BaseException], ...]:
    found = (getattr(torch, "OutOfMemoryError", None),
             getattr(torch.cuda, "OutOfMemoryError", None))
    return tuple({error for error in found if error is not None})


def retry_on_oom(fn: Callable[..., Result], *args: Any, **keywords: Any) -> Result:
    """fn(*args, **keywords); if the device runs out of memory, drop all device caches and call it
    once more.

    >>> loss = forebay.retry_on_oom(lambda: train_step(batch))
    """
    torch = import_torch("retry_on_oom")
    try:
        return fn(*args, **keywords)
    except _oom_errors(torch):
        pass  # outside the handler: its traceback would keep fn's tensors alive
    for dataset in list(_device_datasets):
        dataset.clear()
    trim_devices()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return fn(*args, **keywords)
