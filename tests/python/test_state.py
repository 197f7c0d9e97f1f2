"""Epochs and states: exact, at any batch, in any process."""

import json

import pytest

import forebay
from known import SCANS

PER_EPOCH = SCANS // 2


def take(loader, count=None):
    taken = []
    for batch in loader:
        taken.append(batch["index"].tolist())
        if len(taken) == count:
            break
    return taken


@pytest.fixture
def shuffled(config):
    return {**config, "order": {"shuffle": True, "seed": 3}}


@pytest.fixture
def epochs(shuffled):
    """The batches of the first four epochs."""
    with forebay.Loader(shuffled) as loader:
        return [take(loader) for _ in range(4)]


def test_each_iter_is_the_next_epoch(shuffled, epochs):
    assert all(len(epoch) == PER_EPOCH for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_after_a_break_the_next_epoch_begins_at_its_start(shuffled, epochs):
    with forebay.Loader(shuffled) as loader:
        assert take(loader, 2) == epochs[0][:2]
        assert take(loader, 1) == epochs[1][:1]
        assert take(loader) == epochs[2]
        assert take(loader) == epochs[3]


def test_a_break_behind_the_last_batch_is_no_different(shuffled, epochs):
    with forebay.Loader(shuffled) as loader:
        assert take(loader, PER_EPOCH) == epochs[0]
        assert take(loader) == epochs[1]


def test_iter_alone_begins_nothing(shuffled, epochs):
    with forebay.Loader(shuffled) as loader:
        iter(loader), iter(loader)
        assert take(loader) == epochs[0]
        iter(loader)
        assert take(loader) == epochs[1]


def test_an_iterator_that_was_overtaken_says_so(shuffled):
    with forebay.Loader(shuffled) as loader:
        old = iter(loader)
        next(old)
        next(iter(loader))
        with pytest.raises(forebay.BadUseError, match="newer"):
            next(old)


def test_set_epoch_names_the_next_one(shuffled, epochs):
    with forebay.Loader(shuffled) as loader:
        for number in (0, 1, 3, 2, 2, 0):
            loader.set_epoch(number)
            assert take(loader) == epochs[number], number
        loader.set_epoch(3)
        assert loader.state_dict()["epoch"] == 3
        assert take(loader, 2) == epochs[3][:2]
        with pytest.raises(ValueError):
            loader.set_epoch(-1)


@pytest.mark.parametrize("transform", [None, lambda batch: batch])
@pytest.mark.parametrize("batches", range(PER_EPOCH + 1))
def test_a_state_resumes_exactly_behind_its_batch(shuffled, epochs, batches, transform):
    with forebay.Loader(shuffled, transform=transform) as loader:
        take(loader)
        iterator = iter(loader)
        for _ in range(batches):
            next(iterator)
        state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    with forebay.Loader(shuffled, workers=1, prefetch=1, transform=transform) as loader:
        loader.load_state_dict(state)
        rest = take(loader)
        if batches == PER_EPOCH:
            assert rest == epochs[2]  # a finished epoch is not begun again
        else:
            assert rest == epochs[1][batches:]
            assert take(loader) == epochs[2]


def test_the_state_after_an_epoch_means_finished(shuffled, epochs):
    with forebay.Loader(shuffled) as loader:
        take(loader)
        state = loader.state_dict()
        assert take(loader, 3) == epochs[1][:3]
        loader.load_state_dict(state)
        assert take(loader) == epochs[1]


def test_states_of_several_ranks_are_taken_as_a_list(shuffled, epochs):
    with forebay.Loader(shuffled) as loader:
        take(loader, 2)
        state = loader.state_dict()
        loader.load_state_dict([state, state])
        assert take(loader) == epochs[0][2:]


def test_a_new_process_with_other_workers_goes_on(shuffled, epochs, python):
    with forebay.Loader(shuffled, workers=1) as loader:
        take(loader)
        take(loader, 2)
        state = loader.state_dict()
    rest = python("""
        import json, sys, forebay
        loader = forebay.Loader(json.loads(sys.argv[1]), workers=3, prefetch=4)
        loader.load_state_dict(json.loads(sys.argv[2]))
        print(json.dumps([[b["index"].tolist() for b in loader] for _ in range(2)]))
    """, json.dumps(shuffled), json.dumps(state))
    assert rest == [epochs[1][2:], epochs[2]]


@pytest.mark.parametrize("state", [{}, {"epoch": "x"}, {"nonsense": [1]}])
def test_what_is_no_state_is_refused_and_nothing_changes(shuffled, epochs, state):
    with forebay.Loader(shuffled) as loader:
        with pytest.raises(forebay.Error):
            loader.load_state_dict(state)
        assert take(loader) == epochs[0]


def test_workers_and_prefetch_change_without_changing_the_order(shuffled, epochs):
    with forebay.Loader(shuffled, workers=1) as loader:
        taken = []
        for number, batch in enumerate(loader):
            taken.append(batch["index"].tolist())
            result = loader.set(workers=1 + number % 3, prefetch=1 + number % 2)
            assert result["workers"]["new"] == 1 + number % 3
            assert set(result) == {"workers", "prefetch"}
        assert taken == epochs[0]


@pytest.mark.parametrize("state", (None, 7, "text", [None], ["text"]))
def test_what_is_no_state_is_refused_with_what_is_wanted(shuffled, state):
    with forebay.Loader(shuffled) as loader, pytest.raises(TypeError, match="state_dict()"):
        loader.load_state_dict(state)
