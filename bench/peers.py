#!/usr/bin/env python3
"""The peers of bench/run.py: each reads a set of ours in the best way that is known for it.

    bench/peers.py WORKLOAD PEER DIR [--epochs N]       one JSON object: samples_per_s, cpu_per_sample
    bench/peers.py --list                               which peers there are for which set

A peer that is not installed is an exit with status 3 and its name. As with forebay and the limits, the consumer
reads the first, the last and every 4096th byte of each batch, and the last epoch is what counts. Which way is
the best for each was measured once: threads that read straight into the batch for large samples, a vectorised
gather without workers for rows, DALI and SPDL with libjpeg-turbo (simplejpeg) for decoding.
"""
import argparse
import json
import math
import pathlib
import random
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


MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def random_crop(width, height):
    """torchvision's RandomResizedCrop: 8 % to all of the area, sides 3/4 to 4/3."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        sides = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * sides)), round(math.sqrt(area / sides))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, width - wide), random.randint(0, height - high), wide, high
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


class Pictures:
    """A task is a whole batch: what is called for a picture gives the interpreter's lock away, and
    the rest is too little to be worth handing it over. A plane at a time is normalised in 0.08 ms,
    where transpose and astype take as long as the decoding."""

    def __init__(self, folder):
        import cv2
        import simplejpeg
        cv2.setNumThreads(0)
        self.cv2, self.jpeg = cv2, simplejpeg
        self.paths = sorted(pathlib.Path(folder).rglob("*.jpg"))

    def batches(self):
        order = shuffled(len(self.paths))
        return [order[at:at + 64] for at in range(0, len(order) - len(order) % 64, 64)]

    def picture(self, path, to):
        image = self.jpeg.decode_jpeg(path.read_bytes(), "RGB", fastdct=True, fastupsample=True)
        x, y, width, height = random_crop(image.shape[1], image.shape[0])
        image = self.cv2.resize(image[y:y + height, x:x + width], (224, 224),
                                interpolation=self.cv2.INTER_LINEAR)
        for plane, mean, std, out in zip(self.cv2.split(image), MEAN, STD, to):
            np.multiply(plane, np.float32(1 / std), out=out)
            out -= np.float32(mean / std)

    def load(self, indices):
        out = np.empty((len(indices), 3, 224, 224), np.float32)
        for row, index in enumerate(indices):
            self.picture(self.paths[index], out[row])
        return out


def sound_files(folder):
    return sorted(p for p in pathlib.Path(folder).iterdir() if p.suffix in (".wav", ".flac"))


class Sounds:
    """libsndfile into one padded array for each batch."""

    def __init__(self, folder):
        import soundfile
        self.read = soundfile.read
        self.paths = sound_files(folder)

    def batches(self):
        order = shuffled(len(self.paths))
        return [order[at:at + 16] for at in range(0, len(order) - len(order) % 16, 16)]

    def load(self, indices):
        sounds = [self.read(self.paths[index], dtype="float32")[0] for index in indices]
        out = np.zeros((len(sounds), max(map(len, sounds))), np.float32)
        for row, sound in zip(out, sounds):
            row[:len(sound)] = sound
        return out


def dali_epochs(build, samples, batch):
    pipeline = build(batch_size=batch, num_threads=THREADS, device_id=None, prefetch_queue_depth=2,
                     exec_dynamic=True)
    pipeline.build()

    def epoch():
        for _ in range(samples // batch):
            yield np.asarray(pipeline.run()[0].as_tensor())
    return epoch


def pictures_with_dali(folder, in_shards):
    """Only the crop is decoded; resized without antialiasing, which is what is quickest."""
    from nvidia.dali import fn, pipeline_def, types

    files = sorted(map(str, pathlib.Path(folder).rglob("*.tar" if in_shards else "*.jpg")))
    samples = len(list(pathlib.Path(folder).rglob("*.jpg")))

    @pipeline_def
    def build():
        if in_shards:
            data = fn.readers.webdataset(paths=files, ext=["jpg"], random_shuffle=True,
                                         missing_component_behavior="error")
        else:
            data, _ = fn.readers.file(files=files, random_shuffle=True)
        image = fn.decoders.image_random_crop(data, output_type=types.RGB, random_area=[0.08, 1.0],
                                              random_aspect_ratio=[0.75, 4 / 3])
        image = fn.resize(image, size=(224, 224), antialias=False)
        return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mean=MEAN,
                                        std=STD, mirror=fn.random.coin_flip())
    return dali_epochs(build, samples, 64)


def sounds_with_dali(folder):
    from nvidia.dali import fn, pipeline_def, types

    files = list(map(str, sound_files(folder)))

    @pipeline_def
    def build():
        data, _ = fn.readers.file(files=files, random_shuffle=True)
        audio, _ = fn.decoders.audio(data, downmix=True, dtype=types.FLOAT)
        return fn.pad(audio)
    return dali_epochs(build, len(files), 16)


PEERS = {
    "lidar": {"spdl": lambda d: with_spdl(Scans(d, 1, 16)), "torch": lambda d: with_torch(Scans(d, 1, 16))},
    "lidar15": {"spdl": lambda d: with_spdl(Scans(d, 8, 4)), "torch": lambda d: with_torch(Scans(d, 8, 4))},
    "frames": {"spdl": lambda d: with_spdl(Frames(d)), "torch": lambda d: with_torch(Frames(d))},
    "window": {"torch": lambda d: rows_with_torch(*windows(d), 64, 1024)},
    "table": {"torch": lambda d: rows_with_torch(*table(d), 1, 512)},
    "jpeg": {"spdl": lambda d: with_spdl(Pictures(d)), "dali": lambda d: pictures_with_dali(d, False)},
    "tar": {"dali": lambda d: pictures_with_dali(d, True)},
    "audio": {"spdl": lambda d: with_spdl(Sounds(d)), "dali": sounds_with_dali},
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
        samples, began, cpu = 0, time.perf_counter(), time.process_time()
        for batch in epoch():
            samples += consume(batch)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"peer": args.peer, "samples_per_s": samples / seconds,
                      "cpu_per_sample": cpu / samples}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
