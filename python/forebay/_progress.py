"""How far an epoch has come: what state_dict() writes, and the random states it needs.

The state holds the random states from which the sampler drew at the start of the epoch, how many index
batches were drawn since, and those that were drawn but not yet yielded. A loader that gets the state draws
as many again without loading a sample, then goes on with those that were pending.
"""

from __future__ import annotations

import base64
import collections
import random
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

VERSION = 1
Noted = collections.namedtuple("Noted", "random dataset errors")


# ---- Random states as plain values (a state may go through JSON) ----

def _numpy() -> Any:
    return sys.modules.get("numpy")


def get_random() -> dict[str, Any]:
    """The states of torch (CPU), random and, where it is imported, NumPy."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "random": random.getstate()}
    if _numpy() is not None:
        states["numpy"] = _numpy().random.get_state()
    return states


def set_random(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["random"])
    if "numpy" in states and _numpy() is not None:
        _numpy().random.set_state(states["numpy"])


def _text(tensor: torch.Tensor) -> str:
    return base64.b64encode(bytes(tensor.tolist())).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.tensor(list(base64.b64decode(text)), dtype=torch.uint8)


def plain_random(states: dict[str, Any] | None) -> dict[str, Any] | None:
    if states is None:
        return None
    version, words, gauss = states["random"]
    plain = {"torch": _text(states["torch"]), "random": [version, list(words), gauss]}
    if "numpy" in states:
        name, keys, position, has_gauss, cached = states["numpy"]
        plain["numpy"] = [name, [int(key) for key in keys], int(position), int(has_gauss), float(cached)]
    return plain


def read_random(plain: dict[str, Any] | None) -> dict[str, Any] | None:
    if plain is None:
        return None
    version, words, gauss = plain["random"]
    states: dict[str, Any] = {"torch": _tensor(plain["torch"]), "random": (version, tuple(words), gauss)}
    if "numpy" in plain:
        name, keys, *rest = plain["numpy"]
        numpy = _numpy()
        if numpy is not None:
            states["numpy"] = (name, numpy.array(keys, dtype=numpy.uint32), *rest)
    return states


def same_random(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one.keys() != other.keys() or one["random"] != other["random"]:
        return False
    if "numpy" in one:
        left, right = one["numpy"], other["numpy"]
        if left[2:] != right[2:] or not (left[1] == right[1]).all():
            return False
    return torch.equal(one["torch"], other["torch"])


# ---- Generators of the loader and its samplers ----

def generators(loader: Any) -> list[torch.Generator]:
    """Each of them once, always in the same order."""
    places = [loader, loader.sampler, loader.batch_sampler,
              getattr(loader.batch_sampler, "sampler", None)]
    found: list[torch.Generator] = []
    for place in places:
        generator = getattr(place, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not one for one in found):
            found.append(generator)
    return found


def get_generators(loader: Any) -> list[str]:
    return [_text(generator.get_state()) for generator in generators(loader)]


def set_generators(loader: Any, states: list[str]) -> None:
    for generator, state in zip(generators(loader), states):
        generator.set_state(_tensor(state))


def stateful_sampler(loader: Any) -> Any:
    """The sampler that can save itself (the innermost is asked last); None: there is none."""
    for sampler in (loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None),
                    loader.sampler):
        if is_stateful(sampler):
            return sampler
    return None


def is_stateful(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None))


# ---- The epoch ----

class Progress:
    """Of one iterator, kept by its loader also after the iterator is gone."""

    def __init__(self, loader: Any, workers: int, kind: str) -> None:
        self.kind = kind              # "new": an iterator starts; "again": persistent workers go on
        self.workers = workers
        self.random = get_random()
        self.generators = get_generators(loader)
        self.base_seed: int | None = None
        self.epoch = 0                # of this iterator
        self.drawn = 0                # index batches
        self.indexes: dict[int, Any] = {}  # (worker, index) of tasks not yielded, by number
        self.yielded = 0
        self.finished = False
        self.wait_s = 0.0             # of the trainer
        self.iterator: Any = lambda: None  # a weak reference
        self.counts: dict[int, int] = {}   # batches yielded, by worker
        self.notes: dict[int, Noted] = {}  # by worker: as it was after its last batch that was yielded

    def note(self, worker: int, noted: Noted | None) -> None:
        self.counts[worker] = self.counts.get(worker, 0) + 1
        if noted is None:
            return
        before = self.notes.get(worker)
        if noted.random is None and before is not None:
            noted = noted._replace(random=before.random)
        self.notes[worker] = noted

    def state_dict(self, loader: Any) -> dict[str, Any]:
        sampler = stateful_sampler(loader)
        waiting = [self.indexes[number] for number in sorted(self.indexes)]
        pending = [index for _, index in waiting]
        return {
            "forebay": VERSION, "kind": self.kind, "workers": self.workers, "yielded": self.yielded,
            "finished": self.finished, "drawn": self.drawn, "pending": pending, "epoch": self.epoch,
            "base_seed": self.base_seed, "first": waiting[0][0] if waiting else 0,
            "random": plain_random(self.random), "generators": self.generators,
            "generators_now": get_generators(loader),
            "sampler": None if sampler is None else sampler.state_dict(),
            "counts": {str(w): n for w, n in self.counts.items()},
            "worker_random": {str(w): plain_random(note.random) for w, note in self.notes.items()},
            "worker_dataset": {str(w): note.dataset for w, note in self.notes.items()},
        }


def check_state(state: dict[str, Any]) -> None:
    if "forebay" not in state or state["forebay"] != VERSION:
        raise ValueError(
            "this state is not of forebay.DataLoader "
            f"(its keys are {sorted(map(str, state))[:6]}): a state of torchdata's StatefulDataLoader or of "
            "another version cannot be loaded; start the epoch anew")


class Resume:
    """A state that the next iterator begins with."""

    def __init__(self, state: dict[str, Any], loader: Any) -> None:
        check_state(state)
        self.state = state
        self.finished = state["finished"]
        self.fresh = self.finished and not loader.persistent_workers
        live = self.finished
        self.base_seed = None if self.fresh else state["base_seed"]
        self.random = None if live else read_random(state["random"])
        self.generators = state["generators_now"] if live else state["generators"]
        self.drawn = 0 if live else state["drawn"]
        self.pending = collections.deque([] if live else state["pending"])
        self.first = 0 if live else state["first"]
        self.epoch = state["epoch"] + (1 if live else 0)
        self.same_workers = state["workers"] == loader.num_workers
        known = {} if self.fresh or not self.same_workers else state["worker_random"]
        self.worker_random = {int(w): read_random(plain) for w, plain in known.items() if plain}
        self.worker_dataset = {} if self.fresh else {
            int(w): saved for w, saved in state["worker_dataset"].items() if saved is not None}
        self.counts = {} if live else {int(w): count for w, count in state["counts"].items()}
        self.trainer: Any = None

    def begin(self, loader: Any) -> None:
        """Set the random states of the epoch's start; the trainer's own wait in self.trainer."""
        self.trainer = get_random()
        sampler = stateful_sampler(loader)
        if sampler is not None and self.state["sampler"] is not None:
            sampler.load_state_dict(self.state["sampler"])
            self.drawn = 0
        self.set_start(loader)

    def set_start(self, loader: Any) -> None:
        set_random(self.trainer if self.random is None else self.random)
        set_generators(loader, self.generators)

    def end(self) -> None:
        """Leave the trainer's own random state as it was."""
        if self.trainer is not None:
            set_random(self.trainer)
            self.trainer = None

    def copy_to(self, progress: Progress) -> None:
        state = self.state
        progress.epoch, progress.base_seed = self.epoch, self.base_seed
        if self.random is not None:
            progress.random = self.random
        progress.generators = self.generators
        if not self.finished:
            progress.kind, progress.yielded = state["kind"], state["yielded"]
            progress.drawn, progress.counts = state["drawn"], dict(self.counts)
        elif not self.fresh:
            progress.kind = "again"
        progress.notes = {w: Noted(self.worker_random.get(w), self.worker_dataset.get(w), [])
                          for w in {*self.worker_random, *self.worker_dataset}}
