"""DeviceLoader, DeviceDataset and retry_on_oom, on torch's CPU device."""

import collections
import dataclasses
import gc
import pickle
import threading
import time

import numpy
import pytest

import forebay
from known import SCANS, scan

torch = pytest.importorskip("torch")

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Sample:
    image: object
    name: str


def test_a_native_loader_comes_out_as_tensors(config):
    loader = forebay.DeviceLoader(forebay.Loader(config), "cpu")
    assert len(loader) == SCANS // 2
    assert loader.samples == SCANS  # attributes of the inner one
    for number, batch in enumerate(loader):
        assert isinstance(batch["points"], torch.Tensor)
        assert torch.equal(batch["points"][1], torch.from_numpy(scan(2 * number + 1)))
    loader.close()


def test_any_nesting_keeps_its_shape():
    source = [{"a": [numpy.ones(2), ("text", 3)], "p": Pair(torch.zeros(1), None),
               "s": Sample(numpy.arange(3), "x"), "t": numpy.array(["no", "device"])}]
    (batch,) = forebay.DeviceLoader(source, "cpu")
    assert torch.equal(batch["a"][0], torch.ones(2, dtype=torch.float64))
    assert batch["a"][1] == ("text", 3)
    assert isinstance(batch["p"], Pair) and batch["p"].right is None
    assert isinstance(batch["s"], Sample) and torch.equal(batch["s"].image, torch.arange(3))
    assert batch["t"].tolist() == ["no", "device"]


def test_exceptions_arrive_in_order():
    def source():
        yield 1
        yield 2
        raise KeyError("three")

    iterator = iter(forebay.DeviceLoader(source(), "cpu"))
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(KeyError, match="three"):
        next(iterator)
    assert list(iterator) == []


def test_it_runs_ahead_by_prefetch_and_no_further():
    taken = []

    def source():
        for number in range(20):
            taken.append(number)
            yield number

    iterator = iter(forebay.DeviceLoader(source(), "cpu", prefetch=2))
    assert next(iterator) == 0
    end = time.monotonic() + 5
    while len(taken) < 4 and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(0.02)
    assert taken == [0, 1, 2, 3]  # one taken, two ready, one in the thread's hand
    assert list(iterator) == list(range(1, 20))


def test_a_break_stops_the_thread_and_the_next_iter_starts_again():
    before = set(threading.enumerate())
    loader = forebay.DeviceLoader(list(range(100)), "cpu")
    for _ in range(5):
        for number in loader:
            if number == 3:
                break
    del loader, number
    gc.collect()
    end = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.001)
    assert not set(threading.enumerate()) - before


def test_its_state_is_of_the_last_batch_it_yielded(config):
    with forebay.Loader(config) as plain:
        expected = [batch["index"].tolist() for batch in plain]
    with forebay.DeviceLoader(forebay.Loader(config), "cpu", prefetch=2) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        time.sleep(0.05)  # the thread is ahead by now; that must not matter
        state = loader.state_dict()
    with forebay.DeviceLoader(forebay.Loader(config), "cpu") as loader:
        loader.load_state_dict(state)
        assert [batch["index"].tolist() for batch in loader] == expected[2:]


def test_close_ends_a_thread_that_waits_for_the_inner_loader():
    class Stuck:
        """Waits until it is closed, as a loader on a network that is gone."""

        def __init__(self):
            self.closed = threading.Event()

        def __iter__(self):
            yield 1
            self.closed.wait()

        def close(self):
            self.closed.set()

    loader = forebay.DeviceLoader(Stuck(), "cpu")
    iterator = iter(loader)
    assert next(iterator) == 1
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 2
    assert not loader._place.ahead._thread.is_alive()


def test_any_torch_device_will_do(config):
    with forebay.DeviceLoader(forebay.Loader(config), "meta") as loader:
        for batch in loader:
            assert batch["points"].device.type == "meta"
    data = forebay.DeviceDataset(Numbers(), "meta", size=4)
    assert [data[index]["x"].device.type for index in range(8)] == ["meta"] * 8
    assert data.cache_stats()["items"] == 4


class Numbers:
    """A data set that counts how often it is asked."""

    name = "numbers"

    def __init__(self, count=10, elements=256):
        self.count, self.elements, self.asked = count, elements, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.asked.append(int(index))
        return {"x": numpy.full(self.elements, index, "float32"), "y": int(index)}


