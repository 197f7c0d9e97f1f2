"""forebay.DataLoader: state, bad samples, seeds for each sample, changes in mid-epoch."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils import data as theirs  # noqa: E402

import forebay  # noqa: E402


class Noisy(theirs.Dataset):
    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int):
        return index, torch.rand(()).item() + np.random.rand() + random.random()


class Bad(Noisy):
    def __getitem__(self, index: int):
        if index in (3, 8, 9):
            raise KeyError(index)
        return index


class Stream(theirs.IterableDataset):
    def __iter__(self):
        info = theirs.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, 23 - 5 * first, step):
            yield index, torch.rand(()).item()


class Saved(Stream):
    """Keeps its own place."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self):
        while self.at < 12:
            self.at += 1
            yield self.at - 1, torch.rand(()).item()
        self.at = 0

    def state_dict(self) -> dict:
        return {"at": self.at}

    def load_state_dict(self, state: dict) -> None:
        self.at = state["at"]


def seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def plain(batches) -> list:
    return [[part.tolist() for part in batch] for batch in batches]


GRID = [(workers, persistent, more) for workers in (0, 1, 2, 3) for persistent in (False, True)
        if workers or not persistent for more in ("shuffle", "generator", "sequential")]


def make(workers: int, persistent: bool, order: str, dataset=Noisy, **more):
    if order != "sequential":
        more["shuffle"] = True
    if order == "generator":
        more["generator"] = torch.Generator().manual_seed(3)
    return forebay.DataLoader(dataset(), batch_size=3, num_workers=workers,
                              persistent_workers=persistent, **more)


@pytest.mark.parametrize(("workers", "persistent", "order"), GRID)
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("at", [0, 1, 5, 8])
def test_a_resumed_epoch_goes_on_bit_for_bit(workers, persistent, order, epoch, at) -> None:
    seed(1)
    loader = make(workers, persistent, order)
    for _ in range(epoch):
        list(loader)
    iterator = iter(loader)
    for _ in range(at):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    trainer = torch.get_rng_state(), np.random.get_state(), random.getstate()
    rest = plain(iterator)
    seed(99)
    again = make(workers, persistent, order)
    again.load_state_dict(state)
    torch.set_rng_state(trainer[0]), np.random.set_state(trainer[1]), random.setstate(trainer[2])
    resumed = iter(again)
    if workers:
        assert torch.equal(torch.get_rng_state(), trainer[0])
    seen = plain(resumed)
    if not (workers or at) and order == "shuffle":
        # The order was not drawn yet; it now comes from the state, and the trainer's own draws .
        rest, seen = [batch[0] for batch in rest], [batch[0] for batch in seen]
    assert seen == rest


@pytest.mark.parametrize("dataset", [Stream, Saved])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_goes_on(dataset, workers) -> None:
    seed(1)
    loader = forebay.DataLoader(dataset(), batch_size=2, num_workers=workers)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state, trainer = loader.state_dict(), torch.get_rng_state()
    rest = plain(iterator)
    again = forebay.DataLoader(dataset(), batch_size=2, num_workers=workers)
    again.load_state_dict(state)
    torch.set_rng_state(trainer)
    resumed = [batch[0] for batch in plain(again)]
    assert resumed == [batch[0] for batch in rest]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 0), (0, 2)])
def test_index_batches_are_exact_with_another_number_of_workers(before, after) -> None:
    seed(1)
    loader = make(before, False, "shuffle")
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [batch[0] for batch in plain(iterator)]
    again = make(after, False, "shuffle")
    again.load_state_dict(state)
    assert [batch[0] for batch in plain(again)] == rest


def test_seed_per_sample_does_not_depend_on_workers() -> None:
    seen = []
    for workers in (0, 1, 3):
        seed(5)
        seen.append([plain(loader) for loader in [make(workers, False, "shuffle", seed_per_sample=True)]
                     for _ in range(2)])
    assert seen[0] == seen[1] == seen[2] and seen[0][0] != seen[0][1]


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_samples(workers) -> None:
    def run(**more) -> tuple:
        loader = forebay.DataLoader(Bad(), batch_size=2, num_workers=workers, **more)
        return loader, [batch.tolist() for batch in loader]

    loader, seen = run(on_error="skip")
    assert sum(seen, []) == [index for index in range(23) if index not in (3, 8, 9)]
    assert sorted(index for index, _ in loader.errors) == [3, 8, 9] and loader.stats()["errors"] == 3
    assert run(on_error="replace")[1][1] == [2, 2]
    with pytest.raises(RuntimeError, match="more than max_errors=2"):
        run(on_error="skip", max_errors=2)
    with pytest.raises(KeyError):
        run()


def test_options_that_need_an_index_are_refused_for_streams() -> None:
    for more in ({"seed_per_sample": True}, {"on_error": "skip"}, {"cache": "1MB"}):
        with pytest.raises(ValueError, match="IterableDataset"):
            forebay.DataLoader(Stream(), **more)


def test_prefetch_and_memory_change_in_mid_epoch() -> None:
    loader = forebay.DataLoader(range(60), batch_size=2, num_workers=2, memory="10MB")
    seen = []
    for number, batch in enumerate(loader):
        seen += batch.tolist()
        if number in (3, 9):
            loader.set(prefetch=12 if number == 3 else 2, memory="5MB")
    assert seen == list(range(60)) and loader.stats()["limit_bytes"] <= 5_000_000


def test_cache_and_automatic_workers() -> None:
    loader = forebay.DataLoader(list(range(10)), batch_size=5, num_workers="auto", cache="10MB")
    assert loader.num_workers >= 1 and isinstance(loader.dataset, forebay.Cached)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
