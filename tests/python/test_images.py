"""Images against Pillow: every form of file there is, every size, crop and layout."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy
import pytest

import forebay

PIL = pytest.importorskip("PIL")
from PIL import Image, ImageOps  # noqa: E402

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
           "nearest": Image.Resampling.NEAREST}
SIZES = [(1, 1), (1, 7), (7, 1), (2, 2), (16, 16), (17, 33), (64, 48), (333, 251), (8191, 3),
         (3, 8191), (640, 481)]


def pixels(width: int, height: int, seed: int = 0) -> numpy.ndarray:
    """Smooth colours with some grain: what a codec is made for, and different everywhere."""
    noise = numpy.random.default_rng(seed + width * 10007 + height)
    y, x = numpy.mgrid[0:height, 0:width]
    waves = numpy.stack([numpy.sin(x / 9 + seed) * numpy.cos(y / 7), numpy.sin((x + y) / 13),
                         numpy.cos(x / 5) * numpy.sin(y / 11 + seed)], axis=-1)
    grain = noise.normal(0, 6, waves.shape)
    return numpy.clip(128 + 100 * waves + grain, 0, 255).astype(numpy.uint8)


def chunk(kind: bytes, data: bytes) -> bytes:
    return (struct.pack(">I", len(data)) + kind + data +
            struct.pack(">I", zlib.crc32(kind + data)))


def write_png(path: Path, samples: numpy.ndarray, colour: int, bits: int,
              interlace: bool = False) -> None:
    """A PNG of forms that Pillow does not write: 16 bits of colour, interlaced."""
    height, width = samples.shape[:2]
    plain = samples.astype(">u2" if bits == 16 else "u1")
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
              (0, 1, 1, 2)] if interlace else [(0, 0, 1, 1)]
    raw = b""
    for left, top, across, down in passes:
        part = plain[top::down, left::across]
        if part.size:
            raw += b"".join(b"\0" + row.tobytes() for row in part)
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlace))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                     chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def config(path: object, source: dict | None = None, **more: object) -> dict:
    return {"source": {"kind": "images", "path": str(path), **(source or {})},
            "order": {"shuffle": False}, "batch": {"size": 1},
            "memory": {"budget": "256MiB", "cache": "off"}, "workers": 2, **more}


def load(settings: dict) -> list[dict]:
    with forebay.Loader(settings) as loader:
        return [{name: numpy.array(values) for name, values in batch.items()} for batch in loader]


def load_one(path: Path, **source: object) -> numpy.ndarray:
    (batch,) = load(config(path, source))
    return batch["image"][0]


def reference(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def difference(one: numpy.ndarray, two: numpy.ndarray) -> int:
    assert one.shape == two.shape
    return int(numpy.abs(one.astype(int) - two.astype(int)).max())


JPEGS = {
    "444": {"subsampling": 0}, "422": {"subsampling": 1}, "420": {"subsampling": 2},
    "progressive": {"progressive": True}, "progressive 444": {"progressive": True, "subsampling": 0},
    "low quality": {"quality": 5}, "optimised": {"optimize": True},
    "restart markers": {"restart_marker_rows": 1},
}


@pytest.mark.parametrize("form", JPEGS)
@pytest.mark.parametrize("size", SIZES)
def test_a_jpeg_is_decoded_as_pillow_does(tmp_path, form, size):
    Image.fromarray(pixels(*size)).save(tmp_path / "a.jpg", **{"quality": 90, **JPEGS[form]})
    found = load_one(tmp_path / "a.jpg")
    assert found.dtype == numpy.uint8
    assert difference(found, numpy.asarray(reference(tmp_path / "a.jpg"))) == 0


@pytest.mark.parametrize("mode", ["L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_grey_and_cmyk_jpegs_become_rgb(tmp_path, mode, progressive):
    path = tmp_path / "a.jpg"
    Image.fromarray(pixels(99, 70)).convert(mode).save(path, progressive=progressive)
    assert difference(load_one(path), numpy.asarray(reference(path))) == 0


def png_forms() -> dict:
    picture = Image.fromarray(pixels(50, 37))
    alpha = picture.copy()
    alpha.putalpha(Image.fromarray(pixels(50, 37, 5)[:, :, 0]))
    palette = picture.quantize(64)
    return {"RGB": picture, "RGBA": alpha, "L": picture.convert("L"), "LA": alpha.convert("LA"),
            "1": picture.convert("1"), "P": palette, "P2": picture.quantize(4),
            "P1": picture.quantize(2)}


@pytest.mark.parametrize("form", png_forms())
def test_a_png_is_decoded_as_pillow_does(tmp_path, form):
    path = tmp_path / "a.png"
    png_forms()[form].save(path)
    assert difference(load_one(path), numpy.asarray(reference(path))) == 0


@pytest.mark.parametrize("size", SIZES)
def test_a_png_of_any_size(tmp_path, size):
    Image.fromarray(pixels(*size)).save(tmp_path / "a.png")
    assert difference(load_one(tmp_path / "a.png"), pixels(*size)) == 0


def test_palette_and_transparency_lose_the_transparency(tmp_path):
    palette = Image.fromarray(pixels(50, 37)).quantize(64)
    palette.save(tmp_path / "a.png", transparency=bytes(range(64)))
    assert difference(load_one(tmp_path / "a.png"), numpy.asarray(palette.convert("RGB"))) == 0


@pytest.mark.parametrize("interlace", [False, True])
@pytest.mark.parametrize("colour, channels", [(0, 1), (2, 3), (4, 2), (6, 4)])
@pytest.mark.parametrize("bits", [8, 16])
def test_every_depth_of_png_keeps_its_upper_byte(tmp_path, bits, colour, channels, interlace):
    noise = numpy.random.default_rng(bits + colour)
    samples = noise.integers(0, 1 << bits, (29, 43, channels))
    write_png(tmp_path / "a.png", samples, colour, bits, interlace)
    upper = (samples >> (bits - 8)).astype(numpy.uint8)
    expected = upper[:, :, :3] if channels >= 3 else upper[:, :, [0, 0, 0]]
    assert difference(load_one(tmp_path / "a.png"), expected) == 0


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png"])
@pytest.mark.parametrize("source", [{}, {"size": [30, 40]}, {"size": [40, 30], "crop": "center"}])
def test_pictures_are_turned_as_exif_says(tmp_path, orientation, kind, source):
    path = tmp_path / f"a.{kind}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels(90, 61)).save(path, exif=exif.tobytes())
    expected = reference(path)
    assert expected.size == ((90, 61) if orientation < 5 else (61, 90))
    if source:
        expected = expected.crop(center_box(expected.size, source)).resize(
            source["size"][::-1], Image.Resampling.BILINEAR)
    found = load_one(path, **source, **({"exact": True} if source else {}))
    assert difference(found, numpy.asarray(expected)) <= (1 if source else 0)


def xmp_of(orientation: int, element: bool) -> bytes:
    text = f"<tiff:Orientation>{orientation}</tiff:Orientation>" if element else ""
    attribute = "" if element else f' tiff:Orientation="{orientation}"'
    return (f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf'
            f'-syntax-ns#"><rdf:Description rdf:about="" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"'
            f'{attribute}>{text}</rdf:Description></rdf:RDF></x:xmpmeta>').encode()


PLACES = ["eXIf before", "eXIf after", "XMP before", "XMP after", "XMP element", "both", "JPEG XMP"]


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [(90, 61), (400, 300)])  # the second is longer than a first read
def test_an_orientation_is_found_wherever_it_stands(tmp_path, orientation, place, size):
    path = tmp_path / ("a.jpg" if place == "JPEG XMP" else "a.png")
    exif = Image.Exif()
    exif[0x0112] = orientation
    noise = numpy.random.default_rng(1).integers(0, 255, (size[1], size[0], 3)).astype("u1")
    Image.fromarray(noise).save(path)
    data, tiff = path.read_bytes(), exif.tobytes()[6:]
    said = xmp_of(orientation, place == "XMP element")
    text = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + said)
    if place == "JPEG XMP":
        packet = b"http://ns.adobe.com/xap/1.0/\0" + said
        data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(packet) + 2) + packet + data[2:]
    else:
        more = text if "XMP" in place else chunk(b"eXIf", tiff)
        if place == "both":
            more = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp_of(2, False)) + more
        at = len(data) - 12 if "after" in place else 33
        data = data[:at] + more + data[at:]
    path.write_bytes(data)
    expected = reference(path)
    assert expected.size == (size if orientation < 5 else size[::-1])
    assert difference(load_one(path), numpy.asarray(expected)) == 0


@pytest.mark.parametrize("damage, words", [
    ("pixels", "row [0-9]+ of 200: (a chunk's checksum|its compressed pixels|a row has)"),
    ("palette", "checksum|chunks before the pixels are damaged")])
def test_a_damaged_png_says_where_and_what(tmp_path, damage, words):
    path = tmp_path / "a.png"
    picture = Image.fromarray(pixels(300, 200))
    (picture.quantize(64) if damage == "palette" else picture).save(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"PLTE") + 9 if damage == "palette" else len(data) // 2] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(forebay.Error, match=words) as failure:
        load_one(path)
    assert "a.png" in str(failure.value) and "non-recoverable" not in str(failure.value)


def center_box(size: tuple, source: dict) -> tuple:
    width, height = size
    if source.get("crop") != "center":
        return (0, 0, width, height)
    high, wide = source["size"]
    if width * high > height * wide:
        side = min(width, max(1, (2 * height * wide + high) // (2 * high)))
        return ((width - side) // 2, 0, (width - side) // 2 + side, height)
    side = min(height, max(1, (2 * width * high + wide) // (2 * wide)))
    return (0, (height - side) // 2, width, (height - side) // 2 + side)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", [[1, 1], [7, 5], [32, 32], [224, 224], [3, 300]])
def test_resizing_is_within_one_of_pillow(tmp_path, size, target, filter):
    Image.fromarray(pixels(*size)).save(tmp_path / "a.png")
    found = load_one(tmp_path / "a.png", size=target, filter=filter, exact=True)
    expected = reference(tmp_path / "a.png").resize(target[::-1], FILTERS[filter])
    assert difference(found, numpy.asarray(expected)) <= 1


def resize_by_width_then_height(image: Image.Image, target: list, filter: str) -> numpy.ndarray:
    """Pillow's own, one direction after the other: in one call it may begin with either."""
    across = image.resize((target[1], image.height), FILTERS[filter])
    return numpy.asarray(across.resize((target[1], target[0]), FILTERS[filter]))


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", [[1, 1], [7, 5], [33, 41], [150, 151], [3, 300], [64, 1]])
def test_hard_edges_are_resized_as_pillow_does_bit_for_bit(tmp_path, size, target, filter):
    """Black beside white: bicubic overshoots, and what is cut off in one direction is lost to the
    other."""
    noise = numpy.random.default_rng(7).integers(0, 2, (size[1], size[0], 3)).astype("u1") * 255
    Image.fromarray(noise).save(tmp_path / "a.png")
    found = load_one(tmp_path / "a.png", size=target, filter=filter, exact=True)
    wanted = resize_by_width_then_height(Image.fromarray(noise), target, filter)
    assert difference(found, wanted) == 0
    if filter == "bilinear":
        whole = Image.fromarray(noise).resize(target[::-1], FILTERS[filter])
        assert difference(found, numpy.asarray(whole)) <= 1


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (1000, 31), (1, 1)])
def test_the_middle_is_cut_out_before_resizing(tmp_path, size):
    Image.fromarray(pixels(*size)).save(tmp_path / "a.jpg", quality=95)
    source = {"size": [64, 96], "crop": "center", "exact": True}
    box = center_box(size, source)
    expected = reference(tmp_path / "a.jpg").crop(box).resize((96, 64), Image.Resampling.BILINEAR)
    assert difference(load_one(tmp_path / "a.jpg", **source), numpy.asarray(expected)) <= 1


