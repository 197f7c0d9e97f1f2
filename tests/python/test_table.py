"""Tables have the values that pandas and pyarrow read from the same text."""

import csv
import random

import numpy
import pytest

import forebay

pandas = pytest.importorskip("pandas")
arrow_csv = pytest.importorskip("pyarrow.csv")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config(folder, **source):
    return {"source": {"kind": "table", "path": f"{folder}/t.csv", **source},
            "order": {"shuffle": False}, "batch": {"size": 512}, "workers": 2,
            "memory": {"budget": "64MiB", "share": "off"}}


def collect(settings):
    """All columns, whole."""
    with forebay.Loader(settings) as loader:
        parts = [{name: values.copy() for name, values in batch.items()} for batch in loader]
    return {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}


def numbers(count, seed=3):
    """Texts of numbers of every kind a program may write."""
    draw = random.Random(seed)
    forms = ["{:.17g}", "{:.6f}", "{:.3e}", "{!r}", "{:.15g}", "{:.0f}", "{:.2f}", "{:.20f}"]
    for _ in range(count):
        value = draw.choice([draw.uniform(-1, 1), draw.gauss(0, 1e6), draw.random() * 1e-300,
                             draw.random() * 10 ** draw.randint(-25, 25), draw.randint(-9, 9)])
        yield draw.choice(forms).format(float(value))


def test_reals_are_pythons_float_to_the_last_bit(tmp_path):
    texts = list(numbers(30000))
    (tmp_path / "t.csv").write_text("x\n" + "\n".join(texts) + "\n")
    found = collect(config(tmp_path, types={"x": "f64"}))["x"]
    expected = numpy.array([float(text) for text in texts])
    assert found.dtype == numpy.float64
    assert found.tobytes() == expected.tobytes()
    arrow = arrow_csv.read_csv(tmp_path / "t.csv")["x"].to_numpy()
    assert found.tobytes() == arrow.astype("f8").tobytes()


def test_types_and_values_are_pandas(tmp_path):
    draw = random.Random(8)
    with open(tmp_path / "t.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["whole", "real", "word", "big", "index"])
        for number in range(5000):
            writer.writerow([draw.randint(-99, 99), repr(draw.gauss(0, 1)),
                             draw.choice(["a", "b,c", 'd"e', "f\ng", ""] if number else ["a"]),
                             draw.randint(-2**63, 2**63 - 1), number])
    expected = pandas.read_csv(tmp_path / "t.csv")
    found = collect(config(tmp_path, missing="nan"))
    for name in ("whole", "real", "big"):
        assert found[name].dtype == expected[name].dtype
        numpy.testing.assert_array_equal(found[name], expected[name])
    numpy.testing.assert_array_equal(found["index_"], expected["index"])
    codes, _ = pandas.factorize(expected["word"])  # by first appearance, -1 is missing
    numpy.testing.assert_array_equal(found["word"], codes)


ODD = {
    "crlf": "a,b\r\n1,2\r\n3,4\r\n",
    "no last line end": "a,b\n1,2\n3,4",
    "byte order mark": "\ufeffa,b\n1,2\n3,4\n",
    "blank lines": "a,b\n\n1,2\n\n\n3,4\n\n",
    "quoted numbers": 'a,b\n"1","2"\n3,"4"\n',
    "quoted header": '"a","b"\n1,2\n3,4\n',
    "spaces": "a,b\n 1,2 \n3 , 4\n",
    "plus": "a,b\n1.0,2e0\n3,4E-0\n",
    "leading zeros": "a,b\n01,002\n3,4\n",
    "points": "a,b\n1.,2\n3,4.\n",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_text_is_read_as_pandas_reads_it(tmp_path, name):
    (tmp_path / "t.csv").write_text(ODD[name], newline="")
    expected = pandas.read_csv(tmp_path / "t.csv")
    found = collect(config(tmp_path))
    assert list(found) == ["index", "a", "b"]
    for column in ("a", "b"):
        numpy.testing.assert_array_equal(found[column], expected[column].astype("f8"))


def parts(folder, rows=20000, count=3):
    """Shards, and the whole as pandas reads them."""
    frames = []
    draw = numpy.random.default_rng(2)
    for number in range(1, count + 1):
        frame = pandas.DataFrame({"id": numpy.arange(rows) + number * rows,
                                  "x": draw.normal(size=rows), "y": draw.normal(size=rows) * 1e4})
        frame.to_csv(folder / f"t_part{number}.csv", index=False)
        frames.append(pandas.read_csv(folder / f"t_part{number}.csv"))
    return pandas.concat(frames)


def test_shards_are_one_table(tmp_path):
    expected = parts(tmp_path)
    found = collect(config(tmp_path))
    for name in expected:
        numpy.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("dtype", ["keep", "f16"])
def test_a_matrix_is_the_columns_in_f32(tmp_path, dtype):
    expected = parts(tmp_path, 3000).to_numpy().astype("f4")
    settings = config(tmp_path, **{"as": "matrix"})
    settings["batch"]["dtype"] = dtype
    with numpy.errstate(over="ignore"):
        expected = expected if dtype == "keep" else expected.astype("f2")
    numpy.testing.assert_array_equal(collect(settings)["data"], expected)


def test_only_the_fields_that_are_asked_for(tmp_path):
    expected = parts(tmp_path, 500)
    settings = config(tmp_path)
    settings["batch"]["fields"] = ["y"]
    found = collect(settings)
    assert list(found) == ["index", "y"]
    numpy.testing.assert_array_equal(found["y"], expected["y"])


@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 3}, {"prefetch": 1},
                                      {"memory": {"cache": "off"}}, {"memory": {"cache": "2MB"}}])
