#!/usr/bin/env python3
"""A cache in every worker, as people write it, against one line of forebay, under torch's DataLoader.

    python bench/cached.py [--samples 240] [--workers 4] [--epochs 4] [--cache 0.5] [--json]
    python bench/cached.py --full [--epochs 3]

The data set is that of the memory guide this project began with, made smaller: blur, sharp and voxel of a
frame, packed on disk, 3.2 MB in memory. Its own cache is an OrderedDict with a limit in bytes, in each
worker. Memory is that of all processes (private pages, and shared ones once) at the end of each epoch,
less what the same loader has without any cache. --full: as large as there, 60 frames of 140 MB and a limit
of 3 GB; with one such cache in each of 4 workers that takes 12 GB, and is left out where so much is not
available.

Bars: forebay.Cached takes no more than its limit, where an LRU in each worker takes as many times that
as there are workers (or all of the data, if that is less).
"""
import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import tempfile
import time
import warnings

import numpy
import torch

import forebay
from run import HERE, WORKLOADS, make_data, warm

SHAPES = {"blur": (90, 160, 3), "sharp": (90, 160, 3), "voxel": (48, 90, 160)}
SAMPLE_BYTES = sum(int(numpy.prod(shape)) * 4 for shape in SHAPES.values())


def write_samples(folder, count):
    draw = numpy.random.default_rng(0)
    for number in range(count):
        numpy.savez_compressed(folder / f"{number:05d}.npz", **{
            name: draw.integers(0, 4, shape).astype(numpy.float32)
            for name, shape in SHAPES.items()})


class Frames:
    """What is on disk."""
    sample_bytes = SAMPLE_BYTES

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with numpy.load(self.folder / f"{index:05d}.npz") as file:
            return {name: torch.from_numpy(file[name]) for name in SHAPES}


class FullFrames(Frames):
    """Those of bench/run.py, each field a file."""
    sample_bytes = WORKLOADS["frames"]["batch"]

    def __getitem__(self, index):
        return {name: torch.from_numpy(numpy.load(self.folder / f"{index:03d}_{name}.npy"))
                for name in SHAPES}


class LRUCache:
    """The guide's class."""

    def __init__(self, max_bytes, sample_bytes):
        self.max_bytes, self.sample_bytes, self.current = max_bytes, sample_bytes, 0
        self.cache = collections.OrderedDict()

    def get(self, key):
        if key not in self.cache:
            return None
        self.cache.move_to_end(key)
        return {name: value.clone() for name, value in self.cache[key].items()}

    def put(self, key, value):
        while self.cache and self.current + self.sample_bytes > self.max_bytes:
            self.cache.popitem(last=False)
            self.current -= self.sample_bytes
        self.cache[key] = value
        self.current += self.sample_bytes


class LRUFrames:
    """With a cache of its own, which is one in every worker."""

    def __init__(self, frames, max_bytes):
        self.frames = frames
        self.lru = LRUCache(max_bytes, frames.sample_bytes)
        self.hits, self.misses = multiprocessing.Value("q"), multiprocessing.Value("q")

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        sample = self.lru.get(index)
        with (self.misses if sample is None else self.hits).get_lock():
            (self.misses if sample is None else self.hits).value += 1
        if sample is None:
            sample = self.frames[index]
            self.lru.put(index, sample)
        return sample

    def cache_stats(self):
        return {"hits": self.hits.value, "misses": self.misses.value}


def memory_bytes():
    """Of this process and its workers: private pages, and each shared memory file once."""
    private, files = 0, {}
    for pid in (os.getpid(), *(process.pid for process in multiprocessing.active_children())):
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            private += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon"))
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if "memfd:forebay-cache" in os.readlink(f"/proc/{pid}/fd/{name}"):
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    files[status.st_ino] = status.st_blocks * 512
            except OSError:
                pass
    return private * 1024 + sum(files.values())