# The draws of a sample, as docs/images.md gives them.

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def mix2(a: int, b: int) -> int:
    return mix(mix(a) ^ ((b + 0x632be59bd9b4e019) & MASK))


class Draws:
    def __init__(self, seed: int, epoch: int, sample: int):
        self.state = mix2(mix2(seed, epoch), sample)

    def next(self) -> int:
        drawn = mix(self.state)
        self.state = (self.state + 0x9e3779b97f4a7c15) & MASK
        return drawn

    def below(self, end: int) -> int:
        return (self.next() * end) >> 64

    def unit(self) -> float:
        return (self.next() >> 11) * 2.0 ** -53


def random_box(width: int, height: int, draws: Draws) -> tuple:
    for _ in range(10):
        area = width * height * (0.08 + (1.0 - 0.08) * draws.unit())
        ratio = numpy.exp(numpy.log(4 / 3) * (2 * draws.unit() - 1))
        wide, high = int(numpy.sqrt(area * ratio) + 0.5), int(numpy.sqrt(area / ratio) + 0.5)
        if 0 < wide <= width and 0 < high <= height:
            top, left = draws.below(height - high + 1), draws.below(width - wide + 1)
            return (left, top, left + wide, top + high)
    wide, high = width, height
    if width / height < 3 / 4:
        high = max(1, int(width / 0.75 + 0.5))
    elif width / height > 4 / 3:
        wide = max(1, int(height * (4 / 3) + 0.5))
    left, top = (width - wide) // 2, (height - high) // 2
    return (left, top, left + wide, top + high)


