"""Bad files among windows and tables: a message with the path, skipped by rule, inside the budget."""
import os

import numpy as np
import pytest


def header_lies(path):
    np.save(path, np.zeros((100, 3), "f4"))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"(100, 3)", b"(999, 3)"))


def cut(path):
    np.save(path, np.zeros((100, 3), "f4"))
    os.truncate(path, path.stat().st_size - 5)


def closed(path):
    np.save(path, np.zeros((100, 3), "f4"))
    path.chmod(0)


BAD = {
    "cut": cut, "a header that lies": header_lies, "closed": closed,
    "wrong magic": lambda path: path.write_bytes(b"PK\x03\x04" + b"\0" * 500),
    "empty": lambda path: path.write_bytes(b""),
    "header cut": lambda path: path.write_bytes(b"\x93NUMPY\x01\0\x76\0{'descr'"),
    "NUL bytes": lambda path: path.write_bytes(bytes(4096)),
    "folder": lambda path: path.mkdir(),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "other shape": lambda path: np.save(path, np.zeros((100, 4), "f4")),
    "other type": lambda path: np.save(path, np.zeros((100, 3), "f8")),
    "a single number": lambda path: np.save(path, np.float32(1)),
    "objects": lambda path: np.save(path, np.array([{}, []], object), allow_pickle=True),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_series_is_named_and_can_be_skipped(result, forebay, tmp_path, name):
    if name == "closed" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    for number in (0, 2):
        np.save(tmp_path / f"s{number}.npy", np.ones((100, 3), "f4"))
    bad = tmp_path / "s1.npy"
    BAD[name](bad)
    settings = ["--set", "source.kind=windows", "--set", f"source.path={tmp_path}/s*.npy",
                "--set", "source.window=10", "--set", "source.stride=10",
                "--set", "memory.budget=16MiB"]
    done = forebay("run", *settings, "--json")
    listed = done.returncode == 1
    if listed:
        assert "s1.npy" in done.stderr
    else:  # a folder or a link to nothing is no file: that is said, or it is no match
        assert name in ("folder", "link to itself", "link to nothing")
    result_ = result("run", *settings, "--set", "on_error=skip", "--set", "max_errors=9")
    assert (result_["samples"], result_["skipped"]) == (20, 1 if listed else 0)
    assert result_["memory"]["peak_bytes"] <= 16 << 20


TABLES = {
    "folder": lambda path: path.mkdir(),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "empty": lambda path: path.write_bytes(b""),
    "only line ends": lambda path: path.write_bytes(b"\n\n\n"),
    "only a header": lambda path: path.write_bytes(b"a,b\n"),
    "NUL bytes": lambda path: path.write_bytes(bytes(5000)),
    "UTF-16": lambda path: path.write_bytes("a,b\n1,2\n".encode("utf-16")),
    "ragged": lambda path: path.write_bytes(b"a,b\n1,2\n3\n"),
    "ragged the other way": lambda path: path.write_bytes(b"a,b\n1,2\n3,4,5\n"),
    "a quote that never closes": lambda path: path.write_bytes(b'a,b\n1,"2\n' + b"3,4\n" * 99999),
    "a number that is too large": lambda path: path.write_bytes(b"a,b\n1,1e999\n"),
    "pictures": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(100_000)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table_is_an_error_that_names_it(failure, tmp_path, name):
    TABLES[name](tmp_path / "t.csv")
    error = failure(1, "run", "--set", "source.kind=table", "--set",
                    f"source.path={tmp_path}/t.csv", "--set", "memory.budget=32MiB",
                    env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert error["status"] in ("BAD_DATA", "MISSING", "IO") and "t.csv" in error["message"]
    assert not list((tmp_path / "cache").rglob("*.tmp*")), "nothing half done is kept"


def test_a_closed_part_is_named(failure, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    for number in (1, 2):
        (tmp_path / f"t_part{number}.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t_part2.csv").chmod(0)
    error = failure(1, "run", "--set", "source.kind=table", "--set",
                    f"source.path={tmp_path}/t.csv")
    assert "t_part2.csv" in error["message"]
