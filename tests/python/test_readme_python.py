"""The README's Python is true."""

import pathlib
import re

import numpy

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_block_in_the_readme_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "scans").mkdir()
    for number in range(40):
        numpy.full((10 + number, 4), number, "f4").tofile(tmp_path / "scans" / f"{number:06}.bin")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) == 1
    names = {}
    exec(blocks[0], names)  # noqa: S102
    assert 0 < int(capsys.readouterr().out) <= 256 << 20
    rows = names["lengths"].max()
    assert names["points"].shape == (len(names["lengths"]), rows, 4)
