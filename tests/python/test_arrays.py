"""NumPy, torch and DLPack: the same memory, kept as long as anybody needs it and no longer."""

import gc
import threading

import numpy
import pytest

import forebay
from known import SCANS, scan

first_two = numpy.stack([scan(0), scan(1)])


def held(loader):
    """Batches the caller holds, by the engine's own count."""
    return loader.set(workers=2)["workers"]["held"]["batches"]


def test_large_fields_are_not_copied_and_small_ones_are(config):
    with forebay.Loader(config, as_="dlpack") as loader:
        batch = next(iter(loader))
        assert batch["points"].shared and not batch["index"].shared
        assert numpy.shares_memory(numpy.asarray(batch["points"]),
                                   numpy.from_dlpack(batch["points"]))


@pytest.mark.parametrize("copy", [None, True, False])
def test_numpy_takes_a_field_by_dlpack(config, copy):
    with forebay.Loader(config, as_="dlpack") as loader:
        field = next(iter(loader))["points"]
        assert field.__dlpack_device__() == (1, 0)
        options = {} if copy is None or numpy.__version__ < "2.1" else {"copy": copy}
        array = numpy.from_dlpack(field, **options)
        numpy.testing.assert_array_equal(array, first_two)


def test_an_array_is_writable_and_private(config):
    with forebay.Loader(config) as loader:
        kept = next(iter(loader))["points"]
        kept += 1
        again = next(iter(loader))["points"]
        loader.set_epoch(0)
        again = next(iter(loader))["points"]
        numpy.testing.assert_array_equal(kept, first_two + 1)
        numpy.testing.assert_array_equal(again, first_two)


def test_dlpack_refuses_what_it_cannot_do(config):
    with forebay.Loader(config, as_="dlpack") as loader:
        field = next(iter(loader))["points"]
        with pytest.raises(BufferError):
            field.__dlpack__(stream=3)
        with pytest.raises(BufferError):
            field.__dlpack__(dl_device=(2, 0))
        capsule = field.__dlpack__(max_version=(1, 0))
        assert "dltensor_versioned" in repr(capsule)
        assert '"dltensor"' in repr(field.__dlpack__())
        assert '"dltensor"' in repr(field.__dlpack__(max_version=(0, 8)))


def test_a_capsule_that_nobody_takes_gives_its_batch_back(config):
    with forebay.Loader(config, as_="dlpack") as loader:
        batch = next(iter(loader))
        capsules = [batch["points"].__dlpack__(max_version=version)
                    for version in (None, (1, 0)) for _ in range(3)]
        del batch
        assert held(loader) == 1
        del capsules
        assert held(loader) == 0


def test_arrays_stay_valid_after_close(config):
    loader = forebay.Loader(config)
    kept = next(iter(loader))["points"]
    loader.close()
    del loader
    gc.collect()
    numpy.testing.assert_array_equal(kept, first_two)


def test_labels_of_a_whole_epoch_can_be_kept(config):
    with forebay.Loader(config) as loader:
        for _ in range(20):
            kept = [batch["index"] for batch in loader]
            assert numpy.concatenate(kept).tolist() == list(range(SCANS))


def test_a_view_keeps_its_batch_and_dropping_it_gives_it_back(config):
    with forebay.Loader(config) as loader:
        batch = next(iter(loader))
        view = batch["points"][1, :10]
        del batch
        assert held(loader) == 1
        numpy.testing.assert_array_equal(view, scan(1)[:10])
        del view
        assert held(loader) == 0


def test_holding_everything_is_an_error_that_says_copy(config):
    with forebay.Loader(config, memory="8MiB", cache="off") as loader:
        kept = []
        with pytest.raises(forebay.HeldError, match=r"\.copy\(\)"):
            for _ in range(100):
                kept.extend(loader)
        count = len(kept)
        numpy.testing.assert_array_equal(kept[0]["points"], first_two)
        del kept
        assert count >= 2
        copies = [batch["points"].copy() for batch in loader]
        assert len(copies) == SCANS // 2


def test_batches_in_reference_cycles_are_collected_when_they_are_needed(config):
    with forebay.Loader(config, memory="8MiB", cache="off") as loader:
        gc.disable()
        try:
            for _ in range(20):
                for batch in loader:
                    batch["me"] = batch
        finally:
            gc.enable()


def test_dropping_in_other_threads_and_any_order_leaves_nothing(config):
    rng = numpy.random.default_rng(1)
    with forebay.Loader(config) as loader:
        for _ in range(30):
            kept = []
            for batch in loader:
                kept.append(batch)
                if len(kept) > 2:
                    victim = kept.pop(int(rng.integers(len(kept))))
                    dropper = threading.Thread(target=victim.clear)
                    dropper.start()
                    dropper.join()
                    del victim
            del batch, kept
        assert held(loader) == 0


def test_torch_tensors_share_the_memory(config):
    torch = pytest.importorskip("torch")
    with forebay.Loader(config, as_="torch") as loader:
        batch = next(iter(loader))
        assert batch["points"].dtype == torch.float32 and batch["index"].dtype == torch.int64
        assert torch.equal(batch["points"], torch.from_numpy(first_two))
        assert held(loader) == 1
        part = batch["points"][0]
        del batch
        assert held(loader) == 1
        del part
        assert held(loader) == 0


def test_torch_takes_a_field_by_dlpack_bfloat16_included(config):
    torch = pytest.importorskip("torch")
    with forebay.Loader(config, as_="dlpack", dtype="bf16") as loader:
        tensor = torch.from_dlpack(next(iter(loader))["points"])
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, torch.from_numpy(first_two).to(torch.bfloat16))


def test_pin_says_what_is_missing(config):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        with forebay.Loader(config, pin=True) as loader:
            batch = next(iter(loader))
            assert batch["points"].is_pinned() and held(loader) == 0
    else:
        with pytest.raises(forebay.NoDeviceError, match="pin"):
            forebay.Loader(config, pin=True)


def test_pin_gives_torchs_own_memory_and_keeps_no_batch(config, monkeypatch):
    """Without CUDA there is no pinned memory: what torch would do is played."""
    torch = pytest.importorskip("torch")
    pinned = []

    def pin_memory(tensor):
        pinned.append(tensor.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    with forebay.Loader(config, pin=True) as loader:
        batch = next(iter(loader))
        assert {id(value) for value in batch.values()} == {id(tensor) for tensor in pinned}
        assert numpy.array_equal(batch["points"][0].numpy(), scan(0))
        assert held(loader) == 0
    with pytest.raises(ValueError, match="torch"):
        forebay.Loader(config, pin=True, as_="dlpack")


def test_without_torch_that_is_said(python, config):
    said = python("""
        import json, sys
        sys.modules["torch"] = None
        import forebay
        try:
            forebay.Loader({}, as_="torch")
        except ImportError as error:
            print(json.dumps(str(error)))
    """)
    assert "PyTorch" in said


def test_as_of_an_unknown_kind_is_refused(config):
    with pytest.raises(ValueError, match="dlpack"):
        forebay.Loader(config, as_="jax")


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_stays_flat_over_many_epochs(config):
    with forebay.Loader(config, memory="16MiB") as loader:
        previous, after_warm_up = None, None
        epochs = int(__import__("os").environ.get("FOREBAY_SOAK", "0")) * 950 + 50
        for epoch in range(epochs):
            for batch in loader:
                previous, batch = batch, None
            if epoch == 9:
                after_warm_up = resident_bytes()
        del previous
        assert resident_bytes() - after_warm_up < 4 * 2**20
        assert loader.stats()["memory"]["peak_bytes"] <= 16 * 2**20
