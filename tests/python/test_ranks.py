"""Several ranks: the order is cut among them, whoever launched them, and a state of some ranks goes
on with any other number of them."""

import itertools

import numpy
import pytest

import forebay
from known import bin_config

SAMPLES = 103  # a prime: nothing divides it

LAUNCHERS = {
    "torchrun": {"RANK": "{r}", "WORLD_SIZE": "{w}", "LOCAL_RANK": "{r}",
                 "LOCAL_WORLD_SIZE": "{w}"},
    "slurm": {"SLURM_PROCID": "{r}", "SLURM_NTASKS": "{w}", "SLURM_STEP_NUM_TASKS": "{w}",
              "SLURM_LOCALID": "{r}", "SLURM_STEP_TASKS_PER_NODE": "{w}", "SLURM_JOB_ID": "7"},
    "openmpi": {"OMPI_COMM_WORLD_RANK": "{r}", "OMPI_COMM_WORLD_SIZE": "{w}",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "{w}", "OMPI_COMM_WORLD_LOCAL_RANK": "{r}"},
    "pmi": {"PMI_RANK": "{r}", "PMI_SIZE": "{w}", "MPI_LOCALNRANKS": "{w}"},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for number in range(SAMPLES):
        numpy.full((3, 4), number, "f4").tofile(folder / f"{number}.bin")
    return folder


def open_rank(folder, rank=0, world=1, order=None, **more):
    budget = f"{4 * world}MiB" if world > 16 else "64MiB"  # each rank takes its part of it
    more["memory"] = {"budget": budget, **more.get("memory", {})}
    config = bin_config(folder, order={"shuffle": True, "seed": 5, **(order or {})},
                        batch={"size": 4}, workers=1, **more)
    if world > 1:
        config["order"] |= {"rank": rank, "world": world}
    return forebay.Loader(config)


def epoch(loader):
    return [int(i) for batch in loader for i in batch["index"]]


def all_ranks(folder, world, epochs=1, **more):
    """[rank][epoch] -> samples"""
    got = []
    for rank in range(world):
        with open_rank(folder, rank, world, **more) as loader:
            got.append([epoch(loader) for _ in range(epochs)])
    return got


def woven(parts):
    """Rank r has global positions r, r + W, ..."""
    return [sample for row in itertools.zip_longest(*parts) for sample in row if sample is not None]


@pytest.fixture(scope="module")
def whole(small):
    with open_rank(small) as loader:
        return epoch(loader)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_are_found_from_the_launcher(small, whole, monkeypatch, launcher):
    parts, budgets = [], []
    for rank in range(3):
        for name, value in LAUNCHERS[launcher].items():
            monkeypatch.setenv(name, value.format(r=rank, w=3))
        with open_rank(small) as loader:
            parts.append(epoch(loader))
            budgets.append(loader.stats()["memory"]["budget_bytes"])
    assert woven(parts)[:SAMPLES] == whole
    assert budgets == [64 * 2**20 // 3] * 3  # each takes its part


@pytest.mark.parametrize("world", [2, 3, 7, 32])
@pytest.mark.parametrize("order", [{}, {"shuffle": False}, {"group": "block", "block": 5}])
def test_the_ranks_together_are_the_order(small, world, order):
    with open_rank(small, order=order) as loader:
        expected = epoch(loader)
    pad = woven([rank[0] for rank in all_ranks(small, world, order={**order, "ends": "pad"})])
    drop = woven([rank[0] for rank in all_ranks(small, world, order={**order, "ends": "drop"})])
    assert pad[:SAMPLES] == expected
    assert len(pad) == -(-SAMPLES // world) * world
    assert set(pad[SAMPLES:]) <= set(expected)
    assert drop == expected[:SAMPLES // world * world]


def test_ranks_that_get_unequal_parts_are_told(small, caplog):
    caplog.set_level("INFO", logger="forebay")
    with open_rank(small, 0, 4):
        pass
    said = [record.getMessage() for record in caplog.records if "ranks" in record.getMessage()]
    assert len(said) == 1 and "repeats 1" in said[0], said


def test_sticky_keeps_each_sample_on_its_rank(small):
    ranks = all_ranks(small, 4, epochs=3, order={"sticky": "rank", "ends": "drop"})
    for first, *others in ranks:
        for other in others:
            assert len(set(first) ^ set(other)) <= 2  # what is dropped changes
            assert first != other


@pytest.mark.parametrize("before,after", [(1, 3), (3, 1), (2, 5), (4, 3), (7, 2)])
@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_state_goes_on_with_another_number_of_ranks(small, before, after, batches):
    """Nothing lost, nothing repeated in that epoch; the epochs behind it as if nothing was."""
    done, states = [], []
    for rank in range(before):
        with open_rank(small, rank, before, order={"ends": "drop"}) as loader:
            taken = []
            for batch in itertools.islice(loader, batches):
                taken += batch["index"].tolist()
            done.append(taken)
            states.append(loader.state_dict())
    rest, following = [], []
    for rank in range(after):
        with open_rank(small, rank, after, order={"ends": "drop"}) as loader:
            loader.load_state_dict(states)
            rest.append(epoch(loader))
            following.append(epoch(loader))
    with open_rank(small, order={"ends": "drop"}) as loader:
        first, second = epoch(loader), epoch(loader)
    seen = woven(done) + woven(rest)
    assert seen == first[:len(seen)]
    assert len(first) - len(seen) < after  # only what its own end drops
    assert woven(following) == second[:SAMPLES // after * after]


def test_ranks_out_of_step_repeat_and_say_how_much(small):
    states = []
    for rank, batches in enumerate([2, 3]):
        with open_rank(small, rank, 2) as loader:
            for _ in itertools.islice(loader, batches):
                pass
            states.append(loader.state_dict())
    with open_rank(small, 0, 2) as loader:
        with pytest.warns(UserWarning, match="out of step: 4 samples"):
            loader.load_state_dict(states)
        again = next(iter(loader))["index"].tolist()
    with open_rank(small, 0, 2) as loader:
        assert again == [batch["index"].tolist() for batch in itertools.islice(loader, 3)][2]


def test_with_several_ranks_a_broken_sample_is_replaced_by_default(small, tmp_path):
    for number in range(20):
        numpy.full((3, 4), number, "f4").tofile(tmp_path / f"{number}.bin")
    (tmp_path / "7.bin").write_bytes(b"broken")
    ranks = all_ranks(tmp_path, 2)
    assert [len(rank[0]) for rank in ranks] == [10, 10]
    assert 7 not in sum((rank[0] for rank in ranks), [])
    with pytest.raises(forebay.BadDataError, match="7.bin"):
        all_ranks(tmp_path, 1)


@pytest.mark.parametrize("here,part", [(1, 64), (2, 32), (8, 8)])
def test_ranks_here_divide_the_budget(small, here, part):
    with open_rank(small, memory={"ranks_here": here}) as loader:
        assert loader.stats()["memory"]["budget_bytes"] == part * 2**20


def test_subset_and_weights(small, tmp_path):
    (tmp_path / "subset").write_text("5\n9\n77\n")
    (tmp_path / "weights").write_text("".join(f"{number % 3}\n" for number in range(SAMPLES)))
    with open_rank(small, order={"subset": str(tmp_path / "subset")}) as loader:
        first, second = epoch(loader), epoch(loader)
        assert sorted(first) == sorted(second) == [5, 9, 77]
    with open_rank(small, order={"weights": str(tmp_path / "weights"), "draws": 6000}) as loader:
        drawn = numpy.bincount(epoch(loader), minlength=SAMPLES)
    assert drawn[0::3].sum() == 0
    assert 0.45 < drawn[1::3].sum() / drawn[2::3].sum() < 0.55


def test_each_epoch_may_be_a_new_part_of_the_data(small):
    with open_rank(small, order={"draws": 40}) as loader:
        assert len(loader) == 10
        parts = [epoch(loader) for _ in range(6)]
        state = loader.state_dict()
        following = epoch(loader)
    assert all(len(set(part)) == len(part) == 40 for part in parts)
    assert len(set(map(frozenset, parts))) == 6 and len(set(sum(parts, []))) > 90
    with open_rank(small, order={"draws": 40}) as loader:
        loader.load_state_dict(state)
        assert epoch(loader) == following
    with pytest.raises(forebay.BadConfigError, match="order.draws"):
        open_rank(small, order={"draws": SAMPLES + 1})


def test_loaders_of_two_orders_take_nothing_from_each_others_cache(tmp_path):
    """Train and validation of one set of files: when another order needs a unit says nothing."""
    for number in range(100):
        numpy.full((1024, 4), number, "f4").tofile(tmp_path / f"{number}.bin")
    subsets = {"train": range(80), "val": range(80, 100)}

    def part(name, share):  # of validation it holds little more than what is fixed
        (tmp_path / name).write_text("".join(f"{number}\n" for number in subsets[name]))
        return open_rank(tmp_path, order={"subset": str(tmp_path / name)},
                         memory={"share": "job", "cache": share})

    def both():
        caches = [loader.stats()["cache"] for loader in (train, val)]
        assert all(cache["policy"] == "next-use" and cache["evictions"] == 0 for cache in caches)
        return caches[0]["items"], sum(cache["hits"] for cache in caches)

    with part("train", "900KiB") as train, part("val", "180KiB") as val:
        for _ in range(6):
            items, hits = both()
            assert sorted(epoch(train)) == list(subsets["train"])
            assert sorted(epoch(val)) == list(subsets["val"])
        now_items, now_hits = both()
    # Who reads ahead first gets more of it. What is in there stays, and is used once in each epoch.
    assert 30 < items == now_items == now_hits - hits < 60


@pytest.mark.parametrize("kind", ("subset", "weights"))
def test_a_replacement_is_one_that_the_order_has(tmp_path, kind):
    """Training data that are broken must not be replaced by validation data."""
    for number in range(30):
        numpy.full((50, 4), number, "f4").tofile(tmp_path / f"{number:03d}.bin")
    for number in range(0, 20, 2):  # half of those in use
        (tmp_path / f"{number:03d}.bin").write_bytes(b"cut")
    lines = range(20) if kind == "subset" else [int(number < 20) for number in range(30)]
    (tmp_path / "train").write_text("".join(f"{line}\n" for line in lines))
    with open_rank(tmp_path, order={kind: str(tmp_path / "train")}, on_error="replace") as loader:
        for _ in range(3):
            assert set(epoch(loader)) <= set(range(1, 20, 2))
