"""What a batch holds is what NumPy reads from the files, through every path."""

import numpy
import pytest

import forebay
from known import SCANS, bin_config, scan

FLOATS_AND_INTS = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8",
                   "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]


def test_a_bin_batch_equals_its_files(config):
    with forebay.Loader(config) as loader:
        assert len(loader) == SCANS // 2
        assert loader.samples == SCANS
        for number, batch in enumerate(loader):
            assert list(batch) == ["index", "points"]
            assert batch["index"].dtype == numpy.int64
            assert batch["index"].tolist() == [2 * number, 2 * number + 1]
            expected = numpy.stack([scan(2 * number), scan(2 * number + 1)])
            assert batch["points"].dtype == numpy.float32
            numpy.testing.assert_array_equal(batch["points"], expected)


@pytest.mark.parametrize("dtype", FLOATS_AND_INTS)
@pytest.mark.parametrize("rows", [3, 40000])  # below and above the limit of private copies
def test_every_dtype_of_npy_arrives_as_it_was(tmp_path, dtype, rows):
    files = [((numpy.arange(rows * 2) + number) % 2000).astype(dtype).reshape(rows, 2)
             for number in range(4)]
    for number, values in enumerate(files):
        numpy.save(tmp_path / f"{number}.npy", values)
    config = bin_config(tmp_path, source={"kind": "npy", "path": f"{tmp_path}/*.npy"})
    with forebay.Loader(config) as loader:
        batches = list(loader) if rows == 3 else None
        if batches is None:
            for number, batch in enumerate(loader):
                assert batch["data"].dtype == numpy.dtype(dtype)
                numpy.testing.assert_array_equal(batch["data"],
                                                 numpy.stack(files[2 * number:2 * number + 2]))
        else:
            assert len(batches) == 2
            assert all(batch["data"].dtype == numpy.dtype(dtype) for batch in batches)
            numpy.testing.assert_array_equal(
                numpy.concatenate([batch["data"] for batch in batches]), numpy.stack(files))


def test_several_fields_are_joined_by_stem(tmp_path):
    for field in ("blur", "sharp"):
        (tmp_path / field).mkdir()
        for number in range(4):
            numpy.save(tmp_path / field / f"{number}.npy",
                       numpy.full((8, 3), number + (100 if field == "sharp" else 0), "int32"))
    config = bin_config(tmp_path)
    config["source"] = {"kind": "npy", "fields": {"blur": f"{tmp_path}/blur/*.npy",
                                                  "sharp": f"{tmp_path}/sharp/*.npy"}}
    with forebay.Loader(config, batch_size=4) as loader:
        (batch,) = list(loader)
    assert batch["blur"][:, 0, 0].tolist() == [0, 1, 2, 3]
    assert batch["sharp"][:, 0, 0].tolist() == [100, 101, 102, 103]


def test_pad_and_ragged_keep_every_row(tmp_path):
    lengths = [3, 7, 5, 1]
    for number, rows in enumerate(lengths):
        scan(number, 8)[:rows].tofile(tmp_path / f"{number}.bin")
    config = bin_config(tmp_path, batch={"size": 4, "collate": "pad"})
    with forebay.Loader(config) as loader:
        (batch,) = list(loader)
    assert batch["points"].shape == (4, 7, 4)
    assert batch["points_length"].tolist() == lengths
    for number, rows in enumerate(lengths):
        numpy.testing.assert_array_equal(batch["points"][number, :rows], scan(number, 8)[:rows])
        assert not batch["points"][number, rows:].any()
    with forebay.Loader(config, collate="ragged") as loader:
        (batch,) = list(loader)
    assert batch["points_offsets"].tolist() == [0, 3, 10, 15, 16]
    numpy.testing.assert_array_equal(
        batch["points"],
        numpy.concatenate([scan(number, 8)[:rows] for number, rows in enumerate(lengths)]))


