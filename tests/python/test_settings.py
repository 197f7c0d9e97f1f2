"""From what the caller wrote to what forebay_open takes."""

from pathlib import Path

import numpy
import pytest

from forebay._settings import config_of, parse_size, settings_of


@pytest.mark.parametrize("text, size", [("12GiB", 12 * 2**30), ("50GB", 50 * 10**9), ("4096", 4096),
                                        ("1.5 MiB", 3 * 2**19), ("3kB", 3000), ("7B", 7), (5, 5)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1.2.3GB", "-4", "12XB", "12 giga", "0x10", ".", "٣GB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize("wrong", [None, True, b"1GB", -1])
def test_what_cannot_be_a_size(wrong):
    with pytest.raises((TypeError, ValueError)):
        parse_size(wrong)


def test_keywords_become_keys():
    assert settings_of({"memory.cache": "off"}, {
        "memory": "8GiB", "workers": 4, "shuffle": False, "cpu__share": 2, "name": None,
    }) == ("memory.cache=off", "memory.budget=8GiB", "workers=4", "order.shuffle=false",
           "cpu.share=2")


def test_a_dict_becomes_json():
    file, text = config_of({"source": {"path": Path("/data/x"), "size": (224, 224)},
                            "workers": numpy.int64(3)})
    assert file is None
    assert text == '{"source": {"path": "/data/x", "size": [224, 224]}, "workers": 3}'


def test_a_path_stays_a_path():
    assert config_of(Path("a.yaml")) == config_of("a.yaml") == ("a.yaml", None)
    assert config_of(None) == (None, None)
