#!/usr/bin/env python3
"""The peers of bench/run.py: each reads a set of ours in the best way that is known for it.

    bench/peers.py WORKLOAD PEER DIR [--epochs N]       one JSON object: samples_per_s
    bench/peers.py --list                               which peers there are for which set

A peer that is not installed is an exit with status 3 and its name. As with forebay and the limits, the consumer
reads the first, the last and every 4096th byte of each batch, and the last epoch is what counts. Which way is
the best for each was measured once: threads that read straight into the batch for large samples, a vectorised
gather without workers for rows, DALI for decoding.
"""
import argparse
import json
import pathlib
import sys
import time

import numpy as np

THREADS = 2


def touch(array):
    flat = np.asarray(array).reshape(-1).view(np.uint8)
    return int(flat[::4096].sum()) + int(flat[-1])


def shuffled(count):
    return np.random.default_rng(0).permutation(count)


def read_into(path, to):
    with open(path, "rb", buffering=0) as file:
        file.readinto(memoryview(to).cast("B"))


class Scans:
    """Files of N points; a sample is `sequence` of them in a row."""

    def __init__(self, folder, sequence, batch):
        self.paths = sorted(pathlib.Path(folder).glob("*.bin"))
        self.sequence, self.batch = sequence, batch
        self.points = self.paths[0].stat().st_size // 16
        self.samples = len(self.paths) - sequence + 1

    def batches(self):
        order = shuffled(self.samples)
        last = len(order) - len(order) % self.batch
        return [order[at:at + self.batch] for at in range(0, last, self.batch)]

    def load(self, indices):
        out = np.empty((len(indices), self.sequence, self.points, 4), np.float32)
        for row, first in enumerate(indices):
            for k in range(self.sequence):
                read_into(self.paths[first + k], out[row, k])
        return out


class Frames:
    """Three arrays a sample, one sample a batch."""

    def __init__(self, folder):
        self.groups = [sorted(pathlib.Path(folder).glob(f"*_{name}.npy"))
                       for name in ("blur", "sharp", "voxel")]

    def batches(self):
        return [[index] for index in shuffled(len(self.groups[0]))]

    def load(self, indices):
        return [self.array(group[indices[0]]) for group in self.groups]

    @staticmethod
    def array(path):
        mapped = np.load(path, mmap_mode="r")
        out = np.empty((1, *mapped.shape), mapped.dtype)
        with open(path, "rb", buffering=0) as file:
            file.seek(mapped.offset)
            file.readinto(memoryview(out).cast("B"))
        return out


def consume(batch):
    """Samples of a batch, all of it looked at."""
    arrays = batch if isinstance(batch, (list, tuple)) else [batch]
    for array in arrays:
        touch(array)
    return len(arrays[0])


def with_spdl(work):
    """Threads that each make a whole batch."""
    from spdl.pipeline import PipelineBuilder

    def epoch():
        pipeline = (PipelineBuilder().add_source(work.batches())
                    .pipe(work.load, concurrency=THREADS).add_sink(THREADS).build(num_threads=THREADS))
        with pipeline.auto_stop():
            yield from pipeline
    return epoch


def with_torch(work):
    """No workers: those copy every batch twice more. The data set fills the batch itself."""
    import torch

    class Dataset(torch.utils.data.Dataset):
        def __len__(self):
            return len(work.batches())

        def __getitem__(self, index):
            loaded = work.load(batches[index])
            return [torch.from_numpy(a) for a in loaded] if isinstance(loaded, list) else \
                torch.from_numpy(loaded)

    batches = work.batches()
    return lambda: iter(torch.utils.data.DataLoader(Dataset(), batch_size=None))


