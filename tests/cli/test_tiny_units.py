"""Tiny units: what they take beside their bytes, and the same batches."""
import io
import tarfile

import numpy as np
import pytest

FILES = 2000
FIXED = 48 << 10  # of a cache of one process, however many units it has
INDEX = 37  # bytes for each equal unit; of unequal ones the tables of their pages are in WASTE
WASTE = 1.25  # unequal units of about 1 KiB; docs/cache.md has the table


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Kind and shape of set -> settings, its decoded bytes, and those of each unit."""
    folder, draw = tmp_path_factory.mktemp("tiny"), np.random.default_rng(0)
    sizes = {"equal": np.full(FILES, 50), "unequal": draw.integers(5, 130, FILES), "texts": texts(),
             "specks": np.random.default_rng(4).integers(6, 19, FILES),
             "larger": np.random.default_rng(8).integers(550, 1500, FILES),  # not tiny
             "falling": np.sort(np.random.default_rng(5).integers(5, 130, FILES))[::-1]}
    found = {}
    for name, rows in sizes.items():
        (folder / name).mkdir()
        fill = np.random.default_rng(1)
        for number, count in enumerate(rows):
            fill.random((count, 4), dtype=np.float32).tofile(folder / name / f"{number:04d}.bin")
        found[name] = ({"source.kind": "bin", "source.path": f"{folder}/{name}/*.bin"},
                       int(rows.sum()) * 16, rows * 16)
    units = []
    (folder / "npy").mkdir()
    for number in range(FILES):
        point, text = draw.random((20, 3)), draw.integers(0, 99, draw.integers(1, 99))
        np.save(folder / f"npy/{number:04d}_a.npy", point)
        np.save(folder / f"npy/{number:04d}_b.npy", text)
        units += [point.nbytes, text.nbytes]
    found["npy"] = ({"source.kind": "npy", "source.fields.a": f"{folder}/npy/*_a.npy",
                     "source.fields.b": f"{folder}/npy/*_b.npy"}, sum(units), units)
    for name in ("tar", "bad"):
        path = folder / f"{name}.tar"
        units = pack(path, draw, name == "bad")
        found[name] = ({"source.kind": "tar", "source.path": path}, sum(units), units)
    return found


def texts():
    """As texts are: most have some hundred bytes, one a quarter of a megabyte."""
    rows = np.clip(np.random.default_rng(2).lognormal(3.3, 1.4, FILES).astype(int), 1, 6000)
    rows[77] = 16000
    return rows


def pack(path, draw, bad):
    units = []
    with tarfile.open(path, "w") as archive:
        for number in range(FILES):
            label = b"none" if bad and number == 700 else b"%d" % (number % 10)
            larger = 300 if number == 700 else 0  # whatever stands in for it fits in its place
            for end, data in (("cls", label), ("txt", b"x" * (draw.integers(1, 300) + larger)),
                              ("raw", draw.bytes(int(draw.integers(5000, 8000)) + 10 * larger))):
                member = tarfile.TarInfo(f"{number:06d}.{end}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
                units.append(8 if end == "cls" else len(data))
    return units


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """Shards of .npy members, which say how large they are only where they are read; as in `sets`."""
    folder, draw = tmp_path_factory.mktemp("members"), np.random.default_rng(3)
    found = {}
    for name, sizes in (("equal", np.full(FILES, 250)), ("unequal", draw.integers(20, 480, FILES))):
        with tarfile.open(folder / f"{name}.tar", "w") as archive:
            for number, size in enumerate(sizes):
                data = io.BytesIO()
                np.save(data, draw.random(size, dtype=np.float32))
                member = tarfile.TarInfo(f"{number:06d}.npy")
                member.size = data.tell()
                data.seek(0)
                archive.addfile(member, data)
        found[name] = ({"source.kind": "tar", "source.path": folder / f"{name}.tar"},
                       int(sizes.sum()) * 4, sizes * 4)
    return found


@pytest.fixture
def run(result, sets):
    def call(name, epochs=3, **more):
        source = sets[name][0] if isinstance(name, str) else name
        settings = {**source, "batch.size": 16, "batch.collate": "ragged", "workers": 3,
                    "memory.budget": "128MiB", "memory.share": "off",
                    **{key.replace("memory_", "memory."): value for key, value in more.items()}}
        return result("run", "--epochs", epochs, *(part for key, value in settings.items()
                                                   for part in ("--set", f"{key}={value}")))
    return call


@pytest.mark.parametrize("name", ("equal", "unequal", "texts", "specks", "npy", "tar"))
def test_the_same_batches_with_every_policy_and_size(run, sets, name):
    total = sets[name][1]
    want = run(name, memory_cache="off")["checksum"]
    for policy in ("fill", "next-use", "lru"):
        for share in (0.2, 0.6, 2):
            got = run(name, memory_cache=int(total * share) + (200 << 10), memory_policy=policy)
            assert got["checksum"] == want, (policy, share)


@pytest.mark.parametrize("policy", ("auto", "lru", "next-use"))
@pytest.mark.parametrize("name", ("equal", "unequal", "texts", "npy"))
def test_all_of_them_take_little_more_than_their_bytes(run, sets, name, policy):
    total = sets[name][1]
    units = FILES * (2 if name == "npy" else 1)
    most = (total if name == "equal" else WASTE * total) + INDEX * units
    found = run(name, memory_cache=int(most) + (72 << 10), memory_policy=policy)
    assert found["cache"]["policy"] == (policy if policy != "auto" else "fill")
    assert found["epochs"][-1]["misses"] == 0 and found["cache"]["evictions"] == 0
    assert found["cache"]["items"] == units
    # Index, tables of pages and half-filled last pages of all units are the rest.
    assert found["cache"]["bytes"] - FIXED <= most


@pytest.mark.parametrize("shuffle", ("true", "false"))
@pytest.mark.parametrize("name", ("equal", "unequal", "npy", "tar"))
def test_of_a_subset_nothing_else_is_read_or_kept(run, sets, tmp_path, name, shuffle):
    """Every seventh sample, listed backwards."""
    path, chosen = tmp_path / "subset", range(FILES - 1, -1, -7)
    path.write_text("".join(f"{number}\n" for number in chosen))
    order = {"order.subset": path, "order.shuffle": shuffle, "workers": 1}
    want = run(name, memory_cache="off", **order)
    for share in (0.3, 2):
        cache = int(WASTE * share * sets[name][1] * len(chosen) / FILES) + (400 << 10)
        found = run(name, memory_cache=cache, **order)
        assert found["checksum"] == want["checksum"]
        assert found["epochs"][0]["bytes_read"] <= want["epochs"][0]["bytes_read"]
    assert found["epochs"][-1]["misses"] == 0


def test_what_is_not_kept_is_read_alone(run, sets):
    total = sets["equal"][1]
    found = run("equal", workers=1, memory_cache=int(total * 0.5) + FIXED + INDEX * FILES)
    hits = [epoch["hits"] for epoch in found["epochs"][1:]]
    assert hits == [found["cache"]["items"]] * 2
    kept = hits[0] / FILES
    assert 0.46 < kept < 0.54
    assert found["epochs"][0]["bytes_read"] == total, "in the first epoch nothing is read twice"
    assert found["epochs"][1]["bytes_read"] == pytest.approx(total * (1 - kept), rel=0.05)


@pytest.mark.parametrize("policy", ("lru", "next-use"))
@pytest.mark.parametrize("name", ("equal", "unequal", "npy", "tar"))
def test_what_makes_room_goes_one_by_one_and_wastes_little(run, sets, tmp_path, name, policy):
    """A cache too small for all of them."""
    total, weights = sets[name][1], tmp_path / "weights"
    units = FILES * {"npy": 2, "tar": 3}.get(name, 1)
    weights.write_text("".join(f"{1 + number % 9}\n" for number in range(FILES)))
    found = run(name, epochs=6, workers=1, memory_cache=total // 2 + FIXED + INDEX * units,
                memory_policy=policy, **{"order.weights": weights})
    cache, last = found["cache"], found["epochs"][-1]
    assert cache["evictions"] > units / 10 and last["hits"] > units / 3
    assert last["bytes_read"] < 1.5 * total * last["misses"] / units, "headers are read, neighbours not"
    if name in ("equal", "unequal"):  # no headers
        assert last["bytes_read"] == pytest.approx(total * last["misses"] / units, rel=0.1)
    # What is kept is about as large as any: the mean of a few hundred of them is within some percent.
    assert cache["items"] * total / units >= 0.97 * total / 2 / (1.05 if name == "equal" else WASTE)
    assert cache["bytes"] <= cache["limit_bytes"]


@pytest.mark.parametrize("name", ("equal", "unequal", "larger"))
def test_fill_keeps_what_is_drawn_most(run, sets, tmp_path, name):
    """With weights first come are those, not the smallest."""
    path, weights = tmp_path / "weights", np.random.default_rng(7).lognormal(0, 1.5, FILES)
    path.write_text("".join(f"{weight}\n" for weight in weights))
    found = run(name, epochs=8, workers=1, memory_policy="fill", **{"order.weights": path},
                memory_cache=int(0.4 * sets[name][1]) + FIXED + INDEX * FILES)
    kept = found["cache"]["items"]
    low, high = 0, 1e6  # the time by which so many have come
    for _ in range(100):
        time = (low + high) / 2
        come = 1 - np.exp(-weights * time)
        low, high = (time, high) if come.sum() < kept else (low, time)
    hits = sum(epoch["hits"] for epoch in found["epochs"][4:]) / FILES / 4
    assert found["cache"]["evictions"] == 0
    assert (0.32 if name == "unequal" else 0.36) < kept / FILES < 0.44
    assert hits == pytest.approx((weights * come).sum() / weights.sum(), abs=0.02) and hits > 0.7


def test_a_weight_of_0_leaves_room_for_all_others(run, sets, tmp_path):
    weights = tmp_path / "weights"
    weights.write_text("".join(f"{int(number != 5)}\n" for number in range(FILES)))
    found = run("unequal", epochs=14, memory_cache="64MiB", **{"order.weights": weights})
    assert found["cache"]["items"] == FILES - 1
    assert found["epochs"][-1]["misses"] <= 2 and found["cache"]["evictions"] == 0
    assert found["cache"]["bytes"] - FIXED - INDEX * FILES <= WASTE * sets["unequal"][1]


@pytest.mark.parametrize("policy", ("fill", "lru", "next-use"))
@pytest.mark.parametrize("name", ("equal", "unequal"))
def test_members_whose_size_is_a_guess_waste_little(run, members, name, policy):
    source, total, _ = members[name]
    want = run(source, memory_cache="off")["checksum"]
    for share in (0.5, WASTE):
        found = run(source, workers=1, memory_policy=policy,
                    memory_cache=int(share * total) + FIXED + INDEX * FILES)
        assert found["checksum"] == want
        if share > 1:
            assert found["epochs"][-1]["misses"] == 0 and found["cache"]["items"] == FILES
        else:
            assert found["cache"]["items"] >= 0.97 * FILES / 2 / WASTE


def test_members_without_values_are_no_riddle(run, tmp_path):
    """Rows of no columns: nothing can be guessed from how large a member is."""
    path = tmp_path / "empty.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(20):
            data = io.BytesIO()
            np.save(data, np.zeros((number, 0), np.float32))
            data.write(b"\0" * (64 * (number == 9)))
            member = tarfile.TarInfo(f"{number:06d}.npy")
            member.size = data.tell()
            data.seek(0)
            archive.addfile(member, data)
    found = run({"source.kind": "tar", "source.path": path}, memory_cache="1MiB",
                memory_policy="lru", on_error="skip")
    assert found["samples"] + found["skipped"] == 3 * 20


def test_lru_hits_of_tiny_unequal_units_are_those_of_the_theory(run, sets):
    """Each has its part of the memory by its size, and that changes nothing (docs/plan.md)."""
    found = run("unequal", epochs=8, workers=1, memory_policy="lru",
                memory_cache=int(0.6 * sets["unequal"][1]) + FIXED + INDEX * FILES)
    kept = found["cache"]["items"] / FILES
    hits = sum(epoch["hits"] for epoch in found["epochs"][1:]) / FILES / 7
    assert kept > 0.5 and hits == pytest.approx(kept + (1 - kept) * np.log(1 - kept), abs=0.015)


def test_a_bad_unit_spoils_no_other(run):
    """Which label is no number is known only when it is read."""
    for cache in ("off", "64MiB"):
        found = run("bad", memory_cache=cache, on_error="skip")
        assert found["skipped"] == 3 and found["samples"] == 3 * (FILES - 1), cache
    assert found["epochs"][-1]["misses"] < 200


def test_a_replacement_in_a_subset_is_the_same_with_and_without_a_cache(run, tmp_path):
    """One of five listed samples is bad."""
    path = tmp_path / "subset"
    path.write_text("".join(f"{number}\n" for number in range(696, 701)))
    more = {"order.subset": path, "order.shuffle": "false", "on_error": "replace"}
    assert (run("bad", memory_cache="64MiB", **more)["checksum"] ==
            run("bad", memory_cache="off", **more)["checksum"])


@pytest.mark.parametrize("policy", ("auto", "lru"))
def test_preload_fills_the_cache(run, policy):
    found = run("unequal", memory_cache="64MiB", memory_preload="true", memory_policy=policy)
    assert [epoch["misses"] for epoch in found["epochs"]] == [0, 0, 0]
