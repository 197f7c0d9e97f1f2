"""plan and run give one answer: what plan takes, run finishes; what plan refuses, run refuses."""
import json

import numpy as np
import pytest


def sets(*settings):
    return [part for setting in settings for part in ("--set", setting)]


def scans(folder):
    for number in range(24):
        np.full((1000 * (1 + number % 8), 4), number, "f4").tofile(folder / f"{number:02}.bin")
    return ["source.kind=bin", f"source.path={folder}/*.bin"]


def sequences(folder):
    return [*scans(folder), "source.sequence=8"]


def arrays(folder):
    for number in range(24):
        np.save(folder / f"{number:02}.npy", np.full((1000 * (1 + number % 8), 4), number, "f4"))
    return ["source.kind=npy", f"source.path={folder}/*.npy"]


def equal(folder):
    for number in range(24):
        np.save(folder / f"{number:02}.npy", np.full((8000, 4), number, "f4"))
    return ["source.kind=npy", f"source.path={folder}/*.npy"]


def windows(folder):
    for number in range(4):
        np.save(folder / f"{number}.npy", np.zeros((20000, 16), "f4"))
    return ["source.kind=windows", f"source.path={folder}/*.npy", "source.window=4096",
            "source.stride=1024"]


KINDS = (scans, sequences, arrays, equal, windows)


@pytest.mark.parametrize("collate", ("stack", "pad", "ragged"))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_plan_and_run_agree(forebay, tmp_path, kind, collate):
    if collate == "stack" and kind in (scans, sequences, arrays):
        pytest.skip("these do not stack")
    settings = [*kind(tmp_path), "batch.size=4", f"batch.collate={collate}", "memory.share=off",
                "workers=1"]
    answers = set()
    for budget in ("1200KiB", "2MiB", "3MiB", "5MiB", "9MiB", "64MiB"):
        arguments = sets(*settings, f"memory.budget={budget}")
        plan, run = forebay("plan", *arguments, "--json"), forebay("run", *arguments, "--json")
        answers.add(run.returncode)
        if plan.returncode == 0 and run.returncode != 0:
            assert collate == "ragged" and "may take up to" in plan.stderr, (budget, run.stderr)
        else:
            assert plan.returncode == run.returncode, (budget, plan.stderr, run.stderr)
        if plan.returncode:
            assert (json.loads(plan.stdout)["error"]["message"]
                    == json.loads(run.stdout)["error"]["message"]), budget
    assert answers == {0, 1}, "budgets on both sides of the bound"


def test_a_budget_above_the_machines_memory_is_cut_down_in_words(forebay, tmp_path):
    settings = sets(*equal(tmp_path), "memory.budget=1000TiB")
    total = next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo")
                 if line.startswith("MemTotal"))
    for command in ("plan", "run", "inspect"):
        done = forebay(command, *settings, "--json")
        assert done.returncode == 0 and "will be used" in done.stderr, done.stderr
        found = json.loads(done.stdout)
        budget = found.get("budget_bytes") or found.get("memory", {}).get("budget_bytes", 0)
        assert budget <= total


def test_plan_and_inspect_tell_the_same_bytes_of_sounds(result, tmp_path):
    result("generate", "audio", tmp_path / "a", "--files", 12)
    manifest = next((tmp_path / "a").glob("*.json*"))
    settings = sets("source.kind=audio", f"source.path={manifest}", "source.rate=16000")
    assert result("inspect", *settings)["bytes"] == result("plan", *settings)["bytes"]
