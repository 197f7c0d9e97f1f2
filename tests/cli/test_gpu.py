"""GPUs by the emulated management library, presets by the emulated driver's memory."""
import pytest

GB = 10 ** 9


@pytest.fixture
def around(program, root):
    """The environment in which the emulated driver and its management library are found."""
    folder = program.resolve().parent.parent / "tests/emulated"
    if not (folder / "libnvidia-ml.so.1").exists():
        pytest.skip(f"no emulated library in {folder}")
    return {"LD_LIBRARY_PATH": str(folder), "EMULATED_CUDA_DEVICES": "3",
            "EMULATED_CUDA_MEMORY": str(8 << 30),
            "LSAN_OPTIONS": f"print_suppressions=0:suppressions={root}/tests/emulated/lsan.supp"}


def check(gpus):
    assert [gpu["name"] for gpu in gpus] == [f"Emulated GPU {i}" for i in range(3)]
    assert [gpu["utilization_percent"] for gpu in gpus] == [40, 41, 42]
    assert [gpu["memory_used_bytes"] for gpu in gpus] == [1 << 30, 2 << 30, 3 << 30]
    assert {gpu["memory_total_bytes"] for gpu in gpus} == {8 << 30}
    assert [gpu["power_watts"] for gpu in gpus] == [100.5, 101.5, 102.5]
    assert [gpu["temperature_celsius"] for gpu in gpus] == [50, 51, 52]


def test_monitor_reads_every_gpu(result, forebay, around):
    check(result("monitor", "--samples", 2, env=around)["last"]["gpus"])
    shown = forebay("monitor", "--samples", 1, env=around).stdout
    assert "3072.0 MiB, 8192.0 MiB, 42.0 %, 102.5 W, 52.0 C  Emulated GPU 2" in shown


def test_diagnose_reads_every_gpu(result, forebay, around):
    told = result("diagnose", "--device", "cuda:2", env=around)
    check(told["gpus"])
    assert told["devices"][0]["name"] == "Emulated GPU 2"
    shown = forebay("diagnose", "--device", "cuda:2", env=around).stdout
    assert "GPU 1      Emulated GPU 1: 41 % busy, 2048 of 8192 MiB" in shown


def test_diagnose_measures_the_machine(result, forebay, tmp_path):
    (tmp_path / "here").mkdir()
    told = result("diagnose", "--device", "host", env={"TMPDIR": str(tmp_path / "here")})
    assert told["host"]["memcpy_bytes_per_s"] > 0 and told["gpus"] is None
    speed = told["speed"]
    assert speed["folder"] == str(tmp_path / "here")
    assert speed["read_bytes_per_s"] > 0 and speed["decode_images_per_s"] > 0
    assert speed["decode_bytes_per_s"] > speed["decode_images_per_s"]
    assert not any((tmp_path / "here").iterdir()), "nothing is left behind"
    lost = forebay("diagnose", "--device", "host", "--json", env={"TMPDIR": "/nowhere"})
    assert lost.returncode == 0 and lost.json()["speed"]["read_bytes_per_s"] is None
    assert "cannot make" in lost.stderr


def test_top_shows_every_gpu(running, scans, around):
    loader = running(*scans.settings, "--epochs", 1000000, "--set", "batch.collate=pad")
    loader.until(lambda now: now["samples"])
    loader.env.update(around)
    shown = loader.forebay("top", loader.pid, "--once").stdout
    assert "GPU 0       40% busy, 1024 of 8192 MiB  Emulated GPU 0" in shown
    assert "GPU 2       42% busy, 3072 of 8192 MiB  Emulated GPU 2" in shown


@pytest.mark.parametrize("fail", ["nvmlInit_v2", "nvmlDeviceGetCount_v2"])
def test_a_library_that_does_not_work_is_no_gpu(result, around, fail):
    env = {**around, "EMULATED_NVML_FAIL": fail}
    assert result("monitor", "--samples", 1, env=env)["last"]["gpus"] is None
    assert result("diagnose", "--device", "host", env=env)["gpus"] is None


def test_what_a_gpu_does_not_tell_is_unknown(result, forebay, around):
    env = {**around, "EMULATED_NVML_FAIL": "nvmlDeviceGetTemperature@1,nvmlDeviceGetPowerUsage,"
                                           "nvmlDeviceGetMemoryInfo@2"}
    gpus = result("monitor", "--samples", 1, env=env)["last"]["gpus"]
    assert [gpu["temperature_celsius"] for gpu in gpus] == [50, None, 52]
    assert [gpu["power_watts"] for gpu in gpus] == [None] * 3
    assert [gpu["memory_used_bytes"] for gpu in gpus] == [1 << 30, 2 << 30, None]
    env = {**around, "EMULATED_NVML_FAIL": "nvmlDeviceGetHandleByIndex_v2@0"}
    gpus = result("monitor", "--samples", 1, env=env)["last"]["gpus"]
    assert gpus[0]["utilization_percent"] is None and gpus[1]["utilization_percent"] == 41
    done = forebay("monitor", "--samples", 1, "--set", "monitor.alarm.gpu=30%", env=env)
    assert "used memory of a GPU, 3.0 GiB, exceeds 2.4 GiB" in done.stderr


def test_the_memory_line_tells_our_own_device_memory(forebay, scans, around):
    done = forebay("run", *scans.settings, "--set", "device.kind=cuda:0", "--set",
                   "monitor.every=1", "--steps", 3, env=around)
    assert done.returncode == 0
    assert "MB allocated, " in done.stderr + done.stdout
    assert "MB reserved" in done.stderr + done.stdout


@pytest.mark.parametrize("size, preset, cache", [
    (48 * GB, "gpu-aggressive", 10000), (25_300_000_000, "gpu-aggressive", 10000),
    (24 * GB, "gpu-aggressive", 10000), (16 << 30, "gpu-combined", 3000),
    (12 << 30, "gpu-minimal", 2000), (8 << 30, "gpu-minimal", 2000)])
def test_gpu_auto_goes_by_memory_and_says_so(forebay, scans, around, size, preset, cache):
    done = forebay("run", *scans.settings, "--set", "preset=gpu-auto", "--set",
                   "memory.budget=128MiB", "--json",
                   env={**around, "EMULATED_CUDA_MEMORY": str(size)})
    assert done.returncode == 0, done.stderr
    assert f"preset: gpu-auto takes {preset}: cuda:0 has " in done.stderr
    assert f"device.cache: {cache} samples" in done.stderr
    assert done.json()["device"]["kind"] == "cuda"
    assert done.json()["batches"] == (1 if preset == "gpu-minimal" else 40)


def test_plan_knows_what_gpu_auto_takes(forebay, scans, around):
    done = forebay("plan", *scans.settings, "--set", "preset=gpu-auto", env=around)
    assert done.returncode == 0, done.stderr
    assert "gpu-auto takes gpu-minimal" in done.stderr and "1 batches" in done.stdout


def test_presets_on_the_host_say_that_they_have_no_effect(forebay, scans):
    done = forebay("run", *scans.settings, "--set", "preset=gpu-auto", "--set", "device.kind=host")
    assert done.returncode == 0 and "gpu-auto takes none" in done.stderr
    done = forebay("run", *scans.settings, "--set", "preset=gpu-basic", "--set",
                   "device.kind=host", "--set", "workers=2", "--json")
    assert done.returncode == 0 and done.json()["workers"] == 2
    assert "device.cache has no effect" in done.stderr
