"""Data sets for forebay.Cached; a module of their own, so that spawned workers find them."""

from __future__ import annotations

import random
import time

import numpy

BYTES = 40_000  # of an array: several pages


def array(number: int, salt: int = 0) -> numpy.ndarray:
    return numpy.arange(BYTES // 8, dtype=numpy.int64) + number * 1_000_003 + salt


class Arrays:
    """Arrays that can be told apart; `loads` counts in a file, over all processes."""

    def __init__(self, items: int, counter: str | None = None, salt: int = 0) -> None:
        self.items, self.counter, self.salt = items, counter, salt
        self.title = "arrays"

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> dict:
        if index >= self.items:
            raise IndexError(index)
        if self.counter:
            with open(self.counter, "ab", buffering=0) as file:
                file.write(b"%d\n" % index)
        return {"x": array(int(index), self.salt), "index": int(index), "pid": 0}

    def double(self) -> int:
        return 2 * self.items


class Batches(Arrays):
    """Loads many at once."""

    def __init__(self, items: int) -> None:
        super().__init__(items)
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[dict]:
        self.asked.append(list(indices))
        return [self[index] for index in indices]


class WholeBatches(Arrays):
    def __getitems__(self, indices: list[int]) -> numpy.ndarray:
        return numpy.stack([array(index) for index in indices])


class Random(Arrays):
    def __getitem__(self, index: int) -> float:
        return random.random()


class Broken(Arrays):
    def __getitem__(self, index: int) -> dict:
        if index == 3:
            raise LookupError(f"sample {index} is broken here")
        return super().__getitem__(index)


class Unpicklable(Arrays):
    def __getitem__(self, index: int) -> dict:
        return {"index": index, "call": lambda: index}


class Listed:
    """Any list of samples."""

    def __init__(self, samples: list) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> object:
        return self.samples[index]


class Slow(Arrays):
    """Time to be killed in."""

    def __getitem__(self, index: int) -> dict:
        time.sleep(0.005)
        return super().__getitem__(index)


def check(sample: dict, salt: int = 0) -> None:
    assert numpy.array_equal(sample["x"], array(int(sample["index"]), salt))
