"""Windows are what NumPy's sliding windows give, whatever the memory and the cache."""

import numpy
import pytest

import forebay

ROWS = [50, 7, 64, 33]
WINDOW, STRIDE = 16, 5


def series(folder, name="s", dtype="float32", columns=6):
    """Arrays of different lengths, one of them shorter than a window."""
    random = numpy.random.default_rng(5)
    arrays = [(random.normal(size=(rows, columns)) * 100).astype(dtype) for rows in ROWS]
    for number, values in enumerate(arrays):
        numpy.save(folder / f"{name}_{number}.npy", values)
    return arrays


def windows_of(arrays, pad):
    found = []
    for values in arrays:
        rows = len(values)
        last = rows - WINDOW
        starts = list(range(0, last + 1, STRIDE))
        if pad and (last < 0 or last % STRIDE):
            starts.append(len(starts) * STRIDE)
        for start in starts:
            window = numpy.zeros((WINDOW, *values.shape[1:]), values.dtype)
            part = values[start:start + WINDOW]
            window[:len(part)] = part
            found.append(window)
    return numpy.stack(found)


def config(folder, **source):
    return {"source": {"kind": "windows", "path": f"{folder}/s_*.npy", "window": WINDOW,
                       "stride": STRIDE, **source},
            "order": {"shuffle": False}, "batch": {"size": 5}, "workers": 2,
            "memory": {"budget": "32MiB", "share": "off"}}


def collect(settings, field="window"):
    with forebay.Loader(settings) as loader:
        return numpy.concatenate([batch[field].copy() for batch in loader])


@pytest.mark.parametrize("cache", ["off", "48KiB", "auto"])
@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_windows_are_numpys(tmp_path, tail, cache):
    arrays = series(tmp_path)
    settings = config(tmp_path, tail=tail)
    settings["memory"]["cache"] = cache
    with forebay.Loader(settings) as loader:
        for _ in range(2):  # the second epoch comes from the cache, if there is one
            found = numpy.concatenate([batch["window"].copy() for batch in loader])
            numpy.testing.assert_array_equal(found, windows_of(arrays, tail == "pad"))


@pytest.mark.parametrize("dtype", ["int16", "float64", "uint8", ">f4"])
def test_any_type_is_kept(tmp_path, dtype):
    arrays = series(tmp_path, dtype=dtype)
    found = collect(config(tmp_path))
    assert found.dtype == numpy.dtype(dtype).newbyteorder("=")
    numpy.testing.assert_array_equal(found, windows_of(arrays, False))


def test_lengths_of_padded_windows(tmp_path):
    arrays = series(tmp_path)
    settings = config(tmp_path, tail="pad")
    settings["batch"] = {"size": 100, "collate": "pad"}
    with forebay.Loader(settings) as loader:
        batch = next(iter(loader))
        expected = [min(WINDOW, rows - start)
                    for rows in map(len, arrays)
                    for start in range(0, max(1, rows - WINDOW + STRIDE), STRIDE)]
        assert batch["window_length"].tolist() == expected
        numpy.testing.assert_array_equal(batch["window"], windows_of(arrays, True))


def test_several_fields_are_cut_alike(tmp_path):
    one, two = series(tmp_path, "x"), series(tmp_path, "y", "int32", 2)
    settings = config(tmp_path)
    del settings["source"]["path"]
    settings["source"]["fields"] = {"x": f"{tmp_path}/x_*.npy", "y": f"{tmp_path}/y_*.npy"}
    numpy.testing.assert_array_equal(collect(settings, "x"), windows_of(one, False))
    numpy.testing.assert_array_equal(collect(settings, "y"), windows_of(two, False))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_normalised_as_numpy_does_it(tmp_path, dtype):
    arrays = series(tmp_path, dtype=dtype)
    mean, std = [1.5, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7]
    expected = (windows_of(arrays, False).astype("f4") - numpy.float32(mean)) / numpy.float32(std)
    numpy.testing.assert_array_equal(collect(config(tmp_path, mean=mean, std=std)), expected)


def test_computed_mean_and_std(tmp_path):
    arrays = series(tmp_path)
    rows = numpy.concatenate(arrays).astype("f8")
    expected = (windows_of(arrays, False) - rows.mean(0).astype("f4")) / rows.std(0).astype("f4")
    numpy.testing.assert_allclose(collect(config(tmp_path, normalise="auto")), expected, rtol=1e-6)


def test_a_flat_file(tmp_path):
    arrays = series(tmp_path)
    for number, values in enumerate(arrays):
        values.tofile(tmp_path / f"{number}.bin")
    settings = config(tmp_path, path=f"{tmp_path}/*.bin", columns=6)
    numpy.testing.assert_array_equal(collect(settings), windows_of(arrays, False))


def test_a_broken_file_is_one_sample_that_on_error_decides_about(tmp_path):
    arrays = series(tmp_path)
    (tmp_path / "s_1.npy").write_bytes(b"not an array")
    settings = config(tmp_path)
    with pytest.raises(forebay.Error, match="s_1.npy"):
        collect(settings)
    settings["on_error"] = "skip"
    expected = windows_of([arrays[0], *arrays[2:]], False)
    numpy.testing.assert_array_equal(collect(settings), expected)


@pytest.mark.parametrize("tenths", range(11))
def test_no_more_is_read_than_the_windows_that_are_not_kept(tmp_path, tenths):
    """At most 1.05 x (1 - c) x the windows' bytes are read in an epoch, at every share c that is kept."""
    files, rows = 10, 4096
    values = numpy.arange(rows * 16, dtype="f4").reshape(rows, 16)
    for number in range(files):
        numpy.save(tmp_path / f"s_{number}.npy", values)
    settings = config(tmp_path)
    settings["order"] = {"shuffle": True}
    cache = tenths * (values.nbytes + 4096) + 65536
    settings["memory"] |= {"budget": "64MiB", "cache": cache if tenths else "off"}
    with forebay.Loader(settings) as loader:
        for _ in range(3):
            for _ in loader:
                pass
        stats = loader.stats()
    last = stats["epochs"][-1]
    assert stats["cache"]["items"] == tenths
    assert last["bytes_read"] <= 1.05 * (1 - tenths / files) * stats["bytes"] / 3
