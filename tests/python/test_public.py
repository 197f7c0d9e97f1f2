"""What the package shows: every name with its docstring, and the stubs beside it."""

import inspect
import subprocess
import sys

import pytest

import forebay


def public_members(thing):
    for name, member in vars(thing).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)
                                         or inspect.isdatadescriptor(member)):
            yield f"{thing.__name__}.{name}", member


def test_every_public_name_has_a_docstring():
    missing = [] if forebay.__doc__ else ["forebay"]
    for name in forebay.__all__:
        thing = getattr(forebay, name)
        if not inspect.getdoc(thing):
            missing.append(name)
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            missing += [full for full, member in public_members(thing) if not inspect.getdoc(member)]
    for thing in (forebay._forebay.Loader, forebay._forebay.Field, forebay._forebay.Cache,
                  forebay._forebay.Budget):
        missing += [full for full, member in public_members(thing) if not member.__doc__]
    assert not missing


def test_all_is_what_dir_and_the_stubs_show():
    stub = (inspect.getsourcefile(forebay) or "") + "i"
    with open(stub, encoding="utf-8") as file:
        text = file.read()
    for name in forebay.__all__:
        assert name in dir(forebay)
        assert f" as {name}\n" in text, f"{name} is not in __init__.pyi"


def test_the_stubs_agree_with_the_package(tmp_path):
    """By mypy's own tool, where that is installed."""
    pytest.importorskip("mypy.stubtest")
    known = tmp_path / "known"  # Python 3.11 has buffers, but no name for them
    known.write_text("forebay._forebay.Field.__buffer__\n")
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "forebay", "--concise",
                           "--allowlist", str(known), "--ignore-unused-allowlist"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