@pytest.mark.parametrize("exact", [True, False])
def test_random_crops_are_the_documented_ones(tmp_path, exact):
    sizes = [(500, 375), (375, 500), (64, 64), (900, 40), (33, 777), (1, 1), (1200, 900)]
    for number, size in enumerate(sizes):
        exif = Image.Exif()
        exif[0x0112] = number + 1
        Image.fromarray(pixels(*size, seed=number)).save(
            tmp_path / f"{number}.jpg", quality=95, exif=exif.tobytes(),
            progressive=number % 2 == 1, subsampling=number % 3)
    settings = config(tmp_path / "*.jpg", {"size": [48, 64], "crop": "random", "flip": True,
                                           "exact": exact}, order={"shuffle": False, "seed": 5})
    mirrored = set()
    with forebay.Loader(settings) as loader:
        for epoch in range(4):
            for batch in loader:
                sample = int(batch["index"][0])
                image = reference(tmp_path / f"{sample}.jpg")
                draws = Draws(5, epoch, sample)
                box = random_box(*image.size, draws)
                expected = image.crop(box).resize((64, 48), Image.Resampling.BILINEAR)
                mirrored.add(flip := draws.next() >> 63)
                if flip:
                    expected = ImageOps.mirror(expected)
                found, wanted = numpy.array(batch["image"][0]), numpy.asarray(expected)
                if exact:
                    assert difference(found, wanted) <= 1
                else:
                    assert numpy.abs(found.astype(int) - wanted).mean() < 6
    assert mirrored == {0, 1}