def processor_seconds():
    """Of this process and its workers so far."""
    ticks = 0
    for pid in (os.getpid(), *(process.pid for process in multiprocessing.active_children())):
        with open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(dataset, args):
    """Hit rate, samples/s and processor time of all epochs but the first; the largest memory."""
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=args.batch, shuffle=True, num_workers=args.workers, persistent_workers=True,
        generator=torch.Generator().manual_seed(0))
    peak, seconds, spent, before, counts = 0, 0.0, 0.0, (0, 0), (0, 0)
    for epoch in range(args.epochs):
        began = time.perf_counter()
        for batch in loader:
            assert batch["voxel"].shape[0] <= args.batch
        if epoch:
            seconds += time.perf_counter() - began
        else:
            spent = processor_seconds()
        peak = max(peak, memory_bytes())
        if hasattr(dataset, "cache_stats"):
            stats = dataset.cache_stats()
            counts = stats["hits"], stats["misses"]
            before = before if epoch else counts
    hits, misses = counts[0] - before[0], counts[1] - before[1]
    return {"memory_mb": peak / 1e6, "hit_rate": hits / max(1, hits + misses),
            "samples_per_s": len(dataset) * (args.epochs - 1) / seconds,
            "processor_ms": (processor_seconds() - spent) / len(dataset) / (args.epochs - 1) * 1e3}


def available_bytes():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


def compare(frames, limit, args):
    """A row for each kind of cache. One in every worker only where there is memory for that."""
    rows = {"no cache": measure(frames, args)}
    need = min(args.workers * limit, args.workers * len(frames) * frames.sample_bytes)
    if available_bytes() > need * 1.2 + 2e9:
        rows["LRU in each worker"] = measure(LRUFrames(frames, limit), args)
    else:
        print(f"LRU in each worker: left out, {need / 1e9:.0f} GB and some are not available")
    rows["LRU, limit / workers each"] = measure(LRUFrames(frames, limit // args.workers), args)
    rows["forebay.Cached"] = measure(forebay.Cached(frames, limit, quiet=True), args)
    base = rows["no cache"]["memory_mb"]
    for row in rows.values():
        row["cache_mb"] = max(0.0, row["memory_mb"] - base)
    return rows


def tell(frames, limit, rows, args):
    print(f"{len(frames)} samples of {frames.sample_bytes / 1e6:.1f} MB, limit {limit / 1e6:.0f} MB, "
          f"{args.workers} workers, epochs 2 to {args.epochs}")
    for name, row in rows.items():
        print(f"  {name:26} {row['cache_mb']:8.0f} MB of cache  {row['hit_rate']:7.1%} hits "
              f"{row['samples_per_s']:8.1f} samples/s {row['processor_ms']:7.2f} ms of processors each")
    ours = rows["forebay.Cached"]["cache_mb"] * 1e6
    # Beside the cache a worker has the batch it is making, and some buffers.
    reached = ours <= limit + args.workers * (2e6 + args.batch * frames.sample_bytes)
    print(f"  forebay.Cached within its limit and a batch for each worker: {'ok' if reached else 'MISS'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=240)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--cache", type=float, default=0.5, help="share of the data set")
    parser.add_argument("--full", action="store_true", help="60 frames of 140 MB, limit 3 GB")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(
        os.environ.get("FOREBAY_BENCH_DATA", pathlib.Path.home() / ".cache" / "forebay-bench")))
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "forebay")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.epochs, args.batch = args.epochs or (3 if args.full else 4), 1 if args.full else 4
    with tempfile.TemporaryDirectory(prefix="forebay-cached-") as name:
        if args.full:
            frames = FullFrames(make_data(args, "frames", WORKLOADS["frames"]), 60)
            limit = 3 * 10 ** 9
            warm(frames.folder)
        else:
            frames = Frames(pathlib.Path(name), args.samples)
            limit = int(args.samples * SAMPLE_BYTES * args.cache)
            write_samples(frames.folder, args.samples)
        rows = compare(frames, limit, args)
    if args.json:
        print(json.dumps({"limit_mb": limit / 1e6, "workers": args.workers, "rows": rows}))
    else:
        tell(frames, limit, rows, args)


if __name__ == "__main__":
    main()
