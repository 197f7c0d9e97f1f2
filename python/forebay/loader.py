"""forebay.Loader: the native sources, on threads, within a budget."""

from __future__ import annotations

import atexit
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping

from . import _arrays, _forebay
from ._ahead import AGAIN, END, SLICE_S, Ahead
from ._settings import config_of, json_text, key_of, parse_size, setting_text, settings_of

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_open_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()
_exiting = False


class ForebayWarning(UserWarning):
    """What the engine wants a person to know, but can live with."""


@atexit.register
def _close_all() -> None:
    """Threads of ours must not outlive the interpreter they would report to."""
    global _exiting
    _exiting = True
    for loader in list(_open_loaders):
        loader._shut(quiet=True)


def trim_devices() -> int:
    """Let the device caches of all open loaders give their memory back; the bytes."""
    given = 0
    for loader in list(_open_loaders):
        try:
            given += loader._native.device_trim(2**63)
        except (AttributeError, _forebay.StoppedError, _forebay.ForkedError):
            pass  # half-made, closed or another process's
    return given


def _end_thread_at_exit() -> None:
    """A thread that still waits for batches while the interpreter ends does so without a word."""
    if _exiting and threading.current_thread() is not threading.main_thread():
        raise SystemExit from None


class Budget:
    """One ceiling that several loaders of this process share, e.g. train and val.

    >>> budget = forebay.Budget("12GiB")
    >>> train = forebay.Loader("train.yaml", budget=budget)
    >>> val = forebay.Loader("val.yaml", budget=budget)
    """

    def __init__(self, size: int | str) -> None:
        self._native = _forebay.Budget(parse_size(size))

    @property
    def bytes(self) -> int:
        """What it was made with."""
        return self._native.bytes

    def __repr__(self) -> str:
        return f"forebay.Budget({self.bytes})"

    def __reduce__(self) -> Any:
        raise TypeError("a Budget belongs to its process and cannot be pickled")


