"""What the package shows: every name with its docstring, and the stubs beside it."""

import importlib.util
import inspect
import pathlib
import shutil
import subprocess
import sys
import sysconfig

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
        if name == "DataLoader" and not importlib.util.find_spec("torch"):
            continue  # it raises an ImportError that says what to install
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


def test_the_extension_compiles_against_the_full_api():
    """As a free-threaded CPython needs it, which has no stable ABI; its own headers, where it is one."""
    folder = pathlib.Path(__file__).resolve().parents[2]
    headers = sysconfig.get_paths()["include"]
    if not shutil.which("cc") or not pathlib.Path(headers, "Python.h").exists():
        pytest.skip("no compiler or no Python.h here")
    done = subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wextra",
                           "-Werror", "-I", headers, "-I", folder / "include",
                           *sorted((folder / "python/forebay").glob("*.c"))],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
