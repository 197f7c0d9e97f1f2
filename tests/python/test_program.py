"""forebay.run and forebay.plan: the packaged program."""

import pytest

import forebay
from known import SCANS
from forebay.program import program


@pytest.fixture(autouse=True)
def needs_program():
    try:
        program()
    except forebay.MissingError as error:
        pytest.skip(str(error))


def test_run_returns_what_the_command_prints(config):
    result = forebay.run(config, epochs=2)
    assert result["samples"] == 2 * SCANS
    assert result["batches"] == SCANS
    assert len(result["epochs"]) == 2


def test_run_raises_the_commands_error(config, tmp_path):
    with pytest.raises(forebay.MissingError):
        forebay.run(tmp_path / "nowhere.yaml")
    with pytest.raises(forebay.BadConfigError):
        forebay.run(config, workers="many")


def test_the_loader_counts_as_the_program_does(config):
    with forebay.Loader(config) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        stats = loader.stats()
    run = forebay.run(config, epochs=2)
    assert {key: stats[key] for key in ("samples", "batches", "bytes")} == \
        {key: run[key] for key in ("samples", "batches", "bytes")}