class Loader:
    """Batches of a native source, within a memory budget, in an order that is known in advance.

    >>> loader = forebay.Loader("train.yaml", memory="12GiB")
    >>> for epoch in range(10):
    ...     for batch in loader:            # a dict: field -> array
    ...         batch["points"]

    config:    the path of a YAML file, or a dict of the same shape, or None
    settings:  more keys over it, e.g. {"memory.cache": "off"}
    budget:    a forebay.Budget shared with other loaders, instead of memory=
    as_:       "numpy", "torch", or "dlpack" (objects that have __dlpack__)
    pin:       torch tensors in torch's own pinned memory, for one more copy
    transform: a function of the finished batch; runs in one background thread, ahead of the caller
    Every other keyword is a key of the configuration: memory, cache, policy, workers, prefetch,
    seed, shuffle, batch_size, collate, dtype, name, device, on_error, preset, rank, world; other
    keys can be written with two underscores for the dot, e.g. cpu__share=2.

    Each `iter()` is the next epoch, also after a `break`. Fields of 64 KiB and more are not copied:
    their arrays keep the batch's memory until they are collected, so keep `.copy()` of what is to
    stay. Smaller fields are private copies.

    One loader may be used by several threads; each batch goes to one of them. It belongs to the
    process that opened it: in a forked child it raises forebay.ForkedError.
    """

    def __init__(self, config: str | os.PathLike | Mapping[str, Any] | None = None, /, *,
                 settings: Mapping[str, Any] | None = None, budget: Budget | None = None,
                 as_: str = "numpy", pin: bool = False,
                 transform: Callable[[dict], Any] | None = None, **overrides: Any) -> None:
        self._native: Any = None  # until it is open: a traceback may show a half-made loader
        if budget is not None and overrides.get("memory") is not None:
            raise TypeError("give memory= or budget=, not both")
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget is a forebay.Budget, not {budget!r}")
        face = _arrays.face(as_, pin)
        file, text = config_of(config)
        self._native = _forebay.Loader(file, text, settings_of(settings, overrides),
                                       budget._native if budget is not None else None)
        if face is not None:
            self._native.show(*face)
        self._transform = transform
        self._place: _Place | None = None  # of the newest iter()
        self._wanted_epoch: int | None = None
        self._resumed = False  # a state was loaded
        _open_loaders.add(self)
        self._tell()

    # ---- Epochs ----

    def __iter__(self) -> _Epoch:
        """The next epoch from its start, or the rest of the one that load_state_dict named."""
        try:
            return self._begin()
        except _forebay.StoppedError:
            _end_thread_at_exit()
            raise

    def _begin(self) -> _Epoch:
        before = self._leave()
        if self._wanted_epoch is not None:
            self._native.set_epoch(self._wanted_epoch)
        elif before is not None and before.begun and not before.done:
            self._native.set_epoch(before.epoch(self._native) + 1)
        resumed = self._wanted_epoch is None and (
            self._resumed if before is None else before.ahead is not None and not before.begun)
        self._wanted_epoch = None
        self._place = _Place(resumed)
        if self._transform is not None:
            self._place.start_ahead(self._native, self._transform)
        return _Epoch(self, self._place)

    def __len__(self) -> int:
        """Batches in a whole epoch of this rank."""
        return self._native.epoch_batches()

    @property
    def samples(self) -> int:
        """Samples in a whole epoch of this rank."""
        return self._native.epoch_samples()

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` be this epoch, from its start."""
        if epoch < 0:
            raise ValueError(f"an epoch cannot be negative: {epoch!r}")
        place = self._place
        if place is None:
            follows = not self._resumed and epoch == 0
        else:
            follows = place.done and place.epoch(self._native) + 1 == epoch
        # What follows anyway is being read already: no need to drop it.
        self._wanted_epoch = None if follows else int(epoch)

    def _leave(self) -> _Place | None:
        """End the iterator that is under way, if any."""
        place, self._place = self._place, None
        if place is not None:
            place.leave(self._native)
        return place

    # ---- State ----

    def state_dict(self) -> dict[str, Any]:
        """Where the caller is, exactly, after the last batch it got; plain JSON types."""
        place = self._place
        if place is not None and not place.done:
            return _from_json(place.state if place.ahead is not None else self._native.state_save())
        if self._wanted_epoch is not None:
            self._leave()
            self._native.set_epoch(self._wanted_epoch)
        return _from_json(self._native.state_save())

    def load_state_dict(self, state: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Let the next `iter()` go on exactly after it.

        Takes this rank's state, that of any rank if they were in step, or a list of all ranks'; the
        number of ranks and workers may have changed. A state of an epoch's end means that epoch is
        finished: the next `iter()` is the one after it.
        """
        states = [state] if isinstance(state, Mapping) else state
        if not isinstance(states, Iterable) or isinstance(states, (str, bytes)):
            raise TypeError("load_state_dict wants the dict that state_dict() returned, or a list "
                            f"of the dicts of all ranks, not {state!r:.80}")
        states = list(states)
        for one in states:
            if not isinstance(one, Mapping):
                raise TypeError("load_state_dict wants dicts that state_dict() returned; "
                                f"one of the list is {one!r:.80}")
        texts = tuple(json_text(one) for one in states)
        self._leave()
        self._native.state_load(texts)
        self._wanted_epoch = None
        self._resumed = True
        self._tell()

    # ---- Live control and what is measured ----

    def set(self, settings: Mapping[str, Any] | None = None, /, **changes: Any) -> dict[str, dict]:
        """Change workers, prefetch, memory (and other live keys) while running.

        Effective within one batch; the order of samples never changes. Returns, for each key, what
        it was (`old`), what was reached (`new`), and the batches the caller holds (`held`).
        """
        wanted = {str(key): value for key, value in (settings or {}).items()}
        wanted.update({key_of(name): value for name, value in changes.items() if value is not None})
        results = {}
        for key, value in wanted.items():
            old, new, batches, held_bytes = self._native.set(key, setting_text(value))
            results[key] = {"old": _number(old), "new": _number(new),
                            "held": {"batches": batches, "bytes": held_bytes}}
        self._tell()
        return results

    def stats(self) -> dict[str, Any]:
        """What was measured so far, as in `forebay run --json`."""
        return _from_json(self._native.stats())

    # ---- The end ----

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._native is None or self._native.closed

    def close(self) -> None:
        """Stop the workers and give the memory back; arrays that are still held stay valid."""
        self._shut(quiet=False)

    def _shut(self, quiet: bool) -> None:
        native = self._native
        if native is None:
            return
        place = self._place
        if place is not None and place.ahead is not None:
            place.ahead.stop()
        native.close()
        if not quiet:
            self._tell()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a forebay.Loader belongs to its process and cannot be pickled: give the "
                        "other process the configuration and open a loader there")

    def __repr__(self) -> str:
        if self.closed:
            return "<forebay.Loader, closed>"
        return f"<forebay.Loader, {len(self)} batches in an epoch>"

    def _tell(self) -> None:
        """Pass on what the engine's threads had to say."""
        lines = self._native.lines()
        if lines:
            import logging

            log = logging.getLogger("forebay")
        for level, line in lines:
            if level == 0:
                log.info("%s", line)
        for level, line in lines:
            if level > 0:  # last: a filter may turn it into an exception
                warnings.warn(line, ForebayWarning, stacklevel=3)


class _Place:
    """How far one iter() has come. Knows neither loader nor iterator, so that neither keeps the
    other alive through it."""

    def __init__(self, resumed: bool) -> None:
        self.resumed = resumed  # the first batch is behind a loaded state, perhaps an epoch's end
        self.begun = False      # next() was called
        self.done = False       # the epoch is over
        self.lock = threading.Lock()
        self.ahead: Ahead | None = None
        self.start = self.state = ""  # with `ahead`: before the first batch, after the last taken

    def start_ahead(self, native: Any, work: Callable[[dict], Any]) -> Ahead:
        def take() -> Any:
            fields = native.next(SLICE_S)
            return END if fields is None else AGAIN if fields is False else fields

        self.start = self.state = native.state_save()
        self.ahead = Ahead(take, native.state_save, work, 1, "forebay-transform")
        return self.ahead

    def epoch(self, native: Any) -> int:
        """The epoch of its last batch."""
        if native.epoch is not None:
            return native.epoch
        return int(_from_json(native.state_save())["epoch"])

    def leave(self, native: Any) -> None:
        if self.ahead is not None and not native.closed:
            self.ahead.stop()
            if not self.begun:
                native.state_load((self.start,))  # the thread was ahead, but nobody saw it


class _Epoch:
    """The batches of one epoch, or of what is left of it."""

    def __init__(self, loader: Loader, place: _Place) -> None:
        self._loader = loader
        self._native = loader._native
        self._transform = loader._transform
        self._place = place
        if place.ahead is not None:
            place.ahead.watch(self)

    def __iter__(self) -> _Epoch:
        return self

    def __len__(self) -> int:
        """Batches in a whole epoch of this rank."""
        return self._native.epoch_batches()

    def __next__(self) -> Any:
        place = self._place
        if self._native.pending:
            self._loader._tell()
        with place.lock:  # behind the end the engine would begin the next epoch
            if place.done:
                raise StopIteration
            if self._loader._place is not place:
                raise _forebay.BadUseError("a newer iter() of this loader has taken over")
            try:
                batch = self._take(place)
            except _forebay.StoppedError:
                _end_thread_at_exit()
                raise
            if batch is END and place.resumed:
                # The state was of an epoch's end: that one is finished, this iter() is the next.
                if self._transform is not None:
                    place.start_ahead(self._native, self._transform).watch(self)
                batch = self._take(place)
            place.resumed = False
            if batch is not END:
                return batch
            place.done = True
        if self._native.pending:
            self._loader._tell()
        raise StopIteration

    def _take(self, place: _Place) -> Any:
        """The next batch, or END."""
        place.begun = True
        if place.ahead is not None:
            return place.ahead.next(place)
        try:
            fields = self._native.next()
        except _forebay.HeldError:
            if not gc.collect():  # arrays in reference cycles hold their batches, too
                raise
            fields = self._native.next()
        return END if fields is None else fields


def _from_json(text: str) -> Any:
    import json

    return json.loads(text)


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text
