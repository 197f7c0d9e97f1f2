"""Data that is wrong, at open or while it is read: said at its batch, skipped or replaced by rule,
counted, bounded; and the loader goes on."""

import os

import numpy
import pytest

import forebay
from known import bin_config

FILES = 40
ROWS = 64


@pytest.fixture
def folder(tmp_path):
    for number in range(FILES):
        numpy.full((ROWS, 4), number, "f4").tofile(tmp_path / f"{number:03}.bin")
    return tmp_path


def cut(path):
    os.truncate(path, 16 * ROWS - 3)


def shrink(path):
    os.truncate(path, 16 * (ROWS - 1))


def grow(path):
    with open(path, "ab") as file:
        file.write(b"\0" * 16)


def folder_instead(path):
    path.unlink()
    path.mkdir()


WAYS = {"gone": os.unlink, "cut": cut, "shrunk": shrink, "grown": grow,
        "folder": folder_instead}


def open_loader(folder, **more):
    """One batch is read ahead, so that what lies further on can be broken in time."""
    return forebay.Loader(bin_config(folder, batch={"size": 4, **more.pop("batch", {})}, workers=1,
                                     prefetch=1, **more))


def run(loader):
    """All that comes of an epoch: lists of samples, and errors in their places."""
    got, iterator = [], iter(loader)
    while True:
        try:
            got.append(next(iterator)["index"].tolist())
        except StopIteration:
            return got
        except forebay.Error as error:
            got.append(error)


def usual():
    return [list(range(first, first + 4)) for first in range(0, FILES, 4)]


@pytest.mark.parametrize("collate", ["stack", "pad", "ragged"])
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_changes_under_us_is_said_at_its_batch(folder, way, collate):
    with open_loader(folder, batch={"collate": collate}) as loader:
        WAYS[way](folder / "022.bin")
        got = run(loader)
    assert isinstance(got[5], (forebay.BadDataError, forebay.MissingError)), got
    assert "022.bin" in str(got[5])
    assert got[:5] + got[6:] == usual()[:5] + usual()[6:]


@pytest.mark.parametrize("way", WAYS)
def test_skip_leaves_its_batch_one_short(folder, way):
    with open_loader(folder, on_error="skip") as loader:
        WAYS[way](folder / "022.bin")
        got, stats = run(loader), loader.stats()
    expected = usual()
    expected[5].remove(22)
    assert got == expected
    assert stats["skipped"] == 1
    (failure,) = stats["failures"]
    assert failure["sample"] == 22 and "022.bin" in failure["reason"]


@pytest.mark.parametrize("way", WAYS)
def test_replace_puts_another_in_and_it_is_the_same_in_every_run(folder, way):
    with open_loader(folder, on_error="replace") as loader:
        WAYS[way](folder / "022.bin")
        got, values = [], []
        for batch in loader:
            got.append(batch["index"].tolist())
            values += batch["points"][:, 0, 0].tolist()
        assert loader.stats()["replaced"] == 1
    assert [len(batch) for batch in got] == [4] * 10
    other = got[5][2]
    assert other != 22 and values == [float(i) for batch in got for i in batch]
    if way in ("cut", "folder"):  # for a new loader the others are not there, or whole
        with forebay.Loader(bin_config(folder, batch={"size": 4}, workers=4,
                                       on_error="replace")) as loader:
            assert run(loader)[5][2] == other


def test_a_batch_with_nothing_left_is_passed_over(folder):
    for number in range(8, 12):
        (folder / f"{number:03}.bin").write_bytes(b"bad")
    with open_loader(folder, on_error="skip") as loader:
        numbers = [(batch["index"].tolist(), loader.state_dict()) for batch in loader]
        assert [samples for samples, _ in numbers] == usual()[:2] + usual()[3:]
        assert loader.stats()["skipped"] == 4
        assert loader.stats()["batches"] == 9
        state = numbers[2][1]  # its position counts: a state behind it goes on behind it
    with open_loader(folder, on_error="skip") as loader:
        loader.load_state_dict(state)
        assert run(loader) == usual()[4:]


@pytest.mark.parametrize("most,works", [("4", True), ("3", False), ("10%", True), ("9%", False),
                                        ("0", False), ("100%", True)])
@pytest.mark.parametrize("rule", ["skip", "replace"])
def test_more_than_max_errors_fail_the_run(folder, most, works, rule):
    for number in (3, 13, 23, 33):
        (folder / f"{number:03}.bin").write_bytes(b"bad")
    with open_loader(folder, on_error=rule, max_errors=most) as loader:
        errors = [one for one in run(loader) if isinstance(one, forebay.Error)]
        if works:
            assert not errors
        else:
            assert "max_errors" in str(errors[0]) and "003.bin" in str(errors[0])


def test_errors_come_in_the_order_of_their_samples(folder):
    for number in (5, 6, 7, 20):
        (folder / f"{number:03}.bin").write_bytes(b"bad")
    with forebay.Loader(bin_config(folder, batch={"size": 4}, workers=7, prefetch=9)) as loader:
        for _ in range(3):
            got = run(loader)
            assert [number for number, one in enumerate(got) if isinstance(one, forebay.Error)] == [
                1, 5]
            assert "005.bin" in str(got[1]) and "020.bin" in str(got[5])  # the first of the batch
