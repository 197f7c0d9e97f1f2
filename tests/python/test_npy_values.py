"""Held against NumPy: what a Loader gives is what numpy.load gives, bit for bit, for every dtype,
order, endianness, version and way to store it."""

import io
import itertools
import zipfile

import numpy
import pytest

import forebay
from known import bin_config

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = [(), (1,), (17,), (0, 3), (5, 1), (7, 3), (3, 4, 5), (2, 3, 4, 5), (1000, 33)]
FLOATS = ["f2", "f4", "f8"]


def values(dtype, shape, seed=0):
    """Every kind of number the dtype has: all bit patterns are allowed, NaNs and infinities too."""
    random = numpy.random.default_rng(seed)
    kind = numpy.dtype(dtype)
    if kind == bool:
        return random.integers(0, 2, shape).astype(bool)
    count = int(numpy.prod(shape, dtype=numpy.int64))
    return numpy.frombuffer(random.bytes(count * kind.itemsize), kind).reshape(shape)


def same(got, expected):
    """Equal bit for bit: NaN is a value like any other."""
    assert got.dtype == expected.dtype.newbyteorder("=")
    assert got.shape == expected.shape
    plain = numpy.ascontiguousarray(expected, expected.dtype.newbyteorder("=")).reshape(
        expected.shape)
    assert got.tobytes() == plain.tobytes()


def write(path, array, version):
    with open(path, "wb") as file:
        numpy.lib.format.write_array(file, array, version=version)


def load_all(folder, pattern="*.npy", **sections):
    config = bin_config(folder, source={"kind": "npy", "path": f"{folder}/{pattern}"}, **sections)
    config["source"].pop("columns", None)
    with forebay.Loader(config) as loader:
        return [{name: numpy.array(batch[name]) for name in batch} for batch in loader]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=lambda v: f"v{v[0]}")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_array_equals_numpy_load(tmp_path, dtype, endian, order, version):
    kind = numpy.dtype(dtype).newbyteorder(endian)
    for number, shape in enumerate(SHAPES):
        folder = tmp_path / str(number)
        folder.mkdir()
        for which in range(3):
            array = values(dtype, shape, 3 * number + which).astype(kind).copy(order)
            write(folder / f"{which}.npy", array, version)
        batches = load_all(folder, batch={"size": 1})
        assert len(batches) == 3
        for which, batch in enumerate(batches):
            same(batch["data"][0], numpy.load(folder / f"{which}.npy"))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("dtype", [">f4", "<u2", "c16", "bool"])
def test_every_member_of_an_npz_equals_numpy_load(tmp_path, dtype, compressed, order):
    for number in range(4):
        arrays = {"blur": values(dtype, (40, 7), number).copy(order),
                  "sharp": values("f4", (9, 5, 2), number).copy(order)}
        (numpy.savez_compressed if compressed else numpy.savez)(tmp_path / f"{number}.npz", **arrays)
    batches = load_all(tmp_path, "*.npz")
    assert len(batches) == 2
    for number, batch in enumerate(batches):
        for which in range(2):
            with numpy.load(tmp_path / f"{2 * number + which}.npz") as expected:
                same(batch["blur"][which], expected["blur"])
                same(batch["sharp"][which], expected["sharp"])


def test_an_npz_with_mixed_members_and_a_comment(tmp_path):
    array = values("f8", (300, 300))
    with zipfile.ZipFile(tmp_path / "0.npz", "w") as archive:
        for name, how in (("a", zipfile.ZIP_STORED), ("b", zipfile.ZIP_DEFLATED)):
            text = io.BytesIO()
            numpy.save(text, array)
            archive.writestr(zipfile.ZipInfo(name + ".npy"), text.getvalue(), how)
        archive.comment = b"PK\x05\x06 is no end here"
    (batch,) = load_all(tmp_path, "*.npz")
    same(batch["a"][0], array)
    same(batch["b"][0], array)


