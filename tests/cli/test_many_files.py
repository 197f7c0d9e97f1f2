"""Very many files: indexed compactly, in the ledger, in natural order, with progress."""
import os

import pytest

SOAK = os.environ.get("FOREBAY_SOAK", "0") not in ("", "0")
FILES = 1000000 if SOAK else 100000
FOLDER = 1000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Hard links: a name each, and no second inode."""
    folder = tmp_path_factory.mktemp("many")
    for part in range(FILES // FOLDER):
        here = folder / f"part{part}"
        here.mkdir()
        first = here / "scan0.bin"
        first.write_bytes(bytes([part % 256]) * 32)
        for number in range(1, FOLDER):
            os.link(first, here / f"scan{number}.bin")
    return folder


def test_a_name_takes_few_bytes_and_all_are_in_the_ledger(result, many):
    got = result("run", "--set", "source.kind=bin", "--set", f"source.path={many}/**/*.bin",
                 "--set", "batch.size=500", "--set", "memory.budget=1GiB", "--steps", 20,
                 timeout=1200)
    memory = got["memory"]
    assert got["samples"] == 10000
    assert got["epoch_batches"] == FILES // 500
    assert 8 * FILES < memory["stages"]["index"] < 64 * FILES
    assert memory["peak_pss_bytes"] is None or "FOREBAY_SANITIZED" in os.environ or \
        memory["peak_pss_bytes"] < memory["peak_bytes"] + 4 * 2 ** 20


def test_the_order_of_the_index_is_natural(result, checksum, many):
    """Folder part2 comes before part10: without shuffling the first samples are parts 0, 1, 2."""
    def first(batches):
        got = result("run", "--set", "source.kind=bin", "--set", f"source.path={many}/*/*.bin",
                     "--set", f"batch.size={FOLDER}", "--set", "order.shuffle=false", "--set",
                     "memory.budget=1GiB", "--steps", batches, timeout=1200)
        return int(got["checksum"], 16)
    assert [first(2) - first(1), first(3) - first(2), first(11) - first(10)] == [
        2 * FOLDER * 1, 2 * FOLDER * 2, 2 * FOLDER * 10]  # first and last byte of each


def test_a_list_of_paths_and_the_budget_too_small_for_it(result, failure, many, tmp_path):
    names = [f"{many}/part{part}/scan{number}.bin" for part in (3, 1) for number in range(FOLDER)]
    (tmp_path / "list.txt").write_text("\n".join(names) + "\n")
    got = result("run", "--set", "source.kind=bin", "--set", f"source.path=@{tmp_path}/list.txt",
                 "--set", "batch.size=100")
    assert got["samples"] == 2 * FOLDER
    error = failure(1, "run", "--set", "source.kind=bin", "--set", f"source.path={many}/**/*.bin",
                    "--set", "memory.budget=1MiB")
    assert error["status"] == "OVER_BUDGET" and "memory.budget" in error["message"]
