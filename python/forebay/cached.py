"""forebay.Cached: any map-style data set, its samples in one cache for all processes of the node."""

from __future__ import annotations

import atexit
import copyreg
import io
import math
import operator
import os
import pickle
import sys
import time
import warnings
import weakref
from collections.abc import Mapping

from . import _forebay
from ._settings import parse_size
from .loader import ForebayWarning

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_MB = 2**20
_IN_BAND_BYTES = 256  # buffers below this are cheaper inside the pickle
_HOPELESS = 16        # so many samples that cannot be pickled, and none that can: stop trying
_TAG_BYTES = 200      # who made a data set, kept with every sample
_MISSING = object()

# What launchers say of the run; all its ranks have the same.
_RUN = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT",
        "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

_made = 0  # wrappers without a name that this process made under a launcher
_alive: weakref.WeakSet[Cached] = weakref.WeakSet()


class Cached:
    """A map-style data set whose samples are kept in memory, once for all workers and ranks.

    >>> train = forebay.Cached(MyDataset(), "50GB")
    >>> loader = torch.utils.data.DataLoader(train, batch_size=8, shuffle=True, num_workers=12)

    dataset:   anything with __getitem__ and __len__; its samples: anything that can be pickled
    size:      of all processes together, index included ("50GB" of 1000, "50GiB" of 1024)
    policy:    "fill" keeps what came first: as good as any where every sample is used once an
               epoch. "lru" keeps what was used last: for orders that repeat some samples often
    name:      processes that give the same one share; without it the ranks of a launcher's run do,
               and every process that got this object by fork or pickle
    transform: a function of the sample; runs after the cache, for what must stay random
    quiet:     do not print statistics after each epoch (every len(dataset) samples)

    What is found is a private copy, as writable as the original. Everything else (attributes, the
    exceptions of the data set) passes through.
    """

    dataset: Any

    def __init__(self, dataset: Any, size: int | str, policy: str = "fill", name: str | None = None,
                 transform: Callable[[Any], Any] | None = None, quiet: bool = False) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(f"forebay.Cached wraps data sets with __getitem__ and __len__; "
                            f"{type(dataset).__name__} is not one")
        if policy not in ("fill", "lru"):
            raise ValueError(f'policy is "fill" or "lru", not {policy!r}')
        if transform is not None and not callable(transform):
            raise TypeError(f"transform is a function of a sample, not {transform!r}")
        items = len(dataset)
        own = self.__dict__
        own["dataset"] = dataset
        own["_identity"] = _identity(dataset, items, name)
        own["_items"] = items
        own["_size"] = parse_size(size)
        own["_policy"] = policy
        own["_label"] = name or type(dataset).__name__
        own["_tag"] = _tag(dataset, items, sys._getframe(1))
        own["_transform"] = transform
        own["_quiet"] = bool(quiet)
        own["_pid"] = os.getpid()
        self._begin()
        if items:
            self._open()
        _alive.add(self)

    def _begin(self) -> None:
        """What belongs to this process alone."""
        self.__dict__.update(_native=None, _checked=0, _failed=0, _kept=0, _lap=False,
                             _whole_batches=False)

    def _open(self) -> Any:
        native = _forebay.Cache(self._identity, self._items, self._size, self._policy)
        self.__dict__["_native"] = native
        self._tell(native)
        return native

    # ---- samples ----

    def __getitem__(self, index: Any) -> Any:
        sample = self._sample(index)
        return sample if self._transform is None else self._transform(sample)

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        """What torch's DataLoader asks for a batch; a data set's own __getitems__ loads what is not
        there."""
        several = getattr(self.dataset, "__getitems__", None)
        if self._whole_batches:
            samples = several(indices)  # type: ignore[misc] # it was callable then
        elif not callable(several):
            samples = [self._sample(index) for index in indices]
        else:
            samples = self._samples(indices, several)
        if self._transform is None:
            return samples
        return [self._transform(sample) for sample in samples]

    def __len__(self) -> int:
        return len(self.dataset)

    def _sample(self, index: Any) -> Any:
        number = self._number(index)
        if number is None:
            return self.dataset[index]
        sample = self._find(number)
        if sample is _MISSING:
            began = time.monotonic_ns()
            sample = self.dataset[index]
            self._keep(number, sample, time.monotonic_ns() - began)
        if self._lap:
            self._end_epoch()
        return sample

    def _samples(self, indices: Sequence[Any], several: Callable[[Sequence[Any]], Any]) -> Any:
        numbers = [self._number(index) for index in indices]
        samples = [_MISSING if number is None else self._find(number) for number in numbers]
        missing = [at for at, sample in enumerate(samples) if sample is _MISSING]
        if missing:
            samples = self._load(indices, numbers, samples, missing, several)
        if self._lap:
            self._end_epoch()
        return samples

    def _load(self, indices: Sequence[Any], numbers: list, samples: list, missing: list[int],
              several: Callable[[Sequence[Any]], Any]) -> Any:
        began = time.monotonic_ns()
        loaded = several([indices[at] for at in missing])
        load_ns = (time.monotonic_ns() - began) // len(missing)
        if not isinstance(loaded, (list, tuple)) or len(loaded) != len(missing):
            self._warn(f"{type(self.dataset).__name__}.__getitems__ gives whole batches, not lists "
                       "of samples: nothing of them is cached")
            self.__dict__["_whole_batches"] = True
            return several(indices)
        for at, sample in zip(missing, loaded):
            samples[at] = sample
            if numbers[at] is not None:
                self._keep(numbers[at], sample, load_ns)
        return samples

    def _number(self, index: Any) -> int | None:
        """The item's number; None for what only the data set understands (slices, keys, -1)."""
        try:
            number = operator.index(index)
        except TypeError:
            return None
        return number if 0 <= number < self._items else None

    def _find(self, number: int) -> Any:
        native = self._native or self._open()
        parts = native.get(number)
        if native.lap:
            self.__dict__["_lap"] = True
        if native.pending:
            self._tell(native)
        if parts is None:
            return _MISSING
        if self._checked != os.getpid():
            self._check(number, parts)
        try:
            return pickle.loads(parts[1], buffers=parts[2:])
        except Exception as error:
            self._warn(f"sample {number} of {self._label} came back from the cache, but cannot be "
                       f"unpickled; it is loaded again instead: {type(error).__name__}: {error}")
            return _MISSING

    def _keep(self, number: int, sample: Any, load_ns: int) -> None:
        if self._failed >= _HOPELESS and not self._kept:
            return
        try:
            stream, buffers = dump(sample)
        except Exception as error:
            if not self._failed:
                self._warn(f"samples of {self._label} cannot be pickled, so they are not cached "
                           f"(sample {number}: {type(error).__name__}: {error})")
            self.__dict__["_failed"] += 1
            return
        self.__dict__["_kept"] += 1
        native = self._native or self._open()
        native.put(number, load_ns, (self._tag, stream, *buffers))

    def _check(self, number: int, parts: list) -> None:
        """The first sample a process finds is compared with its own: two data sets that meet in one
        cache by mistake, or one that is random, are an error, not a riddle."""
        own = self.dataset[number]
        stream, buffers = dump(own)
        if parts[1] != stream or not _same_bytes(parts[2:], buffers):
            # The same values may be pickled in another way: sets, shared strings.
            if not same(pickle.loads(parts[1], buffers=parts[2:]),
                        pickle.loads(bytes(stream), buffers=[bytearray(one) for one in buffers])):
                raise _forebay.BadDataError(
                    f"sample {number} in the cache of {self._label} is not what this process gets: "
                    f"it is from {parts[0].decode(errors='replace')}; here is "
                    f"{self._tag.decode(errors='replace')}, in process {os.getpid()}. Two data sets "
                    "must not share one cache: give each its own name=. If the data set itself is "
                    "random, do that part in transform=, which runs after the cache.")
        self.__dict__["_checked"] = os.getpid()

    # ---- what is measured, and control ----

    def cache_stats(self) -> dict[str, Any]:
        """Items, bytes, limit_bytes, hits, misses, hit_rate (None before the first use), evictions,
        processes: of all processes together. `expected` is what each policy gives in an epoch that
        uses every sample once, with what fits now."""
        stats: dict[str, Any] = dict(self._stats())
        stats.pop("lap_hits")
        stats.pop("lap_misses")
        uses = stats["hits"] + stats["misses"]
        stats["hit_rate"] = stats["hits"] / uses if uses else None
        stats["policy"] = self._policy
        stats["expected"] = expected(stats, self._items)
        return stats

    def print_cache_stats(self) -> None:
        """Size, memory and hit rate, in the words of the log readers that exist."""
        self._print(self._stats())

    def clear(self) -> None:
        """Drop all samples, for all processes, and give the memory back."""
        if self._items:
            (self._native or self._open()).clear()

    def resize(self, size: int | str) -> None:
        """Change the size while it runs, for all processes; within a quarter of a second."""
        self.__dict__["_size"] = parse_size(size)
        if self._items:
            (self._native or self._open()).resize(self._size)

    def _stats(self, lap: bool = False) -> dict[str, int]:
        if not self._items:
            return dict.fromkeys(("items", "bytes", "limit_bytes", "hits", "misses", "evictions",
                                  "processes", "lap_hits", "lap_misses"), 0)
        return (self._native or self._open()).stats(lap)

    def _print(self, stats: Mapping[str, int]) -> None:
        print("\n".join(report(self._label, self._policy, stats, self._items)), flush=True)

    def _end_epoch(self) -> None:
        self.__dict__["_lap"] = False
        if not self._quiet:
            self._print(self._stats(True))

    def _at_exit(self) -> None:
        """The last epoch, if it was shorter than the data set (drop_last, a Subset)."""
        if self._native is None or self._quiet or self._pid != os.getpid():
            return
        stats = self._native.stats(False)
        uses = stats["hits"] + stats["misses"]
        if uses % self._items >= self._items / 2:
            stats = self._native.stats(True)
            if stats["lap_hits"] + stats["lap_misses"]:
                self._print(stats)

    def _tell(self, native: Any) -> None:
        for level, line in native.lines():
            if level > 0:
                self._warn(line)

    def _warn(self, text: str) -> None:
        warnings.warn(text, ForebayWarning, stacklevel=4)

    # ---- as the data set itself ----

    def __getattr__(self, name: str) -> Any:
        if "dataset" not in self.__dict__ or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__ and hasattr(self.dataset, name):
            setattr(self.dataset, name, value)
        else:
            object.__setattr__(self, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.dataset)})

    def __getstate__(self) -> dict[str, Any]:
        own = ("_native", "_checked", "_failed", "_kept", "_lap", "_whole_batches")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"forebay.Cached({self.dataset!r}, {self._size}, policy={self._policy!r})"


