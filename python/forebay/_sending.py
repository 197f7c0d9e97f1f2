"""How a batch travels from a worker process to the trainer: in ranges of one memfd, used again.

`Sending` wraps a collate_fn. In a worker it returns a `_Parcel`, which torch's queue pickles: large
tensors and arrays stay in the shared memory and only their places are written; small ones go inside
the pickle. The trainer's unpickling makes the batch again, over the same memory. Where there is no
room, torch's own way is taken. So a plain torch DataLoader with this collate_fn works as well.
"""

from __future__ import annotations

import collections
import copyreg
import ctypes
import gc
import io
import os
import pickle
import signal
import threading
import weakref
from multiprocessing import context as mp_context
from multiprocessing import reduction
from typing import TYPE_CHECKING

import torch
from torch.utils.data import _utils

from . import _forebay, _progress, _samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SMALL = 64 * 1024  # bytes: below this a tensor inside the pickle is quicker; ranges are multiples

# The trainer's side: transports by the inode of their memfd.
_transports: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


class Memory:
    """One transport of this process, and what is known of the batches that came through it."""

    def __init__(self, limit: int, fd: int = -1) -> None:
        self.transport = _forebay.Transport(limit, fd)
        self.key = os.fstat(self.transport.fileno()).st_ino
        self.largest = 0   # bytes of the largest batch so far
        self.batches = 0
        self.said = False  # that there was no room
        _transports.setdefault(self.key, self)

    def take(self, shape: Any, dtype: torch.dtype) -> tuple[torch.Tensor, Any] | None:
        """A tensor over memory that is used again, and its range; None if there is no room."""
        count = 1
        for size in shape:
            count *= size
        memory = self.transport.take(count * dtype.itemsize)
        if memory is None:
            return None
        return torch.frombuffer(memory, dtype=dtype).view(shape), memory


