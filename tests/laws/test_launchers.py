"""Real launchers: a Slurm of the test's own (no accounting, no munge) and Open MPI start the ranks, which
find themselves, cut the order and share one cache."""
import json
import os
import shutil
import socket
import subprocess
import time

import pytest

RANKS, SAMPLES = 4, 64
EPOCHS = 500  # so that all ranks run at the same time for a while
SLURM = """ClusterName=forebay
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/builtin
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until_idle(env, daemons, folder):
    deadline = time.time() + 30
    while time.time() < deadline:
        found = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, env=env)
        if found.stdout.strip() == "idle":
            return
        if any(daemon.poll() is not None for daemon in daemons):
            break
        time.sleep(0.1)
    logs = "".join((folder / f"{name}.log").read_text()[-300:] for name in ("slurmctld", "slurmd"))
    pytest.skip(f"Slurm does not start here: {logs.strip()}")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment in which srun finds a Slurm of one node."""
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun")):
        pytest.skip("Slurm is not installed")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    (folder / "slurm.conf").write_text(SLURM.format(
        host=socket.gethostname().split(".")[0], folder=folder, ports=free_ports(2)))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    env["SLURM_CONF"] = str(folder / "slurm.conf")
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with open(folder / f"{name}.log", "w") as log:
                daemons.append(subprocess.Popen([name, "-D"], stdout=log, stderr=log, env=env))
        wait_until_idle(env, daemons, folder)
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("launched")
    subprocess.run([program, "generate", "lidar", folder / "scans", "--files", str(SAMPLES),
                    "--bytes", "100kB"], check=True, capture_output=True)
    return folder


def settings(folder, epochs):
    return ["--json", "--epochs", str(epochs), *(part for setting in (
        "source.kind=bin", f"source.path={folder}/scans/*.bin", "batch.size=4",
        "memory.budget=128MiB", "memory.cache=3200kB") for part in ("--set", setting))]


def check_ranks(results, alone):
    """Each sample once among them, a quarter of the budget each, the shares of a cache together."""
    assert [result["samples"] for result in results] == [alone["samples"] // RANKS] * RANKS
    assert sum(int(result["checksum"], 16) for result in results) == int(alone["checksum"], 16)
    assert {result["memory"]["budget_bytes"] for result in results} == {(128 << 20) // RANKS}
    share = 3_200_000 // RANKS
    assert max(result["cache"]["limit_bytes"] for result in results) >= 2 * share
    assert all(result["cache"]["limit_bytes"] <= RANKS * share for result in results)


def launched(command, folder, env, run_dir):
    """What each rank printed."""
    script = folder / "rank.sh"
    script.write_text('#!/bin/sh\nrank=${SLURM_PROCID:-$OMPI_COMM_WORLD_RANK}\n'
                      'exec "$@" > "$(dirname "$0")/rank-$rank.json"\n')
    script.chmod(0o755)
    done = subprocess.run([*command[0], script, *command[1]], capture_output=True, text=True,
                          timeout=120, env={**env, "FOREBAY_RUN_DIR": str(run_dir)})
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def alone(program, folder):
    done = subprocess.run([program, "run", *settings(folder, EPOCHS)], check=True, capture_output=True)
    return json.loads(done.stdout)


def test_ranks_that_slurm_starts(slurm, program, folder, alone, tmp_path):
    command = ["srun", f"--ntasks={RANKS}"], [program, "run", *settings(folder, EPOCHS)]
    check_ranks(launched(command, folder, slurm, tmp_path / "run"), alone)


def test_a_log_is_named_by_slurms_job(slurm, program, tmp_path):
    done = subprocess.run(["srun", "--ntasks=1", f"--chdir={tmp_path}", program, "monitor",
                           "--", "sh", "-c", "echo $SLURM_JOB_ID"], capture_output=True, text=True,
                          timeout=60, env=slurm)
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    assert [path.name for path in tmp_path.glob("gpu_utilization_*")] == [f"gpu_utilization_{job}.log"]


def test_ranks_that_open_mpi_starts(program, folder, alone, tmp_path):
    if not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    command = (["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
                "-n", str(RANKS)], [program, "run", *settings(folder, EPOCHS)])
    check_ranks(launched(command, folder, env, tmp_path / "run"), alone)
