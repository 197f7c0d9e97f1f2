"""Small data sets, and the consumer's checksum computed with NumPy."""
import json

import numpy as np
import pytest


def checksum_of(arrays):
    """First, last and every 4096th byte of each array in C order and native endian, added up."""
    total = 0
    for array in arrays:
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        data = np.frombuffer(plain.tobytes(), np.uint8)
        if data.size:
            total += int(data[::4096].sum(dtype=np.uint64)) + int(data[-1])
    return f"{total % 2 ** 64:016x}"


@pytest.fixture(scope="session")
def checksum():
    return checksum_of


@pytest.fixture
def result(forebay):
    """The object a command printed with --json; it must succeed."""
    def call(*arguments, **more):
        done = forebay(*arguments, "--json", **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return call


@pytest.fixture
def failure(forebay):
    """The error a command printed with --json; stdout must be exactly one object."""
    def call(code, *arguments, **more):
        done = forebay(*arguments, "--json", **more)
        assert done.returncode == code, done.stdout + done.stderr
        error = json.loads(done.stdout)
        assert set(error) == {"error"} and set(error["error"]) == {"status", "message", "place"}
        assert error["error"]["message"] in done.stderr, "a person reads the same"
        return error["error"]
    return call


@pytest.fixture
def scans(tmp_path, result):
    """40 scans of 64 kB; .folder, .settings for run, .made is what generate said."""
    class Scans:
        folder = tmp_path / "scans"
        made = result("generate", "lidar", folder, "--files", 40, "--bytes", "64kB")
        settings = ["--set", "source.kind=bin", "--set", f"source.path={folder}/*.bin"]
    return Scans