def enter_worker() -> None:
    """In a worker process, once: end with the trainer, keep the heap, leave Ctrl-C to the trainer."""
    global _entered
    if _entered == os.getpid():
        return
    _entered = os.getpid()
    _forebay.enter_worker()
    if (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        # Not SIG_IGN: programs that the data set starts would inherit that.
        signal.signal(signal.SIGINT, lambda *_: None)


_entered = 0
_notes: _Notes | None = None  # in a worker of forebay.DataLoader


class _Notes:
    """What a worker adds to each batch: its random states if they changed, its data set's state."""

    def __init__(self) -> None:
        self.before: Any = _progress.get_random()

    def take(self, bad: list[Any]) -> _progress.Noted:
        states: Any = _progress.get_random()
        if _progress.same_random(states, self.before):
            states = None
        else:
            self.before = states
        dataset = _utils.worker.get_worker_info().dataset
        saved = dataset.state_dict() if _progress.is_stateful(dataset) else None
        return _progress.Noted(states, saved, bad)


def begin_notes() -> None:
    global _notes
    _notes = _Notes()


class WithNote:
    """A batch and its note, on the way to forebay.DataLoader's iterator."""

    __slots__ = ("batch", "note")

    def __init__(self, batch: Any, note: _progress.Noted) -> None:
        self.batch, self.note = batch, note

    def pin_memory(self, device: Any = None) -> WithNote:
        from torch.utils.data._utils.pin_memory import pin_memory

        return WithNote(pin_memory(self.batch, device), self.note)


class Nothing:
    """All samples of a batch were bad."""


class Sending:
    """A collate_fn whose results travel in shared memory that is used again."""

    def __new__(cls, collate_fn: Any, memory: Memory | None = None) -> Sending:
        return collate_fn if isinstance(collate_fn, cls) else super().__new__(cls)

    def __init__(self, collate_fn: Callable[[Any], Any], memory: Memory | None = None) -> None:
        if collate_fn is self:
            return
        self.collate_fn = collate_fn
        self.memory = memory
        self.on_error: str | None = None
        self.bad: list[Any] = []  # without workers: samples that were left out since the iterator looked

    def __call__(self, samples: Any) -> Any:
        bad: list[Any] = []
        if self.on_error is not None:
            samples, bad, any_left = _samples.sift(samples, self.on_error)
            if not any_left:
                return self._finish(Nothing(), {}, bad)
        return self._finish(*self._collate(samples), bad)

    def _collate(self, samples: Any) -> tuple[Any, dict[int, Any]]:
        made: dict[int, Any] = {}
        if self.collate_fn is _utils.collate.default_collate and self.memory is not None:
            batch = _utils.collate.collate(samples, collate_fn_map=_map(self.memory, made))
        else:
            batch = self.collate_fn(samples)
        return batch, made

    def _finish(self, batch: Any, made: dict[int, Any], bad: list[Any]) -> Any:
        if _utils.worker.get_worker_info() is None:
            self.bad.extend(bad)
            return batch
        enter_worker()
        if _notes is not None:
            batch = WithNote(batch, _notes.take(bad))
        return batch if self.memory is None else _Parcel(batch, self.memory, made)

    def __reduce__(self) -> Any:
        """Only a process that is being started gets the memory; elsewhere the collate_fn is all."""
        if self.memory is None or mp_context.get_spawning_popen() is None:
            return Sending, (self.collate_fn,)
        return _attach, (self.collate_fn, reduction.DupFd(self.memory.transport.fileno()), self.on_error)


def _attach(collate_fn: Any, descriptor: Any, on_error: str | None) -> Sending:
    fd = descriptor.detach()
    try:
        sending = Sending(collate_fn, Memory(0, fd))
    finally:
        os.close(fd)
    sending.on_error = on_error
    return sending


# ---- Collate into the shared memory ----

def _map(memory: Memory, made: dict[int, Any]) -> dict[Any, Any]:
    """torch's table as it is now, with tensors stacked straight into the shared memory."""
    table = dict(_utils.collate.default_collate_fn_map)
    theirs = table.get(torch.Tensor)
    if theirs is not _utils.collate.collate_tensor_fn:
        return table  # the user's own

    def stack(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        first = batch[0]
        if _stacks(batch):
            taken = memory.take((len(batch), *first.shape), first.dtype)
            if taken is not None:
                out, made[taken[0].data_ptr()] = taken
                return torch.stack(batch, 0, out=out)
        return theirs(batch, collate_fn_map=collate_fn_map)

    table[torch.Tensor] = stack
    return table


def _stacks(batch: Any) -> bool:
    """Plain tensors of one kind: elsewhere torch promotes types, records gradients or complains."""
    first = batch[0]
    if type(first) is not torch.Tensor or first.layout != torch.strided or first.is_quantized:
        return False
    if first.is_nested or first.numel() * first.element_size() * len(batch) < SMALL:
        return False
    return all(type(x) is torch.Tensor and x.dtype == first.dtype and x.shape == first.shape
               and x.device.type == "cpu" and not x.requires_grad for x in batch)


# ---- To bytes and places, and back ----

class _Parcel:
    """A batch on its way. Pickled by the thread of torch's queue."""

    def __init__(self, batch: Any, memory: Memory, made: dict[int, Any]) -> None:
        self.batch, self.memory, self.made = batch, memory, made

    def __reduce__(self) -> Any:
        pieces: list[Any] = []
        arrays: list[Any] = []
        stream = io.BytesIO()
        try:
            _Pickler(stream, self.memory, self.made, pieces, arrays).dump(self.batch)
        except Exception:
            return _same, (self.batch,)  # torch's way, with torch's error
        places = [piece if type(piece) is bytearray else piece.send() for piece in pieces]
        return _unpack, (self.memory.key, stream.getvalue(), places,
                         [array.send() for array in arrays])


def _same(batch: Any) -> Any:
    return batch


def _unpack(key: int, text: bytes, places: list[Any], arrays: list[Any]) -> Any:
    memory = _transports.get(key)
    if memory is None:
        raise _forebay.StoppedError("this batch came through a forebay.DataLoader that is gone")
    pieces = [piece if type(piece) is bytearray else memory.transport.adopt(*piece)
              for piece in places]
    buffers = [memory.transport.adopt(*array) for array in arrays]
    memory.batches += 1
    memory.largest = max(memory.largest, sum(-(-place[1] // SMALL) * SMALL
                                             for place in (*places, *arrays)
                                             if type(place) is tuple))
    before, _reading.pieces, _reading.storages = _reading.__dict__.copy(), pieces, {}
    try:
        return pickle.loads(text, buffers=buffers)
    finally:
        _reading.__dict__.clear()
        _reading.__dict__.update(before)


class _Pickler(pickle.Pickler):
    """Tensors as (piece, type, sizes); what shares a storage shares a piece, as in torch."""

    def __init__(self, stream: Any, memory: Memory, made: dict[int, Any],
                 pieces: list[Any], arrays: list[Any]) -> None:
        super().__init__(stream, 5, buffer_callback=self._buffer)
        # What torch and the user registered for multiprocessing.
        self.dispatch_table = collections.ChainMap(reduction.ForkingPickler._extra_reducers,
                                                   copyreg.dispatch_table)
        self._memory, self._made, self._pieces, self._arrays = memory, made, pieces, arrays
        self._storages: dict[int, int] = {}

    def _piece(self, address: int, nbytes: int) -> int | None:
        """The number of the piece that holds these bytes; None: no room."""
        if nbytes < SMALL:
            piece: Any = bytearray((ctypes.c_char * nbytes).from_address(address))
        else:
            piece = self._made.pop(address, None) or self._memory.transport.store(address, nbytes)
        if piece is None:
            return None
        self._pieces.append(piece)
        return len(self._pieces) - 1

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.readonly or raw.nbytes < SMALL:
            return True  # inside the pickle
        memory = self._memory.transport.take(raw.nbytes)
        if memory is None:
            return True
        memoryview(memory)[:] = raw
        self._arrays.append(memory)
        return False

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not torch.Tensor or not _travels(obj):
            return NotImplemented
        storage = obj.untyped_storage()
        address = storage.data_ptr()
        number = self._storages.get(address)
        if number is None:
            number = self._piece(address, storage.nbytes())
            if number is None:
                return NotImplemented
            self._storages[address] = number
        return _tensor, (number, obj.dtype, obj.storage_offset(), tuple(obj.shape),
                         obj.stride())


# The pieces of the parcel that is being unpickled; torch's pinning has a thread of its own.
_reading = threading.local()


def _storage(number: int) -> torch.UntypedStorage:
    storage = _reading.storages.get(number)
    if storage is None:
        storage = torch.frombuffer(_reading.pieces[number], dtype=torch.uint8).untyped_storage()
        _reading.storages[number] = storage
    return storage


def _tensor(number: int, dtype: torch.dtype, offset: int, shape: tuple[int, ...],
            stride: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(0, dtype=dtype).set_(_storage(number), offset, shape, stride)


def _travels(tensor: torch.Tensor) -> bool:
    return (tensor.layout == torch.strided and tensor.device.type == "cpu"
            and not tensor.requires_grad and not tensor.is_nested and not tensor.is_quantized
            and not tensor.is_conj() and not tensor.is_neg() and tensor.numel() > 0
            and not tensor.is_inference() and tensor.untyped_storage().nbytes() > 0)


def frozen() -> Any:
    """While workers are forked the collector leaves what exists alone, so that it does not write to
    pages that the workers share. Nothing is done where the caller froze something before."""
    return _Frozen()


class _Frozen:
    def __enter__(self) -> None:
        self._ours = gc.get_freeze_count() == 0
        if self._ours:
            gc.freeze()

    def __exit__(self, *exception: Any) -> None:
        if self._ours:
            gc.unfreeze()
