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


@pytest.mark.parametrize("pattern", [r"/work/", r"/root/", r"localhost:\d"])
def test_no_page_names_a_machine(root, pattern):
    assert not [page.name for page in pages(root) if re.search(pattern, page.read_text())]
