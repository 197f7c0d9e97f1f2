"""Several threads at once: with the GIL they take turns, on a free-threaded CPython they do not."""

from __future__ import annotations

import sys
import threading

import numpy

import forebay
from known import SCANS, scan

EPOCHS = 8
THREADS = 4


def run_in_threads(work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors


def test_importing_it_leaves_a_free_threaded_interpreter_free():
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        assert not hasattr(sys, "abiflags") or "t" not in sys.abiflags, "the GIL came back"


def test_threads_share_an_iterator_while_others_ask_and_change(config):
    with forebay.Loader(config, memory="32MiB") as loader:
        for _ in range(EPOCHS):
            iterator, seen, lock = iter(loader), [], threading.Lock()

            def work(number):
                for batch in iterator:
                    first = int(batch["index"][0])
                    assert numpy.array_equal(batch["points"][0], scan(first))
                    with lock:
                        seen.extend(batch["index"].tolist())
                    loader.stats()
                    loader.set(workers=1 + number % 2)
                    len(loader), loader.closed, loader.state_dict()

            run_in_threads(work)
            assert sorted(seen) == list(range(SCANS))


class Fresh:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return numpy.full(1000, index)


def test_threads_share_a_cache(capfd):
    data = forebay.Cached(Fresh(), "8MB")

    def work(number):
        for _ in range(EPOCHS):
            for index in range(64):
                sample = data[(index + 16 * number) % 64]
                assert sample[0] == sample[-1] == (index + 16 * number) % 64
                sample[:] = -1  # private

    run_in_threads(work)
    stats = data.cache_stats()
    assert stats["items"] == 64 and stats["hits"] + stats["misses"] == THREADS * EPOCHS * 64
    assert EPOCHS <= capfd.readouterr().out.count("Cache Stats:") <= THREADS * EPOCHS


def test_arrays_are_dropped_in_any_thread(config):
    with forebay.Loader(config, memory="32MiB", transform=lambda batch: batch) as loader:
        for _ in range(EPOCHS):
            batches = list(batch["index"] for batch in loader)
            run_in_threads(lambda number: [b.sum() for b in batches[number::THREADS]])
            del batches
    assert loader.closed
