#!/usr/bin/env python3
"""make_seeds.py -- write the fuzzers' small seeds into tests/corpus/ (needs NumPy; same each time)."""
import io
import pathlib
import zipfile

import numpy as np

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "corpus"


def put(fuzzer, name, data):
    (CORPUS / fuzzer).mkdir(parents=True, exist_ok=True)
    (CORPUS / fuzzer / name).write_bytes(data)


def npy(array, version=None):
    to = io.BytesIO()
    np.lib.format.write_array(to, array, version=version)
    return to.getvalue()


def npz(method, **arrays):
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w", method) as archive:
        for name, array in arrays.items():
            # A fixed date: the same bytes each time.
            member = zipfile.ZipInfo(name + ".npy", (2000, 1, 1, 0, 0, 0))
            member.compress_type = method
            archive.writestr(member, npy(array))
    return to.getvalue()


def write_npy():
    small = np.arange(6).reshape(2, 3)
    for code in ("u1", "<i2", ">i4", "<f2", ">f4", "<f8", "<c8", "?"):
        put("npy", "dtype_" + code.strip("<>?") + ("_big" if ">" in code else "")
            + ("bool" if code == "?" else ""), npy(small.astype(code)))
    put("npy", "fortran", npy(np.asfortranarray(small.astype("<f4"))))
    put("npy", "scalar", npy(np.array(1.5)))
    put("npy", "empty", npy(np.zeros((0, 4), "<f4")))
    put("npy", "version2", npy(small.astype("<f4"), (2, 0)))
    put("npy", "version3", npy(small.astype("<f4"), (3, 0)))
    put("npy", "huge_shape", npy(small.astype("<f4")).replace(b"(2, 3)", b"(9999999999999, 9999999)"))


def write_npz():
    arrays = {"a": np.arange(8, dtype="<f4"), "b": np.zeros((2, 2), "u1")}
    put("npz", "stored", npz(zipfile.ZIP_STORED, **arrays))
    put("npz", "deflated", npz(zipfile.ZIP_DEFLATED, **arrays))
    put("npz", "empty", npz(zipfile.ZIP_STORED))
    put("npz", "cut", npz(zipfile.ZIP_DEFLATED, **arrays)[:-30])


def write_config():
    """YAML text; what stands behind a NUL is a setting."""
    examples = CORPUS.parent.parent / "examples"
    for path in sorted(examples.glob("*.yaml")):
        put("config", path.stem, path.read_bytes())
    put("config", "json", b'{"source": {"kind": "npy", "path": ["a/*.npy", "b"]}, "workers": 3}')
    put("config", "setting", b"batch: {size: 4}\n\0memory.budget=1.5GiB")
    put("config", "foreign", b"NUM_WORKERS: 4\nprefetch_factor: 2\nCACHE_SIZE_GB: 50\n")
    put("config", "anchors", b"a: &x [1, 2]\nb: *x\n")


if __name__ == "__main__":
    write_npy()
    write_npz()
    write_config()
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    print(f"{len(files)} seeds, {sum(path.stat().st_size for path in files)} bytes")
