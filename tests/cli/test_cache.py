"""forebay cache: shared caches alive, and what is kept on disk."""
import json
import os
import signal
import subprocess
import time

import pytest


@pytest.fixture
def here(tmp_path):
    """A cache folder of the test's own."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_nothing_is_kept_at_first(result, forebay, here):
    found = result("cache", "list", env=here)
    assert found["disk"]["entries"] == [] and found["disk"]["bytes"] == 0
    assert found["disk"]["limit_bytes"] == 10 ** 10
    assert "On disk" in forebay("cache", "list", env=here).stdout


def test_the_quickstart_is_listed_and_dropped(result, here):
    result("run", "--steps", 1, env=here)
    found = result("cache", "list", env=here)["disk"]
    assert [entry["name"] for entry in found["entries"]] == ["quickstart"]
    assert found["bytes"] == found["entries"][0]["bytes"] == 256_000_000
    dropped = result("cache", "drop", "quickstart", env=here)
    assert dropped == {"caches": 0, "cache_bytes": 0, "files": 1, "file_bytes": 256_000_000}
    assert result("cache", "list", env=here)["disk"]["entries"] == []


def test_an_unknown_name_is_an_error(failure, here):
    error = failure(1, "cache", "drop", "no-such", env=here)
    assert error["status"] == "MISSING" and "no-such" in error["message"]


def test_a_bound_that_is_no_size_is_an_error(failure, here):
    assert "FOREBAY_DISK_CACHE" in failure(1, "cache", "list",
                                           env={**here, "FOREBAY_DISK_CACHE": "lots"})["message"]


def test_a_shared_cache_is_shown_while_its_process_lives(result, program, scans, here):
    process = subprocess.Popen(
        [program, "run", *map(str, scans.settings), "--epochs", "1000000", "--set",
         "memory.cache=2MiB", "--set", "memory.budget=32MiB"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def mine():
        found = result("cache", "list", env=here)["shared"]
        return [cache for cache in found if process.pid in cache["pids"]]

    try:
        deadline = time.time() + 20
        while not (caches := mine()) or not caches[0]["hits"]:
            assert time.time() < deadline and process.poll() is None
        assert caches[0]["members"] == 1 and caches[0]["limit_bytes"] <= 2 << 20
        assert 0 < caches[0]["bytes"] <= caches[0]["limit_bytes"]
        dropped = result("cache", "drop", caches[0]["name"], env=here)
        assert dropped["caches"] == 1 and dropped["cache_bytes"] > 0
        assert process.poll() is None, "the run goes on"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert mine() == []


@pytest.mark.parametrize("share", ("job", "off"))
def test_the_kernels_count_has_the_cache_in_it(result, here, share):
    """The shared one is nobody's private memory, and is there all the same."""
    found = result("run", "--epochs", 2, "--set", "memory.cache=100MiB", "--set",
                   f"memory.share={share}", env=here)
    cached, memory = found["cache"]["bytes"], found["memory"]
    assert cached > 90 << 20
    if memory["peak_pss_bytes"] is not None and "FOREBAY_SANITIZED" not in os.environ:
        assert cached - (1 << 20) <= memory["peak_pss_bytes"] <= memory["budget_bytes"]


def test_memory_keep_names_what_to_use_instead(failure, scans, here):
    error = failure(1, "run", *scans.settings, "--epochs", 1, "--set", "memory.keep=1min", env=here)
    assert error["status"] == "BAD_CONFIG"
    assert "page cache" in error["message"] and "forebay pack" in error["message"]


@pytest.mark.parametrize("limit, kept", (("4MiB", 40), ("1500kB", 17)))
def test_preload_fills_the_cache_before_the_first_batch(forebay, scans, here, limit, kept):
    done = forebay("run", *scans.settings, "--epochs", 3, "--json", "--set", f"memory.cache={limit}",
                   "--set", "memory.budget=32MiB", "--set", "memory.share=off", "--set",
                   "memory.preload=true", "--set", "memory.policy=fill", env=here)
    found = done.json()
    items = found["cache"]["items"]
    assert kept <= items <= kept + 6 and found["cache"]["bytes"] <= found["cache"]["limit_bytes"]
    assert [epoch["hits"] for epoch in found["epochs"]] == [items] * 3, "from the first epoch on"
    assert f"preloaded {items} units into the cache" in done.stderr
    plain = forebay("run", *scans.settings, "--epochs", 3, "--json", env=here).json()
    assert found["checksum"] == plain["checksum"]


def test_preloading_shows_how_far_it_is(program, scans, here):
    """In a terminal."""
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [program, "run", *map(str, scans.settings), "--steps", "1", "--set", "memory.cache=4MiB",
         "--set", "memory.budget=32MiB", "--set", "memory.share=off", "--set",
         "memory.preload=true"], stdout=subprocess.DEVNULL, stderr=follower,
        env={**os.environ, **here, "TERM": "xterm"})
    os.close(follower)
    said = b""
    try:
        while part := os.read(leader, 65536):
            said += part
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert process.wait() == 0
    assert b"filling the cache" in said, said
