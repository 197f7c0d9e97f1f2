"""A training loop with forebay, with torch or without it. From a clone, after `make python`:

    .venv/bin/python examples/train.py [CONFIG.yaml]

Without a configuration it writes a few LiDAR scans to a temporary folder and trains on those. It
saves its state after every epoch to train-state.json in that folder, as a real run would.
"""

import json
import logging
import sys
import tempfile
from pathlib import Path

import numpy

import forebay

EPOCHS = 3


def write_scans(folder: Path) -> dict:
    """A configuration for 64 scans of 4096 points (x, y, z, intensity)."""
    rng = numpy.random.default_rng(0)
    for number in range(64):
        rng.normal(size=(4096, 4)).astype("float32").tofile(folder / f"{number:06d}.bin")
    return {"source": {"kind": "bin", "path": f"{folder}/*.bin"}, "batch": {"size": 8},
            "memory": {"budget": "256MiB"}}


def numpy_step():
    """Fits the mean of each column, by hand."""
    mean = numpy.zeros(4, "float32")

    def step(points):
        nonlocal mean
        difference = mean - points.mean(axis=(0, 1))
        mean = mean - 0.1 * difference
        return float((difference**2).sum())

    return step


def torch_step(torch):
    """A small network that learns the intensity from the position."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(points):
        loss = torch.nn.functional.mse_loss(model(points[..., :3]), points[..., 3:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def train(config, folder: Path) -> None:
    try:
        import torch
    except ImportError:
        torch = None
    step = torch_step(torch) if torch else numpy_step()
    saved = folder / "train-state.json"
    monitor = forebay.MemoryMonitor(every=10)
    with forebay.Loader(config, name="train", as_="torch" if torch else "numpy") as loader:
        if saved.exists():
            loader.load_state_dict(json.loads(saved.read_text()))
        for epoch in range(EPOCHS):
            losses = []
            for batch in loader:
                losses.append(step(batch["points"]))
                monitor.step()
            saved.write_text(json.dumps(loader.state_dict()))
            print(f"epoch {epoch}: {len(losses)} batches, loss {numpy.mean(losses):.4f}")
        stats = loader.stats()
        print(f"{stats['samples']} samples, peak memory {stats['memory']['peak_bytes'] / 2**20:.1f} "
              f"of {stats['memory']['budget_bytes'] / 2**20:.1f} MiB")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with tempfile.TemporaryDirectory() as temporary:
        chosen = sys.argv[1] if len(sys.argv) > 1 else write_scans(Path(temporary))
        train(chosen, Path(temporary))
