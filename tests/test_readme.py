"""The README is true: its program is the one in examples/, compiles and runs; its commands exist."""
import os
import re
import shutil
import subprocess

import pytest


def readme(root):
    return (root / "README.md").read_text()


def build_folder(program):
    """The build the program belongs to: .../cli/forebay."""
    return program.resolve().parent.parent


def test_the_program_in_the_readme_is_the_example(root):
    blocks = re.findall(r"```c\n(.*?)```", readme(root), re.S)
    assert blocks == [(root / "examples/first.c").read_text()]


def test_the_example_compiles_and_runs(root, program, tmp_path):
    scans = tmp_path / "scans"
    scans.mkdir()
    for number in range(40):
        (scans / f"{number:06}.bin").write_bytes(os.urandom(16 * (10 + number)))
    library = build_folder(program)
    subprocess.run([shutil.which("cc") or "gcc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-o",
                    tmp_path / "first", root / "examples/first.c", f"-I{root / 'include'}",
                    f"-L{library}", "-lforebay", f"-Wl,-rpath,{library}"], check=True)
    done = subprocess.run([tmp_path / "first", f"source.path={scans}/*.bin"], text=True,
                          capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "40 samples\n", "")
    done = subprocess.run([tmp_path / "first", f"source.path={scans}/*.nothing"], text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 1
    assert ".nothing" in done.stderr


def command_rows(root):
    return re.findall(r"^\| `forebay (\w+)[^|]*(?:\\\|[^|]*)*\|.*\| (yes|not yet) \|$", readme(root),
                      re.M)


def test_the_table_names_every_command(root, forebay):
    listed = {name for name, _ in command_rows(root)}
    assert len(listed) >= 12
    text = forebay("--help").stdout
    for name, now in command_rows(root):
        assert now == "not yet" or re.search(rf"\b{name}\b", text), name


def test_commands_that_are_there_have_help_and_the_others_say_so(root, forebay):
    for name, now in command_rows(root):
        done = forebay(name, "--help")
        assert done.returncode == 0 and name in done.stdout, name
        assert ("not built yet" in done.stdout) == (now == "not yet"), f"{name}: README says {now}"
        if now == "not yet":
            done = forebay(name)
            assert done.returncode in (1, 2) and "not built yet" in done.stderr, name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs"])
def test_links_lead_somewhere(root, page):
    pages = sorted((root / page).glob("*.md")) if (root / page).is_dir() else [root / page]
    for path in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
