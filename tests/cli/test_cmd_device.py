"""`forebay run` with batches on a device: OpenCL on PoCL, CUDA on the emulated driver."""
import pytest


@pytest.fixture
def around(program, root, tmp_path):
    """The environment in which the emulated driver is found, and PoCL may write its kernels."""
    return {"LD_LIBRARY_PATH": str(program.resolve().parent.parent / "tests/emulated"),
            "POCL_CACHE_DIR": str(tmp_path / "pocl"),
            "LSAN_OPTIONS": f"print_suppressions=0:suppressions={root}/tests/emulated/lsan.supp"}


@pytest.fixture(params=["cuda:0", "opencl:0"])
def kind(request, forebay, around, scans):
    done = forebay("run", *scans.settings, "--set", f"device.kind={request.param}", "--steps", 1,
                   env=around)
    if request.param == "opencl:0" and done.returncode:
        pytest.skip(f"no OpenCL here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return request.param


def test_a_device_delivers_what_the_host_delivers(kind, around, scans, result):
    settings = [*scans.settings, "--set", "batch.size=8", "--set", "memory.budget=64MiB",
                "--epochs", 2]
    host = result("run", *settings)
    device = result("run", *settings, "--set", f"device.kind={kind}", env=around)
    assert device["checksum"] == host["checksum"]
    assert device["samples"] == host["samples"] == 80
    assert device["device"]["kind"] == kind.split(":")[0]
    assert device["device"]["bytes_copied"] >= device["bytes"]
    assert device["device"]["copy_hidden_s"] + device["device"]["copy_exposed_s"] > 0
    assert device["memory"]["peak_bytes"] <= device["memory"]["budget_bytes"]
    assert host["device"] == {**host["device"], "kind": "host", "bytes_copied": 0,
                              "copy_hidden_s": None}


def test_the_guides_run(kind, around, tmp_path, result):
    """Window 64, stride 20, batch 1024, a cache of 5000 samples on the device."""
    result("generate", "windows", tmp_path / "series", "--files", 8, "--bytes", "4MB")
    settings = ["--set", "source.kind=windows", "--set", f"source.path={tmp_path}/series/*.npy",
                "--set", "source.window=64", "--set", "source.stride=20", "--set",
                "batch.size=1024", "--set", "memory.budget=512MiB", "--epochs", 3]
    host = result("run", *settings)
    run = result("run", *settings, "--set", f"device.kind={kind}", "--set",
                 "device.cache=5000 samples", env=around)
    device = run["device"]
    again = result("run", *settings, "--set", f"device.kind={kind}", "--set",
                   "device.cache=5000 samples", "--set", "device.preload=true", env=around)
    epoch = host["samples"] // 3
    assert epoch > 3 * 1024
    assert device["cache_items"] == 8 and device["cache_bytes"] < 8 * 4_100_000, \
        "each file is in device memory once, however its windows overlap"
    assert device["cache_hits"] + device["cache_misses"] == 3 * epoch
    assert device["cache_hits"] >= epoch and device["bytes_copied"] < host["bytes"] / 2
    assert run["checksum"] == again["checksum"] == host["checksum"]
    assert again["device"]["cache_hits"] == 3 * epoch and again["device"]["cache_misses"] == 0


@pytest.mark.parametrize("fail", ["1", "2", "5", "1-", "4-"])
def test_a_device_without_memory_does_not_end_the_run(fail, around, scans, result, forebay):
    settings = [*scans.settings, "--set", "batch.size=8", "--set", "memory.budget=64MiB"]
    host = result("run", *settings)
    done = forebay("run", *settings, "--set", "device.kind=cuda:0", "--json",
                   env={**around, "EMULATED_CUDA_FAIL": fail})
    assert done.returncode == 0, done.stderr
    assert done.json()["checksum"] == host["checksum"]
    if fail.endswith("-"):
        assert done.stderr.count("out of memory") in (1, 2, 3), "pinning, prefetch, host: each said once"


def test_a_device_that_is_missing_is_an_error_in_words(scans, failure, forebay):
    error = failure(1, "run", *scans.settings, "--set", "device.kind=opencl:99")
    assert error["status"] in ("NO_DEVICE", "NOT_BUILT") and error["place"] == "device.kind"
    assert "opencl" in error["message"]
    done = forebay("run", *scans.settings, "--set", "device.kind=auto")
    assert done.returncode == 0 and "device: auto takes" in done.stderr


def test_keys_of_a_device_are_accepted_on_the_host_and_that_is_said_once(scans, forebay):
    done = forebay("run", *scans.settings, "--set", "device.cache=5000 samples", "--set",
                   "device.prefetch=3")
    assert done.returncode == 0
    assert done.stderr.count("has no effect") == 1


def test_a_source_with_a_random_part_is_refused_in_words(around, tmp_path, result, forebay):
    result("generate", "images", tmp_path / "images", "--files", 4)
    done = forebay("run", "--set", "source.kind=images", "--set",
                   f"source.path={tmp_path}/images/**/*.jpg", "--set", "source.size=32", "--set",
                   "source.crop=random", "--set", "device.kind=cuda:0", "--set",
                   "device.cache=10 samples", "--json", env=around)
    assert done.returncode == 1
    error = done.json()["error"]
    assert error["status"] == "BAD_CONFIG" and error["place"] == "--set device.cache"
    assert "makes its samples anew each time" in error["message"]


def test_diagnose_tells_what_is_there(result, around):
    told = result("diagnose", env=around)
    assert told["host"]["cpus"] >= 1 and told["host"]["memcpy_bytes_per_s"] > 0
    cuda = [device for device in told["devices"] if device["kind"] == "cuda:0"][0]
    assert cuda["gpu"] and cuda["name"] == "Emulated GPU 0" and cuda["pinned_bytes_per_s"] > 0
    assert cuda["total_bytes"] == 256 << 20


def test_the_self_test_of_a_device_holds(kind, result, around):
    told = result("diagnose", "--device", kind, "--self-test", env=around)
    claims = told["devices"][0]["self_test"]
    assert len(claims) == 8 and told["failed"] == 0
    assert all(claim["ok"] for claim in claims), claims


def test_the_self_test_fails_where_a_device_does(forebay, around):
    done = forebay("diagnose", "--device", "cuda:0", "--self-test",
                   env={**around, "EMULATED_CUDA_FAIL": "1-"})
    assert done.returncode == 1 and "FAILED" in done.stdout and "out of memory" in done.stdout


def test_diagnose_of_a_device_that_is_missing_fails(failure):
    assert "opencl" in failure(1, "diagnose", "--device", "opencl:99")["message"]
    failure(1, "diagnose", "--device", "nonsense")
