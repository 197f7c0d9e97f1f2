"""forebay.DataLoader beside torch's: the same batches, bit for bit, and the same errors."""

from __future__ import annotations

import collections
import gc
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils import data as theirs  # noqa: E402

import forebay  # noqa: E402

Pair = collections.namedtuple("Pair", "left right")
LARGE = 20_000  # floats of a sample: its batches travel in shared memory


def draws() -> float:
    return torch.rand(()).item() + np.random.rand() + random.random()


class Dicts(theirs.Dataset):
    """Random augmentation, nested containers, strings, arrays; small and large fields."""

    def __init__(self, count: int = 17) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict:
        return {"large": torch.full((LARGE,), float(index)) + draws(), "small": torch.tensor([index]),
                "array": np.full((100, 90), index + draws()), "text": f"sample {index}",
                "pair": Pair(index, [draws(), np.float32(1)]), "flag": index % 2 == 0}


class Tuples(Dicts):
    def __getitem__(self, index: int) -> tuple:
        return torch.rand(3, 50, 60).transpose(0, 2) + index, index, b"bytes"


class Batches(Dicts):
    def __getitems__(self, indexes: list) -> list:
        return [Dicts.__getitem__(self, index) for index in indexes]


class Failing(Dicts):
    def __getitem__(self, index: int) -> dict:
        if index % 5 == 3:
            raise KeyError(f"no sample {index}")
        return super().__getitem__(index)


class Stream(theirs.IterableDataset):
    def __iter__(self):
        info = theirs.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, 19 - 4 * first, step):
            yield torch.full((LARGE,), float(index)) + draws(), index


class Shared(theirs.Sampler):
    """Draws from the trainer's own random state, as late as it is asked."""

    def __len__(self) -> int:
        return 12

    def __iter__(self):
        for _ in range(12):
            yield int(torch.randint(17, ()))


def views(samples: list) -> dict:
    """A custom collate_fn: tensors that share a storage, one that does not fit, an array."""
    whole = torch.stack([sample["large"] for sample in samples])
    return {"whole": whole, "part": whole[:, 1:50], "transposed": whole.t(), "none": None,
            "empty": torch.empty(0, 3), "sparse": torch.eye(3).to_sparse(),
            "array": np.stack([sample["array"] for sample in samples]),
            "bf16": whole.to(torch.bfloat16), "class": torch.Size([1, 2])}