@pytest.mark.parametrize("rows", [[5, 9, 1, 7], [0, 3, 0, 2]])
@pytest.mark.parametrize("dtype,order", list(itertools.product([">i4", "<f2", "c8"], "CF")))
def test_arrays_of_unequal_length_are_padded_or_joined(tmp_path, dtype, order, rows):
    arrays = [values(dtype, (count, 6), count).copy(order) for count in rows]
    for number, array in enumerate(arrays):
        numpy.save(tmp_path / f"{number}.npy", array)
    (padded,) = load_all(tmp_path, batch={"size": 4, "collate": "pad"})
    assert padded["data_length"].tolist() == rows
    for number, array in enumerate(arrays):
        same(padded["data"][number, :rows[number]], array)
        assert not padded["data"][number, rows[number]:].tobytes().strip(b"\0")
    (ragged,) = load_all(tmp_path, batch={"size": 4, "collate": "ragged"})
    assert ragged["data_offsets"].tolist() == [0, *itertools.accumulate(rows)]
    same(ragged["data"], numpy.concatenate(arrays))


def to_bfloat16(array):
    """Round to nearest even by the bits; a NaN stays one."""
    wide = array.astype("f8")
    bits = wide.astype("f4").view("u4").astype("u8")
    # From f64 through f32 would round twice: where f32 is exact that is no matter.
    exact = wide.astype("f4").astype("f8") == wide
    rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16
    return rounded.astype("u2"), numpy.isnan(wide), exact


@pytest.mark.filterwarnings("ignore:NumPy has no bfloat16")
@pytest.mark.parametrize("target", ["f16", "f32", "bf16"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("endian", ["<", ">"])
def test_casts_round_as_numpy_does(tmp_path, dtype, target, endian):
    array = values(dtype, (65536 if dtype == "f2" else 20000, 3), 5)
    if dtype == "f2":  # every one there is
        array = numpy.tile(numpy.arange(65536, dtype="u2").view("f2")[:, None], (1, 3))
    with numpy.errstate(all="ignore"):
        usual = numpy.linspace(-70000, 70000, array.size).astype(dtype).reshape(array.shape)
        numpy.save(tmp_path / "0.npy", array.astype(numpy.dtype(dtype).newbyteorder(endian)))
        numpy.save(tmp_path / "1.npy", usual.astype(numpy.dtype(dtype).newbyteorder(endian)))
        (batch,) = load_all(tmp_path, batch={"size": 2, "dtype": target})
        for got, from_ in zip(batch["data"], (array, usual)):
            if target == "bf16":
                expected, nan, exact = to_bfloat16(from_)
                bits = got.view("u2")
                check = exact & ~nan
                assert (bits[check] == expected[check]).all()
                assert (((bits[nan] & 0x7f80) == 0x7f80) & ((bits[nan] & 0x7f) != 0)).all()
            else:
                expected = from_.astype({"f16": "f2", "f32": "f4"}[target])
                assert got.dtype == expected.dtype
                numpy.testing.assert_array_equal(numpy.isnan(got), numpy.isnan(expected))
                good = ~numpy.isnan(expected)
                assert got[good].tobytes() == expected[good].tobytes()


@pytest.mark.parametrize("dtype", ["i4", "bool", "c8", "u1"])
def test_what_is_no_real_number_is_not_cast(tmp_path, dtype):
    array = values(dtype, (10, 2))
    numpy.save(tmp_path / "0.npy", array)
    (batch,) = load_all(tmp_path, batch={"size": 1, "dtype": "f16"})
    same(batch["data"][0], array)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("array", [
    numpy.array(["text"]), numpy.array([object()]), numpy.zeros(3, "M8[s]"),
    numpy.zeros(2, [("a", "i4")]), numpy.zeros(2, "f16"), numpy.zeros(2, "S3"),
], ids=["text", "object", "time", "structured", "longdouble", "bytes"])
def test_what_has_no_c_equivalent_is_refused_in_words(tmp_path, array):
    numpy.save(tmp_path / "0.npy", array, allow_pickle=True)
    with pytest.raises(forebay.Error, match="0.npy"):
        load_all(tmp_path)
