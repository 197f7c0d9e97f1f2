"""forebay plan: what it foretells is what a run does."""
import io
import math
import tarfile

import numpy as np
import pytest


def test_the_quickstart_is_planned_without_a_configuration(forebay, result, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    plan = result("plan", env=env)
    assert (plan["kind"], plan["samples"], plan["batches"]) == ("bin", 256, 16)
    assert plan["budget_bytes"] == 256 << 20
    text = forebay("plan", env=env).stdout
    for word in ("floor", "Memory, at most", "Settings", "fill", "next-use", "lru", "hit rate"):
        assert word in text


def test_a_run_has_the_planned_settings_and_stays_within_the_stages(result, scans):
    more = [*scans.settings, "--set", "batch.size=4", "--set", "memory.budget=16MiB",
            "--set", "memory.cache=1MiB"]
    plan, run = result("plan", *more), result("run", *more, "--epochs", 3)
    assert run["workers"] == plan["settings"]["workers"]
    assert run["prefetch"] == plan["settings"]["prefetch"]
    assert run["cache"]["policy"] == plan["settings"]["policy"] == "fill"
    assert run["memory"]["floor_bytes"] == plan["floor_bytes"]
    assert sum(plan["memory"].values()) <= plan["budget_bytes"]
    assert run["memory"]["peak_bytes"] <= sum(plan["memory"].values())
    last, planned = run["epochs"][1], plan["curve"]["planned"]["fill"]
    assert abs(last["hits"] / (last["hits"] + last["misses"]) - planned["hit_rate"]) <= 0.05


def test_the_floor_is_enough_and_less_than_a_batch_is_an_error(result, failure, scans):
    more = [*scans.settings, "--set", "batch.size=4", "--set", "memory.cache=off"]
    floor = result("plan", *more)["floor_bytes"]
    run = result("run", *more, "--set", f"memory.budget={floor}")
    assert run["samples"] == 40
    error = failure(1, "plan", *more, "--set", "memory.budget=300kB")
    assert error["status"] == "OVER_BUDGET" and "memory.budget" in error["message"]


def test_permutation_epochs_have_closed_forms(result, scans):
    curve = result("plan", *scans.settings)["curve"]
    assert not curve["simulated"] and curve["epoch_bytes"] == 40 * 64000
    assert [point["share"] for point in curve["points"]] == pytest.approx(
        [i / 10 for i in range(1, 11)])
    for point in curve["points"][:-1]:
        c = point["share"]
        assert point["fill"]["hit_rate"] == pytest.approx(c)
        assert point["next-use"]["hit_rate"] == pytest.approx(c)
        assert point["lru"]["hit_rate"] == pytest.approx(c + (1 - c) * math.log(1 - c))
        assert point["fill"]["bytes_read"] == pytest.approx((1 - c) * 40 * 64000, abs=2)


def test_overlapping_sequences_are_simulated(result, tmp_path):
    for number in range(400):
        np.zeros((10, 4), np.float32).tofile(tmp_path / f"{number}.bin")
    curve = result("plan", "--set", "source.kind=bin", "--set", f"source.path={tmp_path}/*.bin",
                   "--set", "source.sequence=8")["curve"]
    half = curve["points"][4]
    assert curve["simulated"]
    assert half["fill"]["hit_rate"] == pytest.approx(0.5, abs=0.02)
    assert 0.75 < half["next-use"]["hit_rate"] < 0.83
    assert half["lru"]["hit_rate"] < half["fill"]["hit_rate"]
    assert curve["epoch_bytes"] == pytest.approx(393 * 8 * 160)


def test_a_missing_configuration_is_an_error(failure, tmp_path):
    assert failure(1, "plan", tmp_path / "none.yaml")["message"]


def test_chunks_of_packed_shards_are_shown_as_scratch(result, tmp_path):
    """What they take is known before a run, and where it is counted, in plan and run alike."""
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", compresslevel=1) as archive:
        for number in range(64):
            member = tarfile.TarInfo(f"{number}.bin")
            member.size = 1 << 18
            archive.addfile(member, io.BytesIO(np.random.default_rng(number).bytes(1 << 18)))
    more = ["--set", "source.kind=tar", "--set", f"source.path={tmp_path}/*.tar.gz", "--set",
            "memory.budget=32MiB", "--set", "memory.cache=off", "--set", "batch.size=4"]
    plan, run = result("plan", *more), result("run", *more)
    assert 8 << 20 <= plan["memory"]["scratch"] < 10 << 20, "a quarter of the budget, and cursors"
    assert plan["memory"]["other"] < 1 << 20
    assert run["memory"]["peak_bytes"] <= sum(plan["memory"].values()) <= plan["budget_bytes"]
