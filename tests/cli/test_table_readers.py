"""A table's values beside those of pandas (round_trip) and pyarrow, odd text included.

The values come through `forebay pack`, so that no Python package of ours is needed.
"""
import io
import random
import tarfile

import numpy as np
import pytest

ODD = {  # name -> text, columns a and b; what every reader agrees on
    "plain": "a,b\n1,2.5\n-3,4e-3\n",
    "carriage returns": "a,b\r\n1,2\r\n3,4\r\n",
    "no last line end": "a,b\n1,2\n3,4",
    "byte order mark": "\ufeffa,b\n1,2\n3,4\n",
    "quoted numbers": 'a,b\n"1","2.5"\n3,"4"\n',
    "quoted header": '"a","b"\n1,2\n3,4\n',
    "a delimiter in a quoted header": '"a","b"\n1,"2"\n',
    "exponents": "a,b\n1e3,2E-3\n3.5e+2,4e0\n",
    "long fractions": "a,b\n0.1234567890123456789012345678901234567890,1\n2,3\n",
    "leading zeros": "a,b\n01.5,002.25\n3,4\n",
    "negative zero": "a,b\n-0.0,0.0\n1,2\n",
    "huge and tiny": "a,b\n1.7976931348623157e308,5e-324\n2.2250738585072014e-308,1e-310\n",
    "halfway": "a,b\n9007199254740993.0,1.00000000000000011102230246251565\n1.5,2.5\n",
    "a blank line at the end": "a,b\n1,2\n3,4\n\n",
    "infinities": "a,b\ninf,-inf\n1,2\n",
    "only one column": "a\n1.5\n2.5\n",
    "integers": "a,b\n9223372036854775807,-9223372036854775808\n0,1\n",
}


def packed(result, folder, **settings):
    more = "".join(f", {key}: {value}" for key, value in settings.items())
    (folder / "c.yaml").write_text(f"source: {{kind: table, path: t.csv{more}}}\n")
    result("pack", folder / "c.yaml", folder / "out", "--force",
           env={"XDG_CACHE_HOME": str(folder / "cache")})
    columns = {}
    for path in sorted(folder.glob("out-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                key, name, _ = member.name.split(".", 2)
                columns.setdefault(name, []).append(
                    np.load(io.BytesIO(tar.extractfile(member).read())))
    return {name: np.concatenate(blocks) for name, blocks in columns.items()}


def same(found, expected):
    """Equal to the last bit, NaNs and signs of zeros included."""
    found, expected = np.asarray(found, "f8"), np.asarray(expected, "f8")
    assert found.tobytes() == expected.tobytes(), (found, expected)


@pytest.mark.parametrize("name", ODD)
def test_odd_text_is_pandas_with_round_trip(result, tmp_path, name):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "t.csv").write_text(ODD[name], newline="")
    expected = pandas.read_csv(tmp_path / "t.csv", float_precision="round_trip")
    found = packed(result, tmp_path)
    assert list(found) == list(expected)
    for column in found:
        same(found[column], expected[column])


@pytest.mark.parametrize("name", ODD)
def test_odd_text_is_pyarrows(result, tmp_path, name):
    csv = pytest.importorskip("pyarrow.csv")
    (tmp_path / "t.csv").write_text(ODD[name], newline="")
    expected = csv.read_csv(tmp_path / "t.csv")
    found = packed(result, tmp_path)
    assert list(found) == expected.column_names
    for column in found:
        same(found[column], expected[column].to_numpy())


def test_a_table_of_any_numbers_is_that_of_both(result, tmp_path):
    pandas = pytest.importorskip("pandas")
    csv = pytest.importorskip("pyarrow.csv")
    draw = random.Random(5)
    forms = [lambda: repr(draw.gauss(0, 1)), lambda: f"{draw.uniform(-1e6, 1e6):.5f}",
             lambda: f"{draw.gauss(0, 1) * 10**draw.randint(-300, 300):.17g}",
             lambda: str(draw.randint(-10**15, 10**15)), lambda: f"{draw.random():.20f}", lambda: ""]
    with open(tmp_path / "t.csv", "w") as file:
        file.write("a,b,c,d\n")
        for _ in range(20000):
            file.write(",".join(draw.choice(forms)() for _ in range(4)) + "\n")
    found = packed(result, tmp_path, missing="nan")
    frame = pandas.read_csv(tmp_path / "t.csv", float_precision="round_trip")
    arrow = csv.read_csv(tmp_path / "t.csv")
    for column in "abcd":
        np.testing.assert_array_equal(found[column], frame[column].to_numpy())
        np.testing.assert_array_equal(found[column], arrow[column].to_numpy())