@atexit.register
def _print_last() -> None:
    for cached in list(_alive):
        cached._at_exit()


# ---- who shares with whom ----

def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _type_name(dataset: Any) -> str:
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"


def _identity(dataset: Any, items: int, name: str | None) -> str:
    global _made
    if name is not None:
        return f"name:{name}"
    world = _first(_WORLD)
    run = [f"{key}={os.environ[key]}" for key in _RUN if os.environ.get(key)]
    if world is None or not world.isdigit() or int(world) < 2 or not run or _first(_RANK) is None:
        return "random:" + os.urandom(16).hex()
    _made += 1
    return f"run:{';'.join(run)}:{_made}:{_type_name(dataset)}:{items}"


def _tag(dataset: Any, items: int, frame: Any) -> bytes:
    """Who made it, for a person."""
    rank = _first(_RANK)
    place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    where = f"process {os.getpid()}" + (f", rank {rank}" if rank is not None else "")
    text = f"{_type_name(dataset)} of {items} samples, made at {place} ({where})"
    return text.encode(errors="replace")[:_TAG_BYTES]


# ---- samples as bytes ----

def dump(sample: Any) -> tuple[Any, list[memoryview]]:
    """The pickle, and the arrays' own memory, not copied."""
    buffers: list[memoryview] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    torch = sys.modules.get("torch")
    if torch is None:
        return pickle.dumps(sample, protocol=5, buffer_callback=keep_in_band), buffers
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5, buffer_callback=keep_in_band)
    pickler.dispatch_table = {**copyreg.dispatch_table, torch.Tensor: _reduce_tensor}
    pickler.dump(sample)
    return stream.getbuffer(), buffers


