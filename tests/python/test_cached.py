"""forebay.Cached: one cache for all processes, under torch's DataLoader and without it."""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import traceback

import numpy
import pytest

import forebay
from forebay.cached import same
from samples import (BYTES, Arrays, Batches, Broken, Listed, Random, Slow, Unpicklable,
                     WholeBatches, array, check)

SIZE = "8MB"  # about 190 arrays


def cached(items=50, size=SIZE, **options):
    return forebay.Cached(Arrays(items), size, **{"quiet": True, **options})


def eventually(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def memory_files(pids=(), besides=()):
    """Inode -> bytes in use, of the caches that this process and these have open."""
    found = {}
    for pid in (os.getpid(), *pids):
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            try:
                if "forebay-cache" in os.readlink(f"{folder}/{name}"):
                    status = os.stat(f"{folder}/{name}")
                    if status.st_ino not in besides:
                        found[status.st_ino] = status.st_blocks * 512
            except OSError:
                pass
    return found


# ---- samples ----

def test_a_sample_is_loaded_once_and_found_after_that(tmp_path):
    counter = tmp_path / "loads"
    data = forebay.Cached(Arrays(20, str(counter)), SIZE, quiet=True)
    for epoch in range(3):
        for index in range(20):
            check(data[index])
    loads = counter.read_text().split()
    assert len(loads) == 21 and set(loads) == {str(i) for i in range(20)}  # one to compare with
    stats = data.cache_stats()
    assert (stats["hits"], stats["misses"], stats["items"]) == (40, 20, 20)
    assert stats["hit_rate"] == pytest.approx(2 / 3) and stats["processes"] == 1


def test_what_is_found_is_private_and_writable():
    data = cached()
    data[1]
    one, two = data[1], data[1]
    one["x"][:] = 0
    check(two)
    check(data[1])
    two["x"] += 1


@dataclasses.dataclass
class Point:
    x: numpy.ndarray
    name: str


Pair = collections.namedtuple("Pair", "first second")

PLAIN = [
    numpy.float32(2.5), numpy.zeros((0, 3)), numpy.array(7), numpy.asfortranarray(array(1).reshape(50, 100)),
    array(2)[::3], numpy.array([True, False] * 500), numpy.array(["ab", "c"]),
    numpy.zeros(300, dtype=[("a", "i4"), ("b", "f8")]), numpy.datetime64("2024-01-01"),
    numpy.array([None, {"a": 1}], dtype=object), numpy.float32("nan"), float("nan"),
    "text", b"bytes" * 10000, bytearray(b"x" * 10000), 5, None, {"a", "b", "c"}, 1 + 2j, "",
    [], {}, (1, (2, [3, {"deep": array(3)}])), Pair(array(4), "x"), Point(array(5), "y"),
    {"image": array(6).astype(numpy.uint8), "label": 3, "path": "a/b.png"}, 2**100, range(5),
]


def test_everything_that_can_be_pickled_comes_back_equal():
    data = forebay.Cached(Listed(PLAIN), SIZE, quiet=True)
    for turn in range(2):
        for index, sample in enumerate(PLAIN):
            assert same(data[index], sample), sample
    assert data.cache_stats()["hits"] == len(PLAIN)


def test_tensors_come_back_equal_and_of_the_same_layout():
    torch = pytest.importorskip("torch")
    base = torch.arange(4000, dtype=torch.float32)
    samples = [
        base, base.view(10, 400), base.view(2, 5, 20, 20).to(memory_format=torch.channels_last),
        base.view(40, 100).t(), base[::2], base[:1].expand(300), torch.tensor(5), torch.empty(0, 3),
        base.to(torch.bfloat16), base.to(torch.complex64), base > 7, torch.zeros(3, dtype=torch.bool),
        torch.ones(300, requires_grad=True), torch.nn.Parameter(torch.ones(300)),
        torch.eye(30).to_sparse(), base.to(torch.complex64).conj(), [base, (base, {"x": base})],
        torch.zeros(100, dtype=torch.uint8), base.half(), torch.float32,
    ]
    data = forebay.Cached(Listed(samples), SIZE, quiet=True)
    for turn in range(2):
        for index, sample in enumerate(samples):
            got = data[index]
            assert type(got) is type(sample)
            if not isinstance(sample, torch.Tensor):
                continue
            assert got.dtype == sample.dtype and got.shape == sample.shape
            assert got.requires_grad == sample.requires_grad
            assert torch.equal(got.to_dense(), sample.to_dense())
            assert got.layout is not torch.strided or not got.is_shared()
            if index in (2, 3):
                assert got.stride() == sample.stride()
    assert data.cache_stats()["hits"] == len(samples)
    got = data[0]
    got += 1
    assert torch.equal(data[0], base)


def test_exceptions_of_the_data_set_pass_unchanged():
    data = forebay.Cached(Broken(10), SIZE, quiet=True)
    for turn in range(2):
        with pytest.raises(LookupError, match="sample 3 is broken here") as caught:
            data[3]
    assert "Broken" in type(data.dataset).__name__
    assert "samples.py" in "".join(traceback.format_exception(caught.value))
    with pytest.raises(IndexError):
        cached(10)[10]
    assert [sample["index"] for sample in cached(10)] == list(range(10))  # the old protocol


def test_samples_that_cannot_be_pickled_are_passed_on_with_one_warning():
    data = forebay.Cached(Unpicklable(100), SIZE, quiet=True)
    with pytest.warns(forebay.ForebayWarning, match="cannot be pickled") as caught:
        for turn in range(2):
            for index in range(100):
                assert data[index]["call"]() == index
    assert len(caught) == 1
    assert data.cache_stats()["items"] == 0


def test_a_sample_larger_than_the_cache_is_passed_on():
    data = forebay.Cached(Listed([numpy.ones(10_000_000), numpy.ones(10)]), "2MB", quiet=True)
    for turn in range(3):
        assert data[0].sum() == 10_000_000 and data[1].sum() == 10
    assert data.cache_stats()["items"] == 1


def test_transform_runs_after_the_cache_each_time():
    calls = []

    def transform(sample):
        calls.append(sample["index"])
        return sample["index"] * 10

    data = cached(5, transform=transform)
    assert [data[i] for i in (1, 1, 2)] == [10, 10, 20] and calls == [1, 1, 2]
    assert data.__getitems__([1, 4]) == [10, 40]
    assert data.cache_stats()["hits"] == 2


def test_what_only_the_data_set_understands_passes_through():
    data = forebay.Cached([10, 20, 30], SIZE, quiet=True)
    assert data[0:2] == [10, 20] and data[-1] == 30 and data[numpy.int64(1)] == 20
    with pytest.raises(TypeError):
        data["a"]
    assert data.cache_stats()["misses"] == 1


def test_attributes_and_methods_pass_through():
    data = cached(7)
    assert data.title == "arrays" and data.double() == 14 and len(data) == 7
    data.title = "other"
    assert data.dataset.title == "other"
    data.mine = 3
    assert data.mine == 3 and not hasattr(data.dataset, "mine")
    assert "double" in dir(data) and "cache_stats" in dir(data)
    with pytest.raises(AttributeError):
        data.nothing
    assert copy.copy(data).title == "other" and "Arrays" in repr(data)


def test_batches_are_loaded_by_the_data_set_itself_where_it_can():
    data = forebay.Cached(Batches(10), SIZE, quiet=True)
    for samples in (data.__getitems__([1, 2, 3]), data.__getitems__([3, 4, 1, 5])):
        for sample in samples:
            check(sample)
    assert data.asked == [[1, 2, 3], [4, 5]]
    whole = forebay.Cached(WholeBatches(10), SIZE, quiet=True)
    with pytest.warns(forebay.ForebayWarning, match="whole batches"):
        assert whole.__getitems__([1, 2]).shape == (2, BYTES // 8)
    assert whole.__getitems__([4, 5, 6]).shape == (3, BYTES // 8)


def test_wrong_arguments_are_refused_in_words():
    with pytest.raises(TypeError, match="__getitem__"):
        forebay.Cached(iter([1]), SIZE)
    with pytest.raises(ValueError, match="lru"):
        forebay.Cached([1], SIZE, policy="random")
    with pytest.raises(ValueError, match="GiB"):
        forebay.Cached([1], "much")
    with pytest.raises(forebay.OverBudgetError, match="cannot hold"):
        forebay.Cached([1], "1kB")
    assert len(forebay.Cached([], SIZE)) == 0 and forebay.Cached([], SIZE).cache_stats()["items"] == 0


# ---- policies, statistics, size ----

def epoch(data, order):
    before = data.cache_stats()
    for index in order:
        check(data[int(index)])
    after = data.cache_stats()
    return (after["hits"] - before["hits"]) / len(order)


def test_fill_hits_as_often_as_its_share_and_lru_as_theory_says():
    draw = numpy.random.default_rng(0)
    rates = {}
    for policy in ("fill", "lru"):
        data = cached(400, policy=policy)
        epoch(data, draw.permutation(400))
        rates[policy] = [epoch(data, draw.permutation(400)) for _ in range(3)]
        share = data.cache_stats()["items"] / 400
        assert 0.4 < share < 0.5 and data.cache_stats()["bytes"] <= 8_000_000
        expected = data.cache_stats()["expected"]
        assert expected["fill"] == pytest.approx(share)
        assert expected["lru"] == pytest.approx(share + (1 - share) * math.log(1 - share))
        assert rates[policy] == pytest.approx([expected[policy]] * 3, abs=0 if policy == "fill" else 0.08)


def test_statistics_are_in_the_words_of_guide_002(capfd):
    data = forebay.Cached(Arrays(100), "2MB", name=f"train-{os.getpid()}")
    for index in range(99):
        data[index]
    assert capfd.readouterr().out == ""
    data[99]
    lines = capfd.readouterr().out.splitlines()  # after as many samples as there are
    stats = data.cache_stats()
    assert lines[:4] == [
        f"[train-{os.getpid()}] Cache Stats:", f"  - Size: {stats['items']} items",
        f"  - Memory: {stats['bytes'] / 2**20:.1f} / 1.9 MB",
        "  - Hit Rate: 0.00% (0 hits / 100 misses)"]
    assert "lru would give" in lines[-1]
    for index in range(100):
        data[index]
    hits = data.cache_stats()["hits"]
    assert f"  - Last Epoch: {hits / 100:.2%} ({hits} hits / {100 - hits} misses)" in capfd.readouterr().out
    data.print_cache_stats()
    assert f"  - Hit Rate: {hits / 200:.2%} ({hits} hits / {200 - hits} misses)" in capfd.readouterr().out
    quiet = cached(3)
    for index in range(3):
        quiet[index]
    assert capfd.readouterr().out == ""


def test_clear_and_resize_work_while_it_runs():
    before = memory_files()
    data = cached(400)
    epoch(data, range(400))
    kept = data.cache_stats()["items"]
    inode, full = memory_files(besides=before).popitem()
    data.resize("4MB")
    eventually(lambda: data.cache_stats()["bytes"] <= 4_000_000)
    assert kept * 0.4 < data.cache_stats()["items"] < kept * 0.6
    assert memory_files()[inode] < full * 0.6
    data.resize("32MB")
    epoch(data, range(400))
    assert data.cache_stats()["items"] == 400 and epoch(data, range(400)) == 1
    data.clear()
    assert data.cache_stats()["items"] == 0
    assert memory_files()[inode] < 2**20
    assert epoch(data, range(400)) == 0 and epoch(data, range(400)) == 1


# ---- who shares with whom ----

def test_two_wrappers_of_one_class_never_meet():
    train, val = cached(), cached()
    train[1]
    val[1]
    assert val.cache_stats()["hits"] == 0 and train.cache_stats()["processes"] == 1


def test_wrappers_of_one_name_share_if_their_data_is_the_same():
    name = f"shared-{os.getpid()}"
    one, two = cached(name=name), cached(name=name)
    one[1]
    check(two[1])
    assert two.cache_stats()["hits"] == 1 and two.cache_stats()["processes"] == 2
    assert two.cache_stats()["limit_bytes"] == 8_000_000  # of both together
    other = forebay.Cached(Arrays(50, salt=1), SIZE, name=name, quiet=True)
    with pytest.raises(forebay.BadDataError, match=r"Arrays of 50 samples, made at test_cached.py:\d+ "
                       r".*; here is samples.Arrays of 50 samples, made at test_cached.py:\d+"):
        other[1]
    check(other[2], salt=1)
    longer = cached(51, name=name)
    longer[1]
    assert longer.cache_stats()["hits"] == 0


def test_a_random_data_set_is_an_error_that_names_transform():
    data = forebay.Cached(Random(10), SIZE, quiet=True)
    data[1]
    with pytest.raises(forebay.BadDataError, match="transform="):
        data[1]


def test_the_same_values_pickled_in_another_way_are_no_error():
    names = ["a", "b", "c", "d"]
    data = forebay.Cached(Listed([set(names)]), SIZE, quiet=True)
    data[0]
    data.dataset.samples = [set(reversed(names))]
    assert data[0] == set(names)


def test_a_pickle_is_the_same_cache():
    data = cached()
    data[1]
    other = pickle.loads(pickle.dumps(data))
    check(other[1])
    assert other.cache_stats()["hits"] == 1 and other.cache_stats()["processes"] == 2
    del other
    eventually(lambda: data.cache_stats()["processes"] == 1)


def use_all(data, queue):
    for index in range(len(data)):
        check(data[index])
    queue.put(data.cache_stats())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_start_method_share(method):
    context = multiprocessing.get_context(method)
    data = cached(30)
    for index in range(0, 30, 2):
        data[index]
    queue = context.Queue()
    process = context.Process(target=use_all, args=(data, queue))
    process.start()
    stats = queue.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    assert (stats["hits"], stats["misses"], stats["processes"]) == (15, 30, 2)
    check(data[29])
    assert data.cache_stats()["hits"] == 16
    eventually(lambda: data.cache_stats()["processes"] == 1)


def test_a_fork_of_a_fork_shares_and_threads_do():
    import threading

    data = cached(30)
    check(data[0])
    if (child := os.fork()) == 0:
        check(data[0])
        if (grandchild := os.fork()) == 0:
            threads = [threading.Thread(target=data.__getitem__, args=(i,)) for i in range(30)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os._exit(0 if data.cache_stats()["items"] == 30 else 1)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert data.cache_stats()["items"] == 30


RANK = """
    import json, os, sys, time
    sys.path.insert(0, sys.argv[1])
    import forebay
    from samples import Arrays, check
    train = forebay.Cached(Arrays(100), "32MB", quiet=True)
    val = forebay.Cached(Arrays(100, salt=5), "32MB", quiet=True)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for index in range(rank, 100, world):
        check(train[index])
        check(val[index], 5)
    print("filled", flush=True)
    sys.stdin.readline()
    for index in range(100):
        check(train[index])
        check(val[index], 5)
    print(json.dumps([train.cache_stats(), val.cache_stats()]), flush=True)
    sys.stdin.readline()
"""


def start_ranks(world):
    folder = os.path.dirname(os.path.abspath(__file__))
    ranks = []
    for rank in range(world):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
               "MASTER_ADDR": "localhost", "MASTER_PORT": str(os.getpid())}
        ranks.append(subprocess.Popen([sys.executable, "-c", textwrap.dedent(RANK), folder], env=env,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    return ranks


def go_on(rank):
    rank.stdin.write("\n")
    rank.stdin.flush()


def test_the_ranks_of_a_launcher_share_by_themselves():
    before = memory_files()
    ranks = start_ranks(4)
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "filled\n"
        files = memory_files([rank.pid for rank in ranks], before)
        assert len(files) == 2 and sum(files.values()) < 100 * 2 * BYTES * 1.3 + 2**20
        ranks[0].kill()  # the one that came first: it has the limit in its ledger
        ranks[0].wait()
        for rank in ranks[1:]:
            go_on(rank)
        for rank in ranks[1:]:
            train, val = json.loads(rank.stdout.readline())
            assert train["items"] == val["items"] == 100
            assert train["misses"] == val["misses"] == 100  # all from before: nothing was lost
            assert train["limit_bytes"] == 32_000_000
        assert len(memory_files([rank.pid for rank in ranks[1:]], before)) == 2
        for rank in ranks[1:]:
            go_on(rank)
            assert rank.wait(30) == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()


# ---- under torch's DataLoader ----

def loader_of(data, **options):
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, **options)


def numbers(loader):
    found = []
    for batch in loader:
        for index, x in zip(batch["index"], batch["x"]):
            assert numpy.array_equal(x.numpy(), array(int(index)))
            found.append(int(index))
    return sorted(found)


# Each process of spawn imports torch: seconds. `make soak` has all combinations.
CASES = [(None, 0, False), ("fork", 1, False), ("fork", 4, False), ("fork", 4, True),
         ("spawn", 1, False), ("forkserver", 1, True)]
if os.environ.get("FOREBAY_SOAK", "0") not in ("", "0"):
    CASES = [(None, 0, False), *((method, workers, persistent) for persistent in (False, True)
                                 for method in ("fork", "spawn", "forkserver") for workers in (1, 4))]


@pytest.mark.parametrize("method, workers, persistent", CASES)
def test_torch_workers_share_one_cache(method, workers, persistent, tmp_path):
    before = memory_files()
    counter = tmp_path / "loads"
    data = forebay.Cached(Arrays(100, str(counter)), "32MB", quiet=True)
    loader = loader_of(data, num_workers=workers, persistent_workers=persistent,
                       multiprocessing_context=method)
    for _ in range(2):
        assert numbers(loader) == list(range(100))
    stats = data.cache_stats()
    assert (stats["hits"], stats["misses"], stats["items"]) == (100, 100, 100)
    assert len(counter.read_text().split()) <= 100 + max(1, 2 * workers)  # each compares one
    files = memory_files([p.pid for p in multiprocessing.active_children()], before)
    assert len(files) == 1 and 100 * BYTES < sum(files.values()) <= min(1.2 * 100 * BYTES, stats["bytes"])


def test_half_a_cache_with_workers_hits_by_theory_and_holds_the_limit():
    before_files = memory_files()
    data = cached(400)
    loader = loader_of(data, num_workers=4, persistent_workers=True)
    iterator = numbers(loader)
    before = data.cache_stats()
    assert numbers(loader) == iterator == list(range(400))
    after = data.cache_stats()
    assert after["hits"] - before["hits"] == after["items"]  # fill: exactly what it keeps
    assert 0.4 < after["items"] / 400 < 0.5
    files = memory_files([p.pid for p in multiprocessing.active_children()], before_files)
    assert len(files) == 1 and sum(files.values()) <= 8_000_000


def test_subsets_and_splits_work_through_the_wrapper():
    torch = pytest.importorskip("torch")
    data = cached(100)
    train, val = torch.utils.data.random_split(data, [0.8, 0.2])
    for _ in range(2):
        found = numbers(loader_of(train, num_workers=2)) + numbers(loader_of(val))
        assert sorted(found) == list(range(100))
    assert data.cache_stats()["hits"] == 100
    assert torch.utils.data.ConcatDataset([data, data])[150]["index"] == 50


def test_the_end_of_an_epoch_is_printed_by_whoever_ends_it(capfd):
    data = cached(100, quiet=False)
    for _ in range(2):
        numbers(loader_of(data, num_workers=2))
    out = capfd.readouterr().out
    assert out.count("[Arrays] Cache Stats:") == 2
    assert "  - Last Epoch: 100.00% (100 hits / 0 misses)" in out


def test_an_exception_in_a_worker_arrives_with_its_traceback():
    data = forebay.Cached(Broken(10), SIZE, quiet=True)
    with pytest.raises(LookupError, match="(?s)DataLoader worker.*samples.py.*sample 3 is broken"):
        numbers(loader_of(data, num_workers=1))


def test_kill_9_of_a_worker_loses_nothing_and_leaves_nothing():
    torch = pytest.importorskip("torch")
    before = shared_files()
    data = forebay.Cached(Slow(200), "32MB", quiet=True, transform=with_process)
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=4, persistent_workers=True)
    # What torch says depends on what the worker was at: a batch half sent is a connection that ended.
    with pytest.raises((RuntimeError, OSError, EOFError)):
        for number, batch in enumerate(loader):
            # torch's handler would raise at every child's end from now on, wherever we are.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if number == 30:
                os.kill(int(batch["pid"][0]), signal.SIGKILL)
    for worker in multiprocessing.active_children():  # an error that is still held may hold them, too
        worker.kill()
    kept = data.cache_stats()["items"]
    assert kept > 50
    del loader
    eventually(lambda: data.cache_stats()["processes"] == 1, 10)
    assert data.cache_stats()["items"] >= kept
    assert set(range(200)) == {int(i) for b in loader_of(Arrayed(data), num_workers=2)
                               for i in b["index"]}
    assert data.cache_stats()["items"] == 200
    assert data.cache_stats()["misses"] <= 200 + 16  # only what was under way is loaded twice
    assert shared_files() <= before


def shared_files():
    """But for what torch may leave of a batch that a killed worker was sending."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("torch_")}


def with_process(sample):
    return {**sample, "pid": os.getpid()}


class Arrayed:
    """The same, checked in the worker."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        sample = self.data[index]
        check(sample)
        return {"index": sample["index"]}


TORCHRUN = """
    import json, os, sys
    sys.path.insert(0, sys.argv[1])
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler
    import forebay
    from samples import Arrays, check
    if __name__ == "__main__":
        dist.init_process_group("gloo")
        data = forebay.Cached(Arrays(100), "32MB", quiet=True)
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=5, sampler=sampler, num_workers=1)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for batch in loader:
                pass
            dist.barrier()
        if dist.get_rank() == 0:
            json.dump(data.cache_stats(), open(sys.argv[2], "w"))
        dist.barrier()
        dist.destroy_process_group()
"""


def test_torchrun_ranks_share_one_cache(tmp_path):
    pytest.importorskip("torch")
    script, out = tmp_path / "train.py", tmp_path / "stats.json"
    script.write_text(textwrap.dedent(TORCHRUN))
    folder = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                           "--nproc_per_node=4", str(script), folder, str(out)],
                          capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    stats = json.loads(out.read_text())
    assert (stats["items"], stats["hits"], stats["misses"]) == (100, 200, 100)
    assert stats["limit_bytes"] == 32_000_000


def test_nothing_is_said_or_left_when_all_is_well(python):
    stats = python("""
        import json, sys, warnings
        warnings.simplefilter("error")
        import forebay
        data = forebay.Cached(list(range(50)), "8MB")
        for _ in range(10):
            data[3]
        print(json.dumps(data.cache_stats()))
    """)
    assert stats["hits"] == 9