@pytest.fixture(scope="module")
def some(tmp_path_factory) -> Path:
    """24 images in 3 classes, some of them PNG."""
    folder = tmp_path_factory.mktemp("some")
    for number in range(24):
        place = folder / ["dog", "cat10", "cat9"][number % 3]
        place.mkdir(exist_ok=True)
        picture = Image.fromarray(pixels(150 + 11 * number, 120 + 7 * number, number))
        picture.save(place / f"{number:02d}.{'png' if number % 4 == 0 else 'jpg'}")
    return folder


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.mark.parametrize("crop", ["none", "center", "random"])
def test_layouts_and_types_are_one_picture(some, crop):
    source = {"size": [40, 56], "crop": crop, "flip": True}
    plain = load(config(some, source, batch={"size": 24}))[0]["image"]
    floats = load(config(some, {**source, "mean": MEAN, "std": STD}, batch={"size": 24}))[0]["image"]
    scale = (1 / (255 * numpy.array(STD))).astype("f4")
    offset = (-numpy.array(MEAN) / STD).astype("f4")
    assert floats.dtype == numpy.float32
    numpy.testing.assert_array_equal(floats, plain.astype("f4") * scale + offset)
    planar = load(config(some, {**source, "mean": MEAN, "std": STD, "layout": "chw"},
                         batch={"size": 24}))[0]["image"]
    numpy.testing.assert_array_equal(planar, floats.transpose(0, 3, 1, 2))
    bytes_planar = load(config(some, {**source, "layout": "chw"}, batch={"size": 24}))[0]["image"]
    numpy.testing.assert_array_equal(bytes_planar, plain.transpose(0, 3, 1, 2))
    for layout in ("hwc", "chw"):
        halves = load(config(some, {**source, "mean": MEAN, "std": STD, "layout": layout},
                             batch={"size": 24, "dtype": "f16"}))[0]["image"]
        wanted = planar if layout == "chw" else floats
        numpy.testing.assert_array_equal(halves, wanted.astype(numpy.float16))


