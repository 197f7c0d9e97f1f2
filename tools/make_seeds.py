#!/usr/bin/env python3
"""make_seeds.py -- write the fuzzers' small seeds into tests/corpus/ (needs NumPy and Pillow; same each time)."""
import io
import json
import pathlib
import re
import struct
import zipfile
import zlib

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


def write_csv():
    put("csv", "plain", b"a,b\n1,2.5\n-3,1e22\n")
    put("csv", "quoted", b'a,b\r\n"1","x, ""y""\nz"\r\n2,\r\n')
    put("csv", "numbers", b"9007199254740993,1.7976931348623159e308,4.9e-324,.5,5.,inf,nan,1e\n")
    put("csv", "open", b'a,"b\n1,2\n')


def jpeg(mode, size=(24, 17), **options):
    from PIL import Image
    y, x = np.mgrid[0:size[1], 0:size[0]]
    picture = Image.fromarray(np.stack([x * 9, y * 13, x * y], -1).astype("u1")).convert(mode)
    to = io.BytesIO()
    picture.save(to, "JPEG", quality=70, **options)
    return to.getvalue()


def bmp(mode):
    from PIL import Image
    to = io.BytesIO()
    Image.fromarray(np.arange(27 * 5, dtype="u1").reshape(5, 9, 3)).convert(mode).save(to, "BMP")
    return to.getvalue()


def png(colour, bits, interlace=0, extra=b""):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 9, 7, bits, colour, 0, 0, interlace)
    row = bytes([0]) + bytes(range(-(-9 * channels * bits // 8)))
    palette = chunk(b"PLTE", bytes(range(48))) if colour == 3 else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + palette + extra +
            chunk(b"IDAT", zlib.compress(row * 7)) + chunk(b"IEND", b""))


EXIF = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"


def write_images():
    """The last bytes are knobs of the fuzzers: size, filter and draw; the allowance."""
    put("exif", "little", EXIF)
    put("exif", "big", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0")
    put("exif", "segment", b"\xff\xd8\xff\xe1\0\x22Exif\0\0" + EXIF)
    for name, options in (("420", {}), ("444", {"subsampling": 0}), ("progressive",
                          {"progressive": True}), ("exif", {"exif": b"Exif\0\0" + EXIF})):
        put("jpeg", name, jpeg("RGB", **options) + b"\x08\x09\x00\x01")
    put("jpeg", "grey", jpeg("L") + b"\x20\x05\x02\x02")
    put("jpeg", "cmyk", jpeg("CMYK") + b"\x03\x30\x80\x03")
    for colour, bits in ((0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 4), (4, 8), (6, 8), (6, 16)):
        put("png", f"colour{colour}_bits{bits}", png(colour, bits) + b"\xff")
    put("png", "interlaced", png(2, 8, 1) + b"\xff")
    for mode in ("1", "P", "RGB", "RGBA"):
        put("bmp", mode, bmp(mode) + b"\xff")
    put("ppm", "P1", b"P1\n# c\n3 2\n101 0 1 1\xff")
    put("ppm", "P2", b"P2 3 2 15\n0 1 2 13 14 15\xff")
    put("ppm", "P4", b"P4 9 2\n" + bytes(range(4)) + b"\xff")
    put("ppm", "P5", b"P5 3 2 65535\n" + bytes(range(12)) + b"\xff")
    put("ppm", "P6", b"P6 3 2 255\n" + bytes(range(18)) + b"\xff")


def write_config():
    """YAML text; what stands behind a NUL is a setting."""
    examples = CORPUS.parent.parent / "examples"
    for path in sorted(examples.glob("*.yaml")):
        put("config", path.stem, path.read_bytes())
    put("config", "json", b'{"source": {"kind": "npy", "path": ["a/*.npy", "b"]}, "workers": 3}')
    put("config", "setting", b"batch: {size: 4}\n\0memory.budget=1.5GiB")
    put("config", "foreign", b"NUM_WORKERS: 4\nprefetch_factor: 2\nCACHE_SIZE_GB: 50\n")
    put("config", "anchors", b"a: &x [1, 2]\nb: *x\n")


def fields(of, values):
    """What the governor's log writes of a view or a past: a value by the kind of each."""
    header = (CORPUS.parents[1] / "src/governor/decide.h").read_text()
    rows = re.search(rf"#define {of}\(X\)((?:.*\\\n)*.*\n)", header).group(1)
    return {name: values[kind] for kind, name in re.findall(r"X\(([NTR]), (\w+)\)", rows)}


def write_watching():
    """Requests to a loader, lines of a log, a log; a page is made of zeros and texts."""
    put("control", "set", b"set workers=4 prefetch=2 memory.budget=8GiB")
    put("control", "auto", b"set workers=auto cpu.share=1")
    put("control", "bad", b"set batch.size=3 =x y")
    put("recorder", "log", b'{"kind": "start", "n": 1}\n{"kind": "snapshot"}\nnot json\n{"n')
    put("page", "texts", b"\xff" * 64 + b"train\0" + bytes(200) + b"/sys/fs/cgroup/x" + bytes(900))
    line = {"kind": "decision", "action": "cache", "from": 9, "to": 1, "reason": "", "figures": "",
            "view": fields("FB_VIEW_MAP", {"N": 1 << 28, "T": True, "R": 1.5}),
            "past": fields("FB_PAST_MAP", {"N": 0, "T": False, "R": 0.5})}
    put("replay", "decision", json.dumps(line).encode())


if __name__ == "__main__":
    write_watching()
    write_npy()
    write_npz()
    write_csv()
    write_images()
    write_config()
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    print(f"{len(files)} seeds, {sum(path.stat().st_size for path in files)} bytes")
