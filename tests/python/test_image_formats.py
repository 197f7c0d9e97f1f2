"""Formats beside JPEG and PNG against Pillow's decoder on the same files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy
import pytest

import forebay
from test_images import Image, config, difference, load, load_one, pixels, reference

SIZES = [(1, 1), (7, 1), (1, 9), (33, 17), (64, 48), (251, 333)]


def as_pillow(path: Path) -> None:
    assert difference(load_one(path), numpy.asarray(reference(path))) == 0


def modes(size: tuple) -> dict:
    picture = Image.fromarray(pixels(*size))
    alpha = picture.copy()
    alpha.putalpha(Image.fromarray(pixels(*size, 5)[:, :, 0]))
    return {"RGB": picture, "RGBA": alpha, "L": picture.convert("L"), "1": picture.convert("1"),
            "P": picture.quantize(200)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "1", "P"])
def test_a_bmp_is_decoded_as_pillow_does(tmp_path, size, mode):
    modes(size)[mode].save(tmp_path / "a.bmp")
    as_pillow(tmp_path / "a.bmp")


def bmp(width: int, height: int, bits: int, rows: bytes, masks: tuple = (), palette: bytes = b"",
        header: int = 40) -> bytes:
    """A BMP of forms that Pillow does not write."""
    info = struct.pack("<IiiHHIIiiII", max(header, 40), width, height, 1, bits, 3 if masks else 0,
                       0, 0, 0, len(palette) // 4, 0)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    info += b"".join(struct.pack("<I", mask) for mask in masks)
    info = info.ljust(header if header > 40 else len(info), b"\0") + palette
    return b"BM" + struct.pack("<IHHI", 14 + len(info) + len(rows), 0, 0, 14 + len(info)) + info + rows


NOISE = numpy.random.default_rng(3).integers(0, 256, 4096, dtype="u1").tobytes()
BMPS = {
    "555": bmp(9, 7, 16, NOISE[:20 * 7]),
    "565": bmp(9, 7, 16, NOISE[:20 * 7], (0xf800, 0x7e0, 0x1f)),
    "top down": bmp(9, -7, 24, NOISE[:28 * 7]),
    "BGRX": bmp(9, 7, 32, NOISE[:36 * 7]),
    "XBGR masks": bmp(9, 7, 32, NOISE[:36 * 7], (0xff000000, 0xff0000, 0xff00)),
    "RGBA masks": bmp(9, 7, 32, NOISE[:36 * 7], (0xff, 0xff00, 0xff0000, 0xff000000), header=108),
    "4 bits": bmp(9, 7, 4, NOISE[:8 * 7], palette=NOISE[:64]),
    "old header": bmp(9, 7, 8, NOISE[:12 * 7], palette=NOISE[:768], header=12),
}


@pytest.mark.parametrize("form", BMPS)
def test_a_bmp_of_any_form(tmp_path, form):
    (tmp_path / "a.bmp").write_bytes(BMPS[form])
    as_pillow(tmp_path / "a.bmp")


PPMS = {
    "P1": b"P1\n# a comment\n9 3\n" + b"1 0 1 1 0\n0101" * 3,
    "P2": b"P2 3 2 15\n0 1 2\n# c\n13 14 15\n",
    "P3": b"P3\n2 2\n255\n" + b" ".join(b"%d" % (i * 21) for i in range(12)),
    "P3 deep": b"P3\n2 2\n1000\n" + b" ".join(b"%d" % (i * 83) for i in range(12)),
    "P4": b"P4\n13 5\n" + NOISE[:10],
    "P5": b"P5 13#x\n 5 255\n" + NOISE[:65],
    "P5 odd": b"P5 13 5 200\n" + bytes(byte % 201 for byte in NOISE[:65]),
    "P6": b"P6\t13 5\n255\n" + NOISE[:195],
    "P6 odd": b"P6 13 5 100\n" + bytes(byte % 101 for byte in NOISE[:195]),
    "P6 deep": b"P6 13 5 65535\n" + NOISE[:390],
}


@pytest.mark.parametrize("form", PPMS)
def test_a_ppm_of_any_form(tmp_path, form):
    (tmp_path / "a.ppm").write_bytes(PPMS[form])
    as_pillow(tmp_path / "a.ppm")


def test_deep_grey_ppm_keeps_its_upper_byte(tmp_path):
    (tmp_path / "a.pgm").write_bytes(b"P5 13 5 65535\n" + NOISE[:130])
    wanted = numpy.frombuffer(NOISE[:130], ">u2").reshape(5, 13) >> 8
    numpy.testing.assert_array_equal(load_one(tmp_path / "a.pgm"), numpy.stack([wanted] * 3, -1))


BAD = {
    "cut.bmp": (BMPS["BGRX"][:-5], "BMP, row 1 of 7: it lies at byte 270, but the file has 301"),
    "header.bmp": (BMPS["BGRX"][:30], "inside the header"),
    "rle.bmp": (BMPS["old header"][:14] + struct.pack("<IiiHHII", 40, 9, 7, 1, 8, 1, 0) + bytes(99),
                "8 bits a pixel and compression 1 is not read"),
    "bomb.bmp": (bmp(100000, 100000, 24, b""), "100000 x 100000"),
    "cut.ppm": (PPMS["P6"][:-1], "PPM, row 5 of 5: the file ends early"),
    "text.ppm": (b"P2 2 2 9\n1 2 3 x\n", "PPM, row 2 of 2"),
    "value.ppm": (b"P2 2 2 9\n1 2 3 10\n", "no number from 0 to 9"),
    "header.ppm": (b"P6 12 x 255\n", "the header must be P6, width, height, a maximum"),
}


@pytest.mark.parametrize("source", [{}, {"size": 8}, {"size": 8, "crop": "center"}])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_says_what_is_wrong(tmp_path, name, source):
    (tmp_path / name).write_bytes(BAD[name][0])
    with pytest.raises(forebay.Error, match=BAD[name][1]) as failure:
        load(config(tmp_path / name, source))
    assert name in str(failure.value)


def test_a_folder_has_all_formats_whatever_their_names(tmp_path):
    (tmp_path / "a.bmp").write_bytes(PPMS["P6"])  # the first bytes decide, not the name
    (tmp_path / "b.ppm").write_bytes(BMPS["BGRX"])
    (tmp_path / "c.PGM").write_bytes(PPMS["P5"])
    found = load(config(tmp_path))
    assert [batch["image"].shape[1:] for batch in found] == [(5, 13, 3), (7, 9, 3), (5, 13, 3)]


@pytest.mark.parametrize("name, data", [("a.bmp", BMPS["BGRX"]), ("a.ppm", PPMS["P6"]),
                                        ("a.pgm", PPMS["P2"])])
def test_other_formats_are_resized_and_cut_like_any(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    picture = reference(tmp_path / name)
    wide = picture.resize((16, picture.height), Image.Resampling.BILINEAR)
    wanted = numpy.asarray(wide.resize((16, 12), Image.Resampling.BILINEAR))
    assert difference(load_one(tmp_path / name, size=[12, 16]), wanted) == 0
