"""forebay monitor: host, processes and GPUs; a command's own exit code; alarms; the log."""
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import pytest


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_view_is_the_guides(forebay):
    done = forebay("monitor", "--samples", 1)
    assert done.returncode == 0
    for word in ("=== CPU Memory ===", "Mem:", "Swap:", "=== GPU Memory ==="):
        assert word in done.stdout


def test_json_is_one_object(result):
    now = result("monitor", "--samples", 2)
    assert now["samples"] == 2 and now["alarms"] == 0
    assert 0 < now["last"]["memory"]["available_bytes"] <= now["last"]["memory"]["total_bytes"]
    assert 0 <= now["last"]["cpu"]["percent"] <= 100
    assert now["last"]["tree"] is None


@pytest.mark.parametrize("command, code", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_it_ends_as_the_command_does(forebay, tmp_path, command, code):
    done = forebay("monitor", "--job", 52098, "--", "sh", "-c", f"echo out; {command}",
                   cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "out\n")
    log = lines(tmp_path / "gpu_utilization_52098.log")
    assert log and log[0]["kind"] == "host" and log[0]["memory"]["total_bytes"] > 0


def test_slurms_job_names_the_log(forebay, tmp_path):
    done = forebay("monitor", "--", "true", cwd=tmp_path, env={"SLURM_JOB_ID": "77"})
    assert done.returncode == 0
    assert (tmp_path / "gpu_utilization_77.log").exists()


def test_the_tree_of_processes_is_watched(forebay, tmp_path):
    take = "import time; x = b'x' * (64 << 20); time.sleep(2.5)"
    log = tmp_path / "log"
    done = forebay("monitor", "--log", log, "--", "sh", "-c", f'python3 -c "{take}"; true')
    assert done.returncode == 0
    trees = [line["tree"] for line in lines(log) if line["tree"]]
    assert max(tree["resident_bytes"] for tree in trees) > 64 << 20
    assert max(tree["processes"] for tree in trees) >= 2


def test_signals_reach_the_command(program, tmp_path):
    process = subprocess.Popen([program, "monitor", "--log", tmp_path / "log", "--", "sh", "-c",
                                "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 9


def test_an_alarm_runs_its_command_and_stop_ends_the_run(forebay, tmp_path):
    told = tmp_path / "told"
    done = forebay("monitor", "--samples", 3, "--set", "monitor.alarm.system=1MiB", "--set",
                   "monitor.alarm.action=command", "--set",
                   f'monitor.alarm.command=["sh", "-c", "echo \\"$FOREBAY_ALARM\\" > {told}"]')
    assert done.returncode == 0
    assert done.stderr.count("warning: alarm: used memory of the system") == 1
    assert "exceeds 1.0 MiB" in told.read_text()
    done = forebay("monitor", "--log", tmp_path / "log", "--set", "monitor.alarm.system=1%",
                   "--set", "monitor.alarm.action=stop", "--", "sleep", "60", timeout=20)
    assert done.returncode == 128 + signal.SIGTERM
    assert [line["kind"] for line in lines(tmp_path / "log")].count("alarm") == 1


@pytest.mark.parametrize("arguments, code", [
    (["--pid", "4000000"], 1), (["--set", "batch.size=3"], 2),
    (["--set", "monitor.alarm.swap=much"], 1), (["--listen", "nowhere"], 2),
    (["--set", "monitor.alarm.action=shrink"], 2)])
def test_what_cannot_be_is_told(failure, arguments, code):
    failure(code, "monitor", "--samples", 1, *arguments)


def test_a_command_that_is_not_there(forebay, tmp_path):
    done = forebay("monitor", "--", "/nowhere/command", cwd=tmp_path)
    assert done.returncode == 1 and "/nowhere/command" in done.stderr


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_prometheus_reads_host_and_loaders(program, running, scans, tmp_path):
    loader = running(*scans.settings, "--epochs", 1000000, "--set", "batch.collate=pad")
    port = free_port()
    process = subprocess.Popen([program, "monitor", "--listen", str(port), "--json"],
                               env=loader.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    try:
        text = ""
        for _ in range(100):
            try:
                text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            except OSError:
                assert process.poll() is None, process.stderr.read()
            if "samples_total" in text:
                break
            time.sleep(0.1)
        assert f'forebay_samples_total{{pid="{loader.pid}",name="train"}}' in text
        assert "forebay_host_memory_available_bytes " in text
        for line in text.splitlines():
            float(line.rsplit(" ", 1)[1])
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/passwd")
    finally:
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)
    if "built without" in errors:
        pytest.skip("built without libmicrohttpd")
    assert process.returncode == 0 and json.loads(out)["samples"] >= 1


NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "Pretend 9000", n); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *r) { r[0] = 87; r[1] = 5; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m)
{ m[0] = 32ull << 30; m[1] = 24ull << 30; m[2] = (long)d * (8ull << 30); return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *w) { *w = 250500; return 0; }
int nvmlDeviceGetTemperature(void *d, int s, unsigned *t) { return 3; }
"""


def test_gpus_are_asked_through_the_drivers_library(forebay, result, scans, tmp_path):
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no compiler for a pretended driver")
    (tmp_path / "nvml.c").write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1",
                    tmp_path / "nvml.c"], check=True, capture_output=True)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    gpus = result("monitor", "--samples", 1, env=env)["last"]["gpus"]
    assert len(gpus) == 2 and gpus[1]["memory_used_bytes"] == 16 << 30
    assert gpus[0]["utilization_percent"] == 87 and gpus[0]["power_watts"] == 250.5
    assert gpus[0]["temperature_celsius"] is None, "what fails is unknown, not 0"
    done = forebay("monitor", "--samples", 1, "--set", "monitor.alarm.gpu=40%", env=env)
    assert "16384.0 MiB, 32768.0 MiB, 87.0 %" in done.stdout and "n/a C" not in done.stdout
    assert "used memory of a GPU, 16.0 GiB, exceeds 12.8 GiB" in done.stderr
    done = forebay("run", *scans.settings, "--epochs", 500, "--set", "batch.collate=pad", "--set",
                   "monitor.alarm.gpu=12GiB", env=env)
    assert done.returncode == 0 and "alarm: used memory of a GPU, 16.0 GiB, exceeds 12" in done.stderr