def _reduce_tensor(tensor: Any) -> Any:
    """A plain tensor by its memory: torch's own way copies it more than once, and what it gives
    torch's workers would be shared memory. Others are left to torch."""
    torch = sys.modules["torch"]
    if (tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized
            or tensor.grad_fn is not None or tensor.is_conj() or tensor.is_neg()
            or tensor.__dict__):
        return tensor.__reduce_ex__(5)
    flat, strides = tensor.detach(), None
    if not flat.is_contiguous():
        if _is_dense(flat):
            strides = tuple(flat.stride())
            flat = flat.as_strided((flat.numel(),), (1,))
        else:
            flat = flat.contiguous()
    try:
        raw = flat.reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, TypeError):  # a type of less than a byte, or one that NumPy may not see
        return tensor.__reduce_ex__(5)
    return make_tensor, (pickle.PickleBuffer(raw), tensor.dtype, tuple(tensor.shape), strides,
                         tensor.requires_grad)


def _is_dense(tensor: Any) -> bool:
    """Do its elements fill their memory, each once, in whatever order (channels last)?"""
    expected_stride = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1 and stride != expected_stride:
            return False
        expected_stride *= size
    return True


def make_tensor(buffer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None,
                requires_grad: bool) -> Any:
    """The tensor over the memory that was read; pickles name this function."""
    import torch

    if 0 in shape:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        flat = torch.frombuffer(buffer, dtype=dtype)
        tensor = flat.view(shape) if strides is None else flat.as_strided(shape, strides)
    return tensor.requires_grad_() if requires_grad else tensor