@pytest.mark.parametrize("source", [
    {"size": 64, "crop": "random", "flip": True, "mean": 0.5, "std": 0.5, "layout": "chw"},
    {"size": 64, "crop": "center", "flip": True}, {"size": [50, 60]}, {}])
def test_batches_are_the_same_with_and_without_a_cache(some, source):
    def run(workers: int, cache: str) -> list:
        settings = config(some, source, batch={"size": 5, "collate": "stack" if source else "pad"},
                          order={"shuffle": True, "seed": 3}, workers=workers,
                          memory={"budget": "256MiB", "cache": cache, "share": "off"})
        kept = []
        with forebay.Loader(settings) as loader:
            for _ in range(2):
                kept += [{name: numpy.array(values) for name, values in batch.items()}
                         for batch in loader]
        return kept

    first = run(1, "off")
    for workers, cache in [(0, "off"), (3, "off"), (1, "64MiB"), (3, "64MiB"), (2, "256KiB")]:
        for one, other in zip(first, run(workers, cache), strict=True):
            assert list(one) == list(other)
            for name in one:
                numpy.testing.assert_array_equal(one[name], other[name])


def test_a_folder_is_a_class_in_the_order_of_bytes(some):
    (batch,) = load(config(some, {"size": 8}, batch={"size": 24}))
    assert sorted(batch["label"].tolist()) == [0] * 8 + [1] * 8 + [2] * 8
    by_label = {0: "cat10", 1: "cat9", 2: "dog"}
    files = sorted(some.glob("*/*"), key=lambda path: (
        ["cat9", "cat10", "dog"].index(path.parent.name), path.name))  # naturally sorted
    assert [by_label[label] for label in batch["label"].tolist()] == [
        path.parent.name for path in files]


def test_a_list_names_paths_and_labels(some, tmp_path):
    files = sorted(some.glob("*/*"))[:6]
    lines = ["file,class"] + [f'"{path}",{7 - number}' for number, path in enumerate(files)]
    lines += [f"{files[0]},-3", ""]
    (tmp_path / "train.csv").write_text("\r\n".join(lines))
    (batch,) = load(config(tmp_path / "train.csv", {"size": 8}, batch={"size": 7}))
    assert batch["label"].tolist() == [7, 6, 5, 4, 3, 2, -3]
    numpy.testing.assert_array_equal(batch["image"][0], batch["image"][6])
    (some / "list.csv").write_text("cat9/02.jpg,1\n")
    try:
        (batch,) = load(config(some / "list.csv", {"size": 8}))
    finally:
        (some / "list.csv").unlink()
    assert batch["label"].tolist() == [1]


@pytest.mark.parametrize("text, words", [
    ("a.jpg,1\nb.jpg\n", "line 2: there is no comma"), ("a.jpg,1\nb.jpg,cat\n", "line 2: the label"),
    ("a.jpg,1\n,2\n", "line 2: the path is empty"), ("a\0.jpg,1\n", "line 1: it has a NUL"),
    ("x" * 9000 + ",1\n", "line 1: it is too long"), ("path,label\n", "lists no image")])
