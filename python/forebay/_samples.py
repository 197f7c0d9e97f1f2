"""Data sets as our workers see them: reseeded for each sample, with bad samples marked, or read on from a
place in the middle. The user's own data set is inside, and is what get_worker_info() shows."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import sys
from typing import TYPE_CHECKING

import torch
from torch.utils.data import IterableDataset, _utils

from . import _progress

if TYPE_CHECKING:
    from typing import Any

MAX_LISTED = 1000  # errors whose text is kept


class Bad:
    """Stands where a sample should be."""

    def __init__(self, index: Any, text: str) -> None:
        self.index, self.text = index, text


class Key:
    """An index with what its random values are made from."""

    __slots__ = ("index", "seed")

    def __init__(self, index: Any, seed: tuple[int, int]) -> None:
        self.index, self.seed = index, seed

    def __reduce__(self) -> Any:
        return Key, (self.index, self.seed)


class Samples:
    """A map-style data set, sample by sample."""

    def __init__(self, dataset: Any, seeded: bool, marks_bad: bool) -> None:
        self.inside, self.seeded, self.marks_bad = dataset, seeded, marks_bad

    def __len__(self) -> int:
        return len(self.inside)

    def __getitem__(self, key: Any) -> Any:
        index = key.index if type(key) is Key else key
        try:
            if type(key) is not Key:
                return self.inside[index]
            before = None if _utils.worker.get_worker_info() is not None else _progress.get_random()
            try:
                seed_all(key.seed, index)
                return self.inside[index]
            finally:
                if before is not None:
                    _progress.set_random(before)
        except Exception as error:
            if not self.marks_bad:
                raise
            return Bad(index, f"{type(error).__name__}: {error}")


def seed_all(seed: tuple[int, int], index: Any) -> None:
    """random, numpy and torch, from (seed, epoch, index) alone."""
    digest = hashlib.blake2b(repr((*seed, index)).encode(), digest_size=16).digest()
    random.seed(digest)
    torch.default_generator.manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    if "numpy" in sys.modules:
        words = [int.from_bytes(digest[at:at + 4], "little") for at in range(0, 16, 4)]
        sys.modules["numpy"].random.seed(words)


class Onward(IterableDataset):
    """A stream from where it was: its own state where it has one, else by reading and dropping."""

    def __init__(self, dataset: Any, skip: dict[int, int], random: dict[int, Any]) -> None:
        self.inside, self.skip, self.random = dataset, skip, random

    def __iter__(self) -> Any:
        info = _utils.worker.get_worker_info()
        worker = 0 if info is None else info.id
        stream = iter(self.inside)
        for _ in range(self.skip.pop(worker, 0)):
            next(stream, None)
        states = self.random.pop(worker, None)
        if states is not None and info is not None:
            _progress.set_random(states)
        return stream


def show_inside() -> None:
    """In a worker: get_worker_info().dataset is the user's."""
    info = _utils.worker.get_worker_info()
    inside = getattr(info.dataset, "inside", None) if info is not None else None
    if inside is None or not isinstance(info.dataset, (Samples, Onward)):
        return
    if dataclasses.is_dataclass(info):
        _utils.worker._worker_info = dataclasses.replace(info, dataset=inside)
    else:  # before torch 2.13
        _utils.worker._worker_info = type(info)(id=info.id, num_workers=info.num_workers, seed=info.seed,
                                                dataset=inside)


def sift(samples: Any, policy: str) -> tuple[Any, list[Bad], bool]:
    """Samples without the bad ones (or with their neighbour instead), the bad ones, whether any is left."""
    if isinstance(samples, Bad):
        return None, [samples], False
    if type(samples) is not list:
        return samples, [], True
    bad = [sample for sample in samples if type(sample) is Bad]
    if not bad:
        return samples, bad, True
    good = [sample for sample in samples if type(sample) is not Bad]
    if not good:
        return None, bad, False
    if policy == "skip":
        return good, bad, True
    last = good[0]
    filled = []
    for sample in samples:
        last = last if type(sample) is Bad else sample
        filled.append(last)
    return filled, bad, True