def test_the_same_batches_whatever_the_memory(tmp_path, settings):
    expected = parts(tmp_path)
    base = config(tmp_path)
    base["order"] = {"shuffle": True, "group": "none", "seed": 4}
    for key, value in settings.items():
        base[key] = {**base[key], **value} if isinstance(value, dict) else value
    with forebay.Loader(base) as loader:
        for _ in range(2):
            seen = []
            for batch in loader:
                rows = expected.iloc[batch["index"]]
                for name in expected:
                    numpy.testing.assert_array_equal(batch[name], rows[name])
                seen.extend(batch["index"].tolist())
            assert sorted(seen) == list(range(len(expected)))


def test_a_table_that_does_not_fit_is_shuffled_by_blocks(tmp_path):
    expected = parts(tmp_path, 400000, 2)
    settings = config(tmp_path)
    settings["order"] = {"shuffle": True, "group": "block"}
    settings["memory"]["budget"] = "12MiB"
    with forebay.Loader(settings) as loader:
        total, order = 0, []
        for batch in loader:
            numpy.testing.assert_array_equal(batch["x"], expected["x"].to_numpy()[batch["index"]])
            total += len(batch["index"])
            order.extend(batch["index"][:4].tolist())
        stats = loader.stats()
    assert total == len(expected)
    assert order != sorted(order)
    assert stats["memory"]["peak_bytes"] <= 12 << 20


@pytest.mark.parametrize("order", ({"draws": 5000}, {"weights": "weights"}, {"sticky": "rank"}))
def test_what_cannot_come_in_blocks_is_not_made_to(tmp_path, caplog, order):
    """Nobody asked for blocks: that a table does not fit is no reason to refuse the order."""
    caplog.set_level("INFO", "forebay")
    expected = parts(tmp_path, 400000, 2)
    if "weights" in order:
        (tmp_path / "weights").write_text("1\n" * len(expected))
        order = {"weights": str(tmp_path / "weights"), "draws": 5000}
    settings = config(tmp_path)
    settings["order"] = {"shuffle": True, **order}
    settings["memory"]["budget"] = "12MiB" if "weights" not in order else "16MiB"
    with forebay.Loader(settings) as loader:
        batch = next(iter(loader))
        numpy.testing.assert_array_equal(batch["x"], expected["x"].to_numpy()[batch["index"]])
    assert not any("order.group: block" in record.message for record in caplog.records)