def test_a_file_a_dict_and_keywords_give_the_same(tmp_path, scans, config):
    file = tmp_path / "train.yaml"
    file.write_text(f"source: {{kind: bin, path: '{scans}/*.bin'}}\norder: {{shuffle: false}}\n"
                    "batch: {size: 2}\nmemory: {budget: 64MiB, share: 'off'}\n")

    def indexes(*args, **keywords):
        with forebay.Loader(*args, **keywords) as loader:
            return [batch["index"].tolist() for batch in loader]

    expected = indexes(config)
    assert len(expected) == SCANS // 2
    assert indexes(file) == expected
    assert indexes(str(file), workers=1, prefetch=2) == expected
    assert indexes(settings={"source.kind": "bin", "source.path": f"{scans}/*.bin",
                             "order.shuffle": False, "memory.share": "off"},
                   batch_size=2, memory="64MiB") == expected
    assert indexes(config, batch_size=3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_same_seed_same_batches_whatever_the_workers(config):
    def order(**keywords):
        with forebay.Loader(config, shuffle=True, **keywords) as loader:
            return [batch["index"].tolist() for _ in range(2) for batch in loader]

    first = order(seed=7, workers=1)
    assert order(seed=7, workers=4, prefetch=3) == first
    assert order(seed=8, workers=1) != first
    half = len(first) // 2
    assert sorted(sum(first[:half], [])) == sorted(sum(first[half:], [])) == list(range(SCANS))
    assert first[:half] != first[half:]


def test_bfloat16_is_given_to_numpy_by_ml_dtypes_or_as_its_bits(config, monkeypatch):
    exact = numpy.stack([scan(0), scan(1)]).view(numpy.uint32)
    with forebay.Loader(config, dtype="bf16") as loader:
        points = next(iter(loader))["points"]
        assert points.itemsize == 2
        bits = points.view(numpy.uint16).astype(numpy.uint32) << 16
        assert (numpy.abs(bits.view(numpy.float32) - exact.view(numpy.float32))
                <= exact.view(numpy.float32) / 128).all()
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with forebay.Loader(config, dtype="bf16") as loader:
        with pytest.warns(UserWarning, match="bfloat16") as said:
            for batch in loader:
                assert batch["points"].dtype == numpy.uint16
        assert len(said) == 1


def test_transform_runs_ahead_in_one_other_thread_and_in_order(config):
    import threading

    seen = []

    def transform(batch):
        seen.append(threading.current_thread().name)
        return batch["points"].sum(), batch["index"].tolist()

    with forebay.Loader(config, transform=transform) as loader:
        for _ in range(2):
            results = list(loader)
            assert [index for _, index in results] == [[2 * i, 2 * i + 1]
                                                       for i in range(SCANS // 2)]
            assert results[1][0] == numpy.stack([scan(2), scan(3)]).sum()
    assert len(seen) == SCANS
    assert threading.main_thread().name not in seen


def test_an_exception_of_transform_arrives_in_its_place_and_the_rest_goes_on(config):
    def transform(batch):
        if batch["index"][0] == 4:
            raise KeyError("four")
        return int(batch["index"][0])

    with forebay.Loader(config, transform=transform) as loader:
        iterator = iter(loader)
        assert [next(iterator), next(iterator)] == [0, 2]
        with pytest.raises(KeyError, match="four"):
            next(iterator)
        assert list(iterator) == [6, 8, 10]


def test_tqdm_knows_the_length(config):
    tqdm = pytest.importorskip("tqdm")
    with forebay.Loader(config) as loader:
        bar = tqdm.tqdm(loader, disable=False, file=open("/dev/null", "w"))
        assert bar.total == SCANS // 2
        assert sum(1 for _ in bar) == SCANS // 2


def test_two_loaders_share_a_budget(config):
    budget = forebay.Budget("64MiB")
    with forebay.Loader(config, budget=budget) as train, \
            forebay.Loader(config, budget=budget) as val:
        assert train.stats()["memory"]["budget_bytes"] == 64 * 2**20
        assert sum(1 for _ in zip(train, val)) == SCANS // 2
    with pytest.raises(TypeError, match="not both"):
        forebay.Loader(config, budget=budget, memory="64MiB")
