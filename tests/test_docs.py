"""The pages say what is true: links lead somewhere, and what is made from the table is up to date."""
import re
import subprocess

import pytest


def pages(root):
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]


def test_every_link_leads_to_a_file(root):
    broken = [f"{page.name}: {target}" for page in pages(root)
              for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
              if not (page.parent / target).exists()]
    assert not broken


def test_every_page_is_linked_from_the_readme_or_a_page_it_links(root):
    linked = {target for page in pages(root)
              for target in re.findall(r"([\w-]+\.md)\)", page.read_text())}
    assert {page.name for page in (root / "docs").glob("*.md")} <= linked


def test_the_page_of_keys_is_the_table(root, program):
    table = subprocess.run([program, "run", "--help-config", "--markdown"], capture_output=True,
                           text=True, check=True).stdout
    page = (root / "docs/configuration.md").read_text()
    assert page.endswith(table), "docs/configuration.md is old: run make docs"


def own_sources(root):
    return [path for folder in ("src", "cli", "include") for path in sorted((root / folder).rglob("*"))
            if path.suffix in (".c", ".h") and not path.name.startswith(("test_", "fuzz_"))]


def test_every_lock_is_on_the_page_of_locks(root):
    rows = [line for line in (root / "docs/locking.md").read_text().splitlines()
            if line.startswith("|")]
    declared = [(name, path.name) for path in own_sources(root) if path.is_relative_to(root / "src")
                for name in re.findall(r"pthread_(?:mutex|rwlock|spinlock)_t (\w+)(?:;| =)",
                                       path.read_text())]
    assert len(declared) > 10
    missing = [f"{name} of {file}" for name, file in declared
               if not any(f"| `{name}` | `{file}` |" in row for row in rows)]
    assert not missing, "docs/locking.md lists every lock of src/"
    listed = [match.groups() for row in rows
              if (match := re.search(r"\| `(\w+)` \| `([\w.]+)` \|", row))]
    assert sorted(listed) == sorted(declared)


@pytest.mark.parametrize("page", ["locking.md", "architecture.md"])
def test_the_maintainers_pages_name_files_that_exist(root, page):
    there = {path.name for path in own_sources(root)}
    named = re.findall(r"`(?:\w+/)*(\w+\.[ch])`", (root / "docs" / page).read_text())
    assert named and not [name for name in named if name not in there]


@pytest.mark.parametrize("pattern", [r"/work/", r"/root/", r"localhost:\d"])
def test_no_page_names_a_machine(root, pattern):
    assert not [page.name for page in pages(root) if re.search(pattern, page.read_text())]
