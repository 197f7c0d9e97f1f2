"""A person finds every command where they look, and mistakes are answered with the nearest word."""
import json

import pytest

BUILT = ["run", "inspect", "plan", "pack", "top", "set", "cache", "monitor", "diagnose",
         "generate"]
LATER = ["tune", "report"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_the_overview_names_every_command(forebay, arguments):
    done = forebay(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for name in BUILT + LATER:
        assert f"\n  {name} " in done.stdout


def test_the_version_is_the_headers(forebay, root):
    header = (root / "include/forebay.h").read_text()
    version = header.split('#define FOREBAY_VERSION "')[1].split('"')[0]
    assert forebay("--version").stdout == f"forebay {version}\n"


@pytest.mark.parametrize("name", BUILT + LATER)
def test_both_ways_to_ask_for_help_say_the_same(forebay, name):
    by_option, by_command = forebay(name, "--help"), forebay("help", name)
    assert by_option.returncode == by_command.returncode == 0
    assert by_option.stdout == by_command.stdout
    assert by_option.stdout.startswith(f"Usage: forebay {name} ")


@pytest.mark.parametrize("name", BUILT)
def test_help_describes_every_option_of_the_usage(forebay, name):
    text = forebay(name, "--help").stdout
    usage, body = text.split("\n", 1)
    for word in usage.replace("[", " ").replace("]", " ").split():
        if word.startswith("--"):
            assert f"\n  {word} " in body, word


@pytest.mark.parametrize("name", LATER)
def test_a_command_of_later_says_so(forebay, failure, name):
    done = forebay(name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"forebay {name}: not built yet\n"
    assert failure(1, name)["status"] == "NOT_BUILT"


@pytest.mark.parametrize("wrong, right", [("rnu", "run"), ("inspct", "inspect"), ("gen", None),
                                          ("generat", "generate"), ("xyzzy", None)])
def test_an_unknown_command_is_bad_use_and_the_nearest_is_named(forebay, failure, wrong, right):
    done = forebay(wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no command '{wrong}'" in done.stderr
    assert right is None or f"did you mean '{right}'" in done.stderr
    assert failure(2, wrong)["status"] == "BAD_USE"


@pytest.mark.parametrize("arguments, says", [
    (["run", "--epoch", "3"], "did you mean --epochs"),
    (["run", "--epochs"], "needs a value"),
    (["run", "--epochs", "0"], "whole number from 1"),
    (["run", "--epochs", "-1"], "whole number from 1"),
    (["run", "--steps", "1e3"], "whole number"),
    (["run", "--steps=99999999999999999999"], "whole number"),
    (["run", "--json=yes"], "takes no value"),
    (["run", "a.yaml", "b.yaml"], "too many"),
    (["inspect"], "CONFIG is missing"),
    (["plan", "a.yaml", "b.yaml"], "too many"),
    (["pack", "a.yaml"], "OUT is missing"),
    (["pack", "a.yaml", "out", "--dtype", "int"], "expected f16"),
    (["cache"], "list or drop is missing"),
    (["cache", "lsit"], "expected list or drop"),
    (["cache", "list", "x"], "takes no NAME"),
    (["generate", "lidar"], "DIR is missing"),
    (["generate", "lidr", "x"], "did you mean lidar"),
    (["generate", "lidar", "x", "--bytes", "much"], "expected a size"),
    (["generate", "lidar", "x", "--bytes", "0"], "expected a size"),
])
def test_bad_use_is_told_in_words(forebay, failure, arguments, says):
    done = forebay(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert f"Try 'forebay {arguments[0]} --help'" in done.stderr
    error = failure(2, *arguments)
    assert error["status"] == "BAD_USE" and says in error["message"]


def test_every_key_of_the_schema_is_in_the_help(forebay, root):
    schema = (root / "src/config/schema.h").read_text()
    text = forebay("run", "--help-config").stdout
    keys = json.loads(forebay("run", "--help-config", "--json").stdout)["keys"]
    assert {key["key"] for key in keys} >= {"memory.budget", "source.kind", "workers"}
    for key in keys:
        assert f'"{key["key"]}"' in schema
        assert key["key"].split(".")[-1] in text


def test_a_result_that_cannot_be_written_is_a_failure(program):
    import subprocess
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "could not be written" in done.stderr