def rows_with_torch(array, starts, length, batch):
    """A gather of rows (or of windows that begin at `starts`) from memory."""
    import torch

    data, first = torch.from_numpy(array), torch.from_numpy(starts)
    steps = torch.arange(length)

    class Dataset(torch.utils.data.Dataset):
        def __getitem__(self, indices):
            at = first[indices]
            return data[at] if length == 1 else data[at[:, None] + steps]

    # A sampler of whole batches of indices: one by one they would cost more than the rows.
    return lambda: iter(torch.utils.data.DataLoader(
        Dataset(), batch_size=None, sampler=torch.randperm(len(first)).split(batch)))


def windows(folder):
    arrays = [np.load(path) for path in sorted(pathlib.Path(folder).glob("*.npy"))]
    starts, at = [], 0
    for array in arrays:
        starts.append(np.arange(at, at + len(array) - 63, 20))
        at += len(array)
    return np.concatenate(arrays), np.concatenate(starts)


def table(folder):
    import pyarrow.csv
    parts = sorted(pathlib.Path(folder).glob("*.csv"))
    columns = [np.stack([c.to_numpy() for c in pyarrow.csv.read_csv(p).columns], 1) for p in parts]
    matrix = np.concatenate(columns).astype(np.float32)
    return matrix, np.arange(len(matrix))


def with_dali(folder, kind):
    from nvidia.dali import fn, pipeline_def, types

    files = sorted(map(str, pathlib.Path(folder).rglob("*.jpg" if kind == "jpeg" else "*.*a[cv]*")))
    batch = 64 if kind == "jpeg" else 16

    @pipeline_def(batch_size=batch, num_threads=THREADS, device_id=None, prefetch_queue_depth=2)
    def pictures():
        data, _ = fn.readers.file(files=files, random_shuffle=True, name="reader")
        image = fn.decoders.image_random_crop(data, output_type=types.RGB)
        image = fn.resize(image, size=(224, 224))
        return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW",
                                        mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375],
                                        mirror=fn.random.coin_flip())

    @pipeline_def(batch_size=batch, num_threads=THREADS, device_id=None, prefetch_queue_depth=2)
    def sounds():
        data, _ = fn.readers.file(files=files, random_shuffle=True, name="reader")
        audio, _ = fn.decoders.audio(data, downmix=True, dtype=types.FLOAT)
        return fn.pad(audio)

    pipeline = pictures() if kind == "jpeg" else sounds()
    pipeline.build()

    def epoch():
        for _ in range(len(files) // batch):
            yield np.asarray(pipeline.run()[0].as_tensor())
    return epoch


PEERS = {
    "lidar": {"spdl": lambda d: with_spdl(Scans(d, 1, 16)), "torch": lambda d: with_torch(Scans(d, 1, 16))},
    "lidar15": {"spdl": lambda d: with_spdl(Scans(d, 8, 4)), "torch": lambda d: with_torch(Scans(d, 8, 4))},
    "frames": {"spdl": lambda d: with_spdl(Frames(d)), "torch": lambda d: with_torch(Frames(d))},
    "window": {"torch": lambda d: rows_with_torch(*windows(d), 64, 1024)},
    "table": {"torch": lambda d: rows_with_torch(*table(d), 1, 512)},
    "jpeg": {"dali": lambda d: with_dali(d, "jpeg")},
    "audio": {"dali": lambda d: with_dali(d, "audio")},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", choices=PEERS)
    parser.add_argument("peer", nargs="?")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print(json.dumps({name: list(peers) for name, peers in PEERS.items()}))
        return 0
    if not args.folder or args.peer not in PEERS[args.workload]:
        parser.error("a workload, one of its peers and a folder are needed; see --list")
    try:
        epoch = PEERS[args.workload][args.peer](args.folder)
    except ImportError as error:
        print(error.name, file=sys.stderr)
        return 3
    for _ in range(args.epochs):
        samples, began = 0, time.perf_counter()
        for batch in epoch():
            samples += consume(batch)
        seconds = time.perf_counter() - began
    print(json.dumps({"peer": args.peer, "samples_per_s": samples / seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
