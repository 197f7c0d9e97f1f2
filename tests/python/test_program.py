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


def test_a_kept_cache_is_warm_for_the_next_loader(config, monkeypatch):
    """The keeper is the program of this installation, whatever PATH says."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    config["epochs"] = 1  # nothing is read ahead for a second one
    for hits in (0, SCANS):
        with forebay.Loader(config, cache="8MiB", memory="64MiB", memory__share="job",
                            memory__keep="3s") as loader:
            for _ in loader:
                pass
            assert loader.stats()["cache"]["hits"] == hits