def test_samples_stay_on_the_device():
    numbers = Numbers()
    data = forebay.DeviceDataset(numbers, "cpu")
    for _ in range(3):
        for index in range(10):
            sample = data[index]
            assert torch.equal(sample["x"], torch.full((256,), float(index)))
            assert sample["y"] == index
    assert numbers.asked == list(range(10))
    assert data.name == "numbers" and len(data) == 10
    stats = data.cache_stats()
    assert (stats["hits"], stats["misses"], stats["items"]) == (20, 10, 10)
    assert stats["bytes"] == 10 * 1024


@pytest.mark.parametrize("bound", [{"size": 4}, {"bytes": 4 * 1024}, {"bytes": "4KiB", "size": 7}])
def test_fill_keeps_what_came_first(bound):
    numbers = Numbers()
    data = forebay.DeviceDataset(numbers, "cpu", **bound)
    for _ in range(2):
        for index in range(10):
            data[index]
    assert data.cache_stats()["items"] == 4
    assert data.cache_stats()["hits"] == 4
    assert numbers.asked[10:] == list(range(4, 10))


def test_lru_keeps_what_was_used_last():
    data = forebay.DeviceDataset(Numbers(), "cpu", size=3, policy="lru")
    for index in (0, 1, 2, 0, 3, 0, 1):  # 3 drops 1, the second 1 drops 2
        data[index]
    assert data.cache_stats()["hits"] == 2
    data.dataset.asked.clear()
    for index in (0, 1, 3):
        data[index]
    assert data.dataset.asked == []


def test_preload_fills_it_and_stops_when_full():
    numbers = Numbers()
    data = forebay.DeviceDataset(numbers, "cpu", size=4, policy="lru", preload=True)
    assert data.cache_stats()["items"] == 4
    assert numbers.asked == [0, 1, 2, 3, 4]


def test_it_works_under_torchs_loader():
    data = forebay.DeviceDataset(Numbers(), "cpu")
    loader = torch.utils.data.DataLoader(data, batch_size=5)
    for _ in range(2):
        assert torch.cat([batch["y"] for batch in loader]).tolist() == list(range(10))
    assert data.cache_stats()["hits"] == 10


def test_short_of_memory_it_shrinks_and_the_run_goes_on(monkeypatch):
    data = forebay.DeviceDataset(Numbers(), "cpu", preload=True)
    real, left = torch.Tensor.to, [2]

    def short(tensor, *args, **keywords):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("no memory")
        return real(tensor, *args, **keywords)

    data.dataset.count = 11
    monkeypatch.setattr(torch.Tensor, "to", short)
    assert data[10]["y"] == 10
    assert data.cache_stats()["items"] == 1  # half went, then all, then this one came
    left[0] = 3
    with pytest.raises(torch.OutOfMemoryError):
        data[5]  # nothing is kept that could make room


def test_retry_on_oom_drops_the_caches_and_tries_once_more():
    data = forebay.DeviceDataset(Numbers(), "cpu", preload=True)
    seen = []

    def step(value):
        seen.append(data.cache_stats()["items"])
        if data.cache_stats()["items"]:
            raise torch.OutOfMemoryError("no memory")
        return value

    assert forebay.retry_on_oom(step, 5) == 5
    assert seen == [10, 0]

    def always():
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        forebay.retry_on_oom(always)


def test_the_statistics_are_printed_in_the_guides_words(capsys):
    data = forebay.DeviceDataset(Numbers(), "cpu", bytes="1MiB")
    data.print_cache_stats()
    data[0], data[0]
    data.print_cache_stats()
    assert capsys.readouterr().out == (
        "[Numbers] Cache Stats:\n  - Size: 0 items\n  - Memory: 0.0 / 1.0 MB\n"
        "  - Hit Rate: n/a (0 hits / 0 misses)\n"
        "[Numbers] Cache Stats:\n  - Size: 1 items\n  - Memory: 0.0 / 1.0 MB\n"
        "  - Hit Rate: 50.00% (1 hits / 1 misses)\n")


def test_a_device_dataset_does_not_travel():
    with pytest.raises(TypeError, match="num_workers=0"):
        pickle.dumps(forebay.DeviceDataset(Numbers(), "cpu"))
