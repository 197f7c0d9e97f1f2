"""One background thread that takes items and works on them, a bounded number ahead of its consumer."""

from __future__ import annotations

import gc
import queue
import threading
import weakref

from . import _forebay

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SLICE_S = 0.05  # how long a wait may keep a stop from being seen

END = object()    # what `take` returns when there is nothing more,
AGAIN = object()  # and when there was nothing yet

_ITEM, _END, _ERROR = range(3)


class Ahead:
    """What `take` gives, through `work`, in order, errors included.

    take:  the next item, END or AGAIN; it may wait about SLICE_S
    state: asked right after each take; goes with the item, because the thread is further on than
           its consumer
    work:  makes of an item what the consumer gets
    depth: finished items that wait; one more is being worked on

    The thread ends by itself when whoever `watch` named is gone. That is no __del__ on purpose: a
    Ctrl-C that comes while one runs is lost.
    """

    def __init__(self, take: Callable[[], Any], state: Callable[[], Any],
                 work: Callable[[Any], Any], depth: int, name: str) -> None:
        self._take_one = take
        self._state = state
        self._work = work
        self._ready: queue.Queue = queue.Queue(depth)
        self._stop = threading.Event()
        self._consumer: Callable[[], Any] | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def next(self, place: Any) -> Any:
        """The next item, or END; raises what the thread met. Notes the state behind it in
        `place.state`; an item whose work failed is passed over."""
        while not self._ended:
            try:
                kind, value, state = self._ready.get(timeout=SLICE_S)
            except queue.Empty:
                if not self._thread.is_alive() and self._ready.empty():
                    self._ended = True
                    raise _forebay.StoppedError("the loader was closed") from None
                continue
            place.state = place.state if state is None else state
            if kind == _ITEM:
                return value
            if kind == _ERROR:
                raise value
            self._ended = True
        return END

    def watch(self, consumer: Any) -> None:
        """End when `consumer` does."""
        self._consumer = weakref.ref(consumer)

    def _is_over(self) -> bool:
        return self._stop.is_set() or (self._consumer is not None and self._consumer() is None)

    def stop(self, wait_s: float | None = 2.0) -> None:
        """End the thread; what it had ready is dropped. It ends by itself when its take returns."""
        self._stop.set()
        self._empty()
        if threading.current_thread() is not self._thread:
            self._thread.join(wait_s)
        self._empty()

    def _empty(self) -> None:
        try:
            while True:
                self._ready.get_nowait()
        except queue.Empty:
            pass

    def _put(self, kind: int, value: Any, state: Any) -> None:
        while not self._is_over():
            try:
                self._ready.put((kind, value, state), timeout=SLICE_S)
                break
            except queue.Full:
                pass
        if self._is_over():
            self._empty()

    def _take(self) -> Any:
        """The next item, END, or AGAIN when told to stop."""
        while not self._is_over():
            try:
                item = self._take_one()
            except _forebay.HeldError:
                # What waits here counts as held; only if nothing does, the consumer holds it all.
                if self._ready.empty() and not gc.collect():
                    raise
                self._stop.wait(SLICE_S / 10)
                continue
            if item is not AGAIN:
                return item
        return AGAIN

    def _run(self) -> None:
        while not self._is_over():
            state = item = value = None
            try:
                item = self._take()
                if item is AGAIN:
                    return
                state = self._state()
                if item is END:
                    self._put(_END, None, state)
                    return
                value = self._work(item)
            except (_forebay.StoppedError, _forebay.ForkedError) as error:
                self._put(_ERROR, error, None)
                return
            except StopIteration as error:  # would end the consumer's loop without a word
                wrapped = RuntimeError("the function applied to each batch raised StopIteration")
                wrapped.__cause__ = error
                self._put(_ERROR, wrapped, state)
            except BaseException as error:  # noqa: BLE001 - it belongs to the consumer
                self._put(_ERROR, error, state)
            else:
                item = None  # keep no slot while waiting
                self._put(_ITEM, value, state)
