"""The checks themselves can fail: each is shown something wrong."""
import importlib.util

import pytest


@pytest.fixture
def tool(root):
    def load(name):
        spec = importlib.util.spec_from_file_location(name, root / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load


@pytest.fixture
def tree(tmp_path):
    """A small tree: base below memory below loader, and the clients."""
    files = {
        "src/LAYERS": "base # lowest\nmemory config\nloader\n",
        "src/base/error.h": "", "src/memory/budget.h": "", "src/config/config.h": "",
        "src/loader/loader.h": "", "include/forebay.h": "", "cli/screen.h": "",
        "src/memory/budget.c": '#include "memory/budget.h"\n#include "base/error.h"\n',
        "src/loader/loader.c": '#include "config/config.h"\n#include "forebay.h"\n',
        "cli/main.c": '#include "forebay.h"\n#include "screen.h"\n#include "config/config.h"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_good_tree_has_no_offenders(tool, tree):
    assert tool("check_layers").check(tree) == []


@pytest.mark.parametrize("path, include", [
    ("src/base/up.c", "memory/budget.h"),       # a layer above
    ("src/memory/side.c", "config/config.h"),   # a stranger on the same line
    ("src/memory/dots.c", "../base/error.h"),
    ("src/unlisted/a.c", "base/error.h"),
    ("cli/cmd.c", "loader/loader.h"),
    ("python/forebay/_forebay.c", "config/config.h"),
    ("examples/first.c", "memory/budget.h"),
    ("src/base/typo.c", "bse/error.h"),
])
def test_an_include_that_is_not_allowed_is_named(tool, tree, path, include):
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(f'\n#include "{include}"\n')
    found = tool("check_layers").check(tree)
    assert len(found) == 1 and found[0].startswith(path)


def test_tests_and_fuzzers_may_include_anything(tool, tree):
    for name in ("test_a.c", "fuzz_a.c"):
        (tree / "src/base" / name).write_text('#include "loader/loader.h"\n')
    assert tool("check_layers").check(tree) == []



def test_sizes_are_counted_and_limits_hold(tool, tree):
    check = tool("check_size").check
    short = "int f(void)\n{\n    return 1;\n}\n"
    (tree / "src/base/a.c").write_text(short + "struct s {\n    int a;\n};\n" + short)
    assert check(tree) == ([], [], [4, 4])
    (tree / "src/base/a.c").write_text("int f(int a)\n{\n" + "    a++;\n" * 78 + "}\n")
    assert "81 lines" in check(tree)[0][0]
    (tree / "src/base/a.c").write_text("/* a */\n" * 601)
    assert "601 lines" in check(tree)[0][0]
    (tree / "src/base/a.c").write_text("/* " + "a" * 95 + " */\n")
    assert check(tree)[0] == [] and "101 columns" in check(tree)[1][0]