def _same_bytes(left: Sequence[Any], right: Sequence[Any]) -> bool:
    import numpy

    return len(left) == len(right) and all(
        numpy.array_equal(numpy.frombuffer(a, numpy.uint8), numpy.frombuffer(b, numpy.uint8))
        for a, b in zip(left, right))


def same(a: Any, b: Any) -> bool:
    """Equal, arrays bit for bit, however they are nested."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if isinstance(a, (str, bytes, bytearray, int, complex, set, frozenset, type(None))):
        return a == b
    if hasattr(a, "tobytes") and hasattr(a, "dtype"):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return same(a.tolist(), b.tolist()) if a.dtype.hasobject else a.tobytes() == b.tobytes()
    if hasattr(a, "__array__"):  # tensors
        one, two = dump(a), dump(b)
        return bytes(one[0]) == bytes(two[0]) and _same_bytes(one[1], two[1])
    if hasattr(a, "__dict__") and vars(a):
        return same(vars(a), vars(b))
    return bool(a == b) or bytes(dump(a)[0]) == bytes(dump(b)[0])


# ---- statistics ----

def expected(stats: Mapping[str, int], items: int) -> dict[str, float] | None:
    """What each policy gives where every sample is used once an epoch; None before anything is
    known of their size. LRU keeps just what will be needed last."""
    if not stats["items"] or not items:
        return None
    each = stats["bytes"] / stats["items"]
    free = max(0, stats["limit_bytes"] - stats["bytes"])
    share = min(1.0, (stats["items"] + (free // each if free >= 2 * each else 0)) / items)
    lru = share + (1 - share) * math.log(1 - share) if share < 1 else 1.0
    return {"fill": share, "lru": max(0.0, lru)}


def report(label: str, policy: str, stats: Mapping[str, int], items: int) -> list[str]:
    """The lines of print_cache_stats; MB are 2^20 there."""
    uses = stats["hits"] + stats["misses"]
    rate = f"{stats['hits'] / uses:.2%}" if uses else "n/a"
    lines = [f"[{label}] Cache Stats:",
             f"  - Size: {stats['items']} items",
             f"  - Memory: {stats['bytes'] / _MB:.1f} / {stats['limit_bytes'] / _MB:.1f} MB",
             f"  - Hit Rate: {rate} ({stats['hits']} hits / {stats['misses']} misses)"]
    lap = stats["lap_hits"] + stats["lap_misses"]
    if lap:
        lines.append(f"  - Last Epoch: {stats['lap_hits'] / lap:.2%} ({stats['lap_hits']} hits / "
                     f"{stats['lap_misses']} misses)")
    rates = expected(stats, items)
    if rates is not None:
        other = "lru" if policy == "fill" else "fill"
        lines.append(f"  - Policy: {policy}, {rates[policy]:.2%} expected with every sample once an "
                     f"epoch; {other} would give {rates[other]:.2%}")
    return lines
