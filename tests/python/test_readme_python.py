"""The Python of the README and of the page for those who come from another loader is true."""

import pathlib
import re

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]


def only_block(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert len(blocks) == 1
    return blocks[0]


def test_the_block_in_the_readme_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "scans").mkdir()
    for number in range(40):
        numpy.full((10 + number, 4), number, "f4").tofile(tmp_path / "scans" / f"{number:06}.bin")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(only_block("README.md"), names)  # noqa: S102
    assert 0 < int(capsys.readouterr().out) <= 256 << 20
    rows = names["lengths"].max()
    assert names["points"].shape == (len(names["lengths"]), rows, 4)


def test_the_block_for_those_who_move_runs(tmp_path, monkeypatch):
    (tmp_path / "frames").mkdir()
    for number in range(7):
        for kind in ("blur", "sharp"):
            numpy.save(tmp_path / "frames" / f"{number:03}_{kind}.npy", numpy.full((8, 9), number, "f4"))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(only_block("docs/moving.md"), names)  # noqa: S102
    assert names["blur"].shape == names["sharp"].shape == (2, 8, 9)
    assert (names["blur"] == names["sharp"]).all() and names["state"]["epoch"] == 2
