"""An exception class for each status, with its place; log lines and warnings where Python has them."""

import logging
import pickle
import re
from pathlib import Path

import pytest

import forebay
from known import bin_config

ROOT = Path(__file__).resolve().parents[2]


def classes_of_the_header():
    text = (ROOT / "include" / "forebay.h").read_text()
    return {"".join(part.capitalize() for part in name.split("_")) + "Error": name
            for name in re.findall(r"X\((\w+), -\d+,", text)}


def test_there_is_a_class_for_each_status_and_the_stubs_know_it():
    stubs = [(ROOT / "python" / "forebay" / name).read_text()
             for name in ("__init__.pyi", "_forebay.pyi")]
    classes = classes_of_the_header()
    assert len(classes) > 10
    for name, status in classes.items():
        error = getattr(forebay, name)
        assert issubclass(error, forebay.Error) and error.status == status
        assert all(re.search(rf"\b{name}\b", stub) for stub in stubs), name
    assert issubclass(forebay.BadConfigError, ValueError)
    assert issubclass(forebay.NoMemoryError, MemoryError)


def test_an_unknown_key_names_its_place_and_the_nearest(tmp_path, scans):
    file = tmp_path / "train.yaml"
    file.write_text(f"source: {{kind: bin, path: '{scans}/*.bin'}}\nmemory:\n  budgett: 1GiB\n")
    with pytest.raises(forebay.BadConfigError, match="budget") as met:
        forebay.Loader(file)
    assert str(file) in met.value.place and ":3" in met.value.place
    assert met.value.place in str(met.value)
    assert met.value.status == "BAD_CONFIG"


def test_a_missing_file_is_a_missing_error(tmp_path):
    with pytest.raises(forebay.MissingError, match="nowhere"):
        forebay.Loader(tmp_path / "nowhere.yaml")


def test_a_batch_that_can_never_fit_is_said_at_open(config):
    with pytest.raises(forebay.OverBudgetError, match=r"\d"):
        forebay.Loader(config, memory="64KiB")


def test_a_broken_file_is_bad_data_and_the_rest_goes_on(tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02d}.bin").write_bytes(bytes(16 * 100))
    with forebay.Loader(bin_config(tmp_path, batch={"size": 1}), prefetch=1) as loader:
        # Shorter than the index knows; too far ahead to have been read.
        (tmp_path / "15.bin").write_bytes(bytes(16 * 50))
        iterator, taken, met = iter(loader), [], []
        while True:
            try:
                taken.append(int(next(iterator)["index"][0]))
            except forebay.Error as error:
                met.append(error)
            except StopIteration:
                break
    assert taken == [number for number in range(20) if number != 15]
    assert len(met) == 1 and "15.bin" in str(met[0])
    assert isinstance(met[0], forebay.BadDataError)


def test_errors_can_be_pickled(config):
    with pytest.raises(forebay.BadConfigError) as met:
        forebay.Loader(config, workers="many")
    again = pickle.loads(pickle.dumps(met.value))
    assert str(again) == str(met.value) and again.place == met.value.place
    assert type(again) is forebay.BadConfigError


@pytest.mark.parametrize("wrong", [3, 1.5, ["a"], b"x.yaml"])
def test_what_is_no_configuration_is_refused(wrong):
    with pytest.raises(TypeError):
        forebay.Loader(wrong)


def test_a_closed_loader_says_so(config):
    loader = forebay.Loader(config)
    loader.close()
    loader.close()
    assert loader.closed and "closed" in repr(loader)
    for use in (lambda: next(iter(loader)), lambda: len(loader), loader.stats,
                loader.state_dict, lambda: loader.set(workers=1)):
        with pytest.raises(forebay.StoppedError):
            use()


def test_only_live_keys_can_be_set(config):
    with forebay.Loader(config) as loader:
        with pytest.raises(forebay.Error):
            loader.set(batch_size=4)
        with pytest.raises(forebay.Error):
            loader.set({"workers": "many"})


def test_what_the_engine_says_goes_to_the_logger(config, caplog):
    with caplog.at_level(logging.INFO, logger="forebay"), forebay.Loader(config) as loader:
        for _ in loader:
            pass
    assert all(record.name == "forebay" for record in caplog.records)