def assert_same(one, other, place: str = "batch") -> None:
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, other.layout), place
        if one.layout == torch.strided:
            assert one.stride() == other.stride(), place
            assert one.untyped_storage().nbytes() == other.untyped_storage().nbytes(), place
            assert torch.equal(one, other), place
        else:
            assert torch.equal(one.to_dense(), other.to_dense()), place
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.flags.writeable == other.flags.writeable, place
        assert np.array_equal(one, other), place
    elif isinstance(one, dict):
        assert list(one) == list(other), place
        for key in one:
            assert_same(one[key], other[key], f"{place}[{key!r}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), place
        for number, pair in enumerate(zip(one, other)):
            assert_same(*pair, f"{place}[{number}]")
    else:
        assert one == other, place


def walk(loader, epochs: int) -> list:
    """All batches and errors, and the trainer's draws between them."""
    seen: list = []
    for _ in range(epochs):
        iterator = iter(loader)
        while True:
            try:
                seen.append(next(iterator))
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001
                text = str(error).replace("torch/utils/data/_utils", "")
                seen.append((type(error), text.splitlines()[-1]))
            seen.append(draws())
    return seen


def side_by_side(make_dataset, epochs: int = 2, ours: dict | None = None, **keywords) -> None:
    seen = []
    for kind, more in ((theirs.DataLoader, {}), (forebay.DataLoader, ours or {})):
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        made = {name: value() if callable(value) and name in ("sampler", "generator") else value
                for name, value in keywords.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen.append(walk(kind(make_dataset(), **made, **more), epochs))
    assert len(seen[0]) == len(seen[1])
    for number, pair in enumerate(zip(*seen)):
        assert_same(*pair, f"step {number}")


WORKERS = (0, 1, 2, 4)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("dataset", [Dicts, Tuples, Batches, Failing, Stream])
@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_kinds_of_data_sets(dataset, batch_size, workers) -> None:
    side_by_side(dataset, epochs=1, batch_size=batch_size, num_workers=workers)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("order", [
    {"shuffle": True}, {"sampler": Shared}, {"shuffle": True, "drop_last": True},
    {"shuffle": True, "generator": torch.Generator}], ids=str)
def test_orders(order, workers) -> None:
    side_by_side(Dicts, batch_size=3, num_workers=workers, **order)


@pytest.mark.parametrize("dataset", [Dicts, Stream])
@pytest.mark.parametrize("memory", [None, "100KB", "200MB"])
def test_persistent_workers_and_little_memory(dataset, memory) -> None:
    side_by_side(dataset, epochs=3, batch_size=2, num_workers=2, persistent_workers=True,
                 prefetch_factor=3, ours={"memory": memory})


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_fn_of_the_user(workers) -> None:
    side_by_side(Dicts, batch_size=4, num_workers=workers, collate_fn=views)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method) -> None:
    side_by_side(Dicts, epochs=1, batch_size=4, num_workers=2, shuffle=True,
                 multiprocessing_context=method)


def test_out_of_order_gives_the_same_batches_in_some_order() -> None:
    loader = forebay.DataLoader(range(40), batch_size=4, num_workers=2, in_order=False)
    assert sorted(itertools.chain(*(batch.tolist() for batch in loader))) == list(range(40))


@pytest.mark.parametrize("keywords", [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
    {"batch_size": None, "drop_last": True}, {"sampler": [1], "shuffle": True}, {"nonsense": 1},
    {"multiprocessing_context": "fork"}], ids=str)
def test_refusals_have_torchs_words(keywords) -> None:
    texts = []
    for kind in (theirs.DataLoader, forebay.DataLoader):
        with pytest.raises((ValueError, TypeError)) as raised:
            kind(Dicts(), **keywords)
        texts.append((raised.type, str(raised.value)))
    assert texts[0] == texts[1]


# ---- What is ours ----

def test_a_batch_is_the_callers_own_and_its_memory_comes_back() -> None:
    loader = forebay.DataLoader(Dicts(40), batch_size=2, num_workers=2)
    batches = list(loader)
    assert [batch["small"].flatten().tolist() for batch in batches] == [
        [2 * n, 2 * n + 1] for n in range(20)]
    batches[0]["large"][:] = 5
    assert batches[1]["large"].max() < 10 and loader.stats()["held_bytes"] > 0
    del batches
    gc.collect()
    assert loader.stats()["used_bytes"] == 0 and loader.stats()["largest_batch_bytes"] > 100_000


def test_a_field_saves_as_its_own_bytes(tmp_path: Path) -> None:
    batch = next(iter(forebay.DataLoader(Dicts(), batch_size=2, num_workers=1)))
    torch.save(batch["array"], tmp_path / "one")
    assert (tmp_path / "one").stat().st_size < 2 * 100 * 90 * 8 + 5000


def test_holding_more_than_memory_is_an_error_in_words() -> None:
    loader = forebay.DataLoader(Dicts(40), batch_size=4, num_workers=2, memory="3MB")
    with pytest.raises(forebay.HeldError, match="hold fewer batches.*raise memory="):
        list(loader)
    assert sum(1 for _ in loader) == 10  # one after the other they fit
    assert loader.stats()["used_bytes"] <= loader.stats()["limit_bytes"]


def test_a_plain_torch_loader_with_our_collate_fn_gives_equal_batches() -> None:
    ours = forebay.DataLoader(range(10), batch_size=2)
    rebuilt = theirs.DataLoader(ours.dataset, batch_size=2, num_workers=2,
                                collate_fn=ours.collate_fn)
    assert [batch.tolist() for batch in rebuilt] == [batch.tolist() for batch in ours]
    again = forebay.DataLoader(range(10), collate_fn=ours.collate_fn)
    assert again.collate_fn is ours.collate_fn
    assert pickle.loads(pickle.dumps(ours.collate_fn))([1, 2]).tolist() == [1, 2]


def test_the_collector_runs_again_after_workers_were_forked() -> None:
    class Node:
        pass

    node = Node()
    node.itself = node
    seen = weakref.ref(node)
    iterator = iter(forebay.DataLoader(range(8), num_workers=1))
    assert gc.get_freeze_count() == 0
    del iterator, node
    gc.collect()
    assert seen() is None


def test_batches_beyond_memory_are_said_once() -> None:
    loader = forebay.DataLoader(Dicts(12), batch_size=4, num_workers=1, memory="100KB")
    with pytest.warns(forebay.ForebayWarning, match="did not fit into memory=") as said:
        assert len(list(loader)) == 3
    assert len(said) == 1


def test_killed_workers_lose_no_memory_and_raise_torchs_text() -> None:
    loader = forebay.DataLoader(Dicts(200), batch_size=2, num_workers=2)
    for _ in range(10):
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(RuntimeError, match="is killed by signal|exited unexpectedly"):
            os.kill(iterator._workers[0].pid, signal.SIGKILL)  # torch's SIGCHLD handler may raise here
            collections.deque(iterator, maxlen=0)
        del iterator
        gc.collect()
    assert loader.stats()["used_bytes"] == 0


def test_kill_of_the_trainer_leaves_no_worker() -> None:
    program = textwrap.dedent("""
        import time, torch, forebay
        class Slow:
            def __len__(self): return 1000
            def __getitem__(self, index): time.sleep(0 if index < 4 else 600); return index
        iterator = iter(forebay.DataLoader(Slow(), num_workers=2))
        for _ in range(4): next(iterator)
        print(*(worker.pid for worker in iterator._workers), flush=True)
        time.sleep(600)
    """)
    trainer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in trainer.stdout.readline().split()]
    assert len(pids) == 2
    trainer.kill()
    trainer.wait()
    for _ in range(500):
        if not any(Path(f"/proc/{pid}").exists() and
                   "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in pids):
            break
        time.sleep(0.01)
    else:
        pytest.fail("workers outlived their trainer")