def test_a_list_that_is_none_is_an_error_with_its_line(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(forebay.Error, match=words):
        load(config(tmp_path / "a.csv"))


BAD = ["empty.jpg", "text.jpg", "cut.jpg", "cut progressive.jpg", "cut.png", "bomb.png", "bomb.jpg",
       "huge progressive.jpg", "huge interlaced.png", "folder.jpg", "lost.jpg", "no header.jpg",
       "bad checksum.png"]


def make_bad(path: Path, good: Path) -> str:
    """Writes the file and returns what its error must say."""
    name = path.name
    Image.fromarray(pixels(300, 200)).save(good / "g.jpg", quality=90)
    Image.fromarray(pixels(300, 200)).save(good / "p.jpg", quality=90, progressive=True)
    Image.fromarray(pixels(300, 200)).save(good / "g.png")
    jpeg, progressive, png = [(good / f).read_bytes() for f in ("g.jpg", "p.jpg", "g.png")]
    at, sof = jpeg.index(b"\xff\xc0"), progressive.index(b"\xff\xc2")
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 100000, 100000, 8, 2, 0, 0, 0))
    interlaced = chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 1))
    contents = {
        "empty.jpg": (b"", "is empty"),
        "text.jpg": (b"hello world", "JPEG, PNG, BMP, PPM.: it begins with the bytes 68 65 6c"),
        "cut.jpg": (jpeg[:len(jpeg) // 2], "premature end"),
        "cut progressive.jpg": (progressive[:-200], "the file ends early"),
        "cut.png": (png[:len(png) // 2], "the file ends early"),
        "bomb.png": (png[:8] + header + png[33:], "100000 x 100000"),
        "bomb.jpg": (jpeg[:at + 5] + b"\xff\xdc\xff\xdc" + jpeg[at + 9:],
                     "65500 x 65500 = 4290250000 pixels; source.max_pixels allows 100000000"),
        "huge progressive.jpg": (progressive[:sof + 5] + b"\x1f\x40\x1f\x40" + progressive[sof + 9:],
                                 "a progressive JPEG.*source.decode_memory allows a worker 8388608"),
        "huge interlaced.png": (png[:8] + interlaced + png[33:],
                                "an interlaced PNG.*source.decode_memory allows"),
        "no header.jpg": (jpeg[:30], "ends early.*inside the header"),
        "bad checksum.png": (png[:60] + bytes([png[60] ^ 1]) + png[61:], "PNG of"),
    }
    if name == "folder.jpg":
        path.mkdir()
        return "folder|directory"
    if name == "lost.jpg":
        path.symlink_to("nowhere")
        return "No such file"
    path.write_bytes(contents[name][0])
    return contents[name][1]


@pytest.mark.parametrize("source", [{"size": 32}, {"size": 32, "crop": "random", "mean": 0},
                                    {"size": 32, "exact": True}, {}])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_an_error_in_words_or_skipped(tmp_path, name, source):
    folder, good = tmp_path / "bad", tmp_path / "good"
    folder.mkdir(), good.mkdir()
    words = make_bad(folder / name, good)
    Image.fromarray(pixels(50, 50)).save(folder / "a good one.jpg")
    settings = config(folder, source)
    pattern = "fold*.jpg" if name == "folder.jpg" else name  # a plain folder means all below it
    settings["source"]["path"] = [str(folder / pattern), str(folder / "a good one.jpg")]
    settings["memory"] = {"budget": "128MiB", "cache": "off"}
    if name == "cut.jpg" and source.get("crop") == "random":
        return  # whether the missing part is wanted depends on the draw
    with pytest.raises(forebay.Error, match=f"(?s){words}") as failure, \
            forebay.Loader(settings) as loader:
        for _ in loader:
            pass
    assert name in str(failure.value)
    (batch,) = load({**settings, "on_error": "skip", "batch": {"size": 2, "collate": "pad"}})
    assert batch["image"].shape[0] == 1


@pytest.mark.parametrize("source, words", [
    ({"crop": "random"}, "source.crop: needs source.size"), ({"flip": True}, "source.flip: needs"),
    ({"mean": 0.5}, "source.mean: needs"), ({"layout": "chw"}, "source.layout: needs"),
    ({"size": [1, 2, 3]}, "source.size"), ({"size": 0}, "source.size"), ({"size": 2.5}, "source.size"),
    ({"size": 99999}, "source.size"), ({"size": 8, "mean": [1, 2]}, "source.mean"),
    ({"size": 8, "std": 0}, "source.std")])
def test_settings_that_make_no_sense_are_refused(some, source, words):
    with pytest.raises(forebay.Error, match=words):
        load(config(some, source))
