"""forebay through Python, in the form of the peers' benchmark: a module function for each workload that
takes a dict and returns an object with .epoch() (an iterator of batches), .n (samples an epoch) and
.bytes (an epoch's, as the peers count them).

    PYTHONPATH=bench/beside:bench python BENCH.py --workload lidar15 --loader forebay --config '{"w": 2}'

(bench/beside gives each workload's module the function; or write `from w_forebay import lidar15 as forebay`
there, or --workload forebay --loader lidar15). In the dict: `w` workers, `pf`
batches in flight, `memory`, `as_`, and `settings`, any keys of the configuration.

    python bench/w_forebay.py [WORKLOAD ...]       is each of them for two epochs, by itself

The data is $FOREBAY_BENCH_DATA or ~/.cache/forebay-bench, as bench/run.py or the peers' generator wrote it.
"""
import json
import os
import pathlib
import sys
import time

import forebay

DATA = pathlib.Path(os.environ.get("FOREBAY_BENCH_DATA",
                                   os.path.expanduser("~/.cache/forebay-bench")))


class Entry:
    """What a benchmark asks for."""

    def __init__(self, cfg, epoch_bytes, memory, **settings):
        self._loader = forebay.Loader(
            settings={**settings, **cfg.get("settings", {})}, memory=cfg.get("memory", memory),
            workers=cfg.get("w", 2), prefetch=cfg.get("pf"), as_=cfg.get("as_", "numpy"))
        self.n = self._loader.samples
        self.bytes = epoch_bytes(self.n)

    def epoch(self):
        return iter(self._loader)

    def extra(self):
        return {"memory": self._stats["memory"], "cache": self._stats["cache"]}

    def close(self):
        self._stats = self._loader.stats()
        self._loader.close()


def _size(folder, pattern):
    """Bytes of the first file."""
    return next(iter(sorted((DATA / folder).glob(pattern)))).stat().st_size


def _sequences(folder, cfg):
    scan = _size(folder, "*.bin")
    return Entry(cfg, lambda n: n * 8 * scan, "3GiB", **{
        "source.kind": "bin", "source.path": f"{DATA}/{folder}/*.bin", "source.sequence": 8,
        "batch.size": 4, "order.drop_last": True})


def lidar(cfg):
    """Sequences of 8 scans of 1 MB, 4 in a batch."""
    return _sequences("lidar", {"memory": "512MiB", **cfg})


def lidar15(cfg):
    """The same of 15 MB."""
    return _sequences("lidar15", cfg)


def frames(cfg):
    """blur, sharp and voxel as .npy, 140 MB in all; batches of 1."""
    names = ("blur", "sharp", "voxel")
    each = sum(_size("frames", f"*_{name}.npy") - 128 for name in names)
    return Entry(cfg, lambda n: n * each, "1GiB", **{
        "source.kind": "npy", "batch.size": 1,
        **{f"source.fields.{name}": f"{DATA}/frames/*_{name}.npy" for name in names}})


def window(cfg):
    """Windows of 64 rows of 96 columns, stride 20, 1024 in a batch."""
    return Entry(cfg, lambda n: n * 64 * 96 * 4, "1GiB", **{
        "source.kind": "windows", "source.path": f"{DATA}/window/*.npy", "source.window": 64,
        "source.stride": 20, "batch.size": 1024, "order.drop_last": True,
        "memory.cache": "600MiB"})


def table(cfg):
    """Rows of 24 columns out of eight CSV files, 512 in a batch, one matrix each."""
    return Entry(cfg, lambda n: n * 24 * 4, "1GiB", **{
        "source.kind": "table", "source.path": f"{DATA}/table/data.csv", "source.as": "matrix",
        "batch.size": 512, "order.drop_last": True})


def jpeg(cfg):
    """Decode, random crop to 224, normalised f32 CHW, 64 in a batch."""
    wanted = int(os.environ.get("JPEG_N", 1024))
    flat = (DATA / "jpeg/00000.jpg").exists()
    path = f"{DATA}/jpeg/{{00000..{wanted - 1:05d}}}.jpg" if flat else f"{DATA}/jpeg/**/*.jpg"
    files = [DATA / f"jpeg/{i:05d}.jpg" for i in range(wanted)] if flat else \
        sorted((DATA / "jpeg").glob("**/*.jpg"))
    read = sum(file.stat().st_size for file in files)
    return Entry(cfg, lambda n: read * n // len(files), "1GiB", **{
        "source.kind": "images", "source.path": path, "source.size": 224, "source.crop": "random",
        "source.layout": "chw", "source.mean": [0.485, 0.456, 0.406],
        "source.std": [0.229, 0.224, 0.225], "batch.size": 64, "order.drop_last": True,
        "memory.cache": "off"})


def audio(cfg):
    """Utterances of 2 to 15 s, WAV and FLAC, padded, 16 in a batch."""
    manifest = DATA / "audio_manifest.jsonl"
    if not manifest.exists():
        manifest = DATA / "audio/manifest.jsonl"
    with open(manifest) as lines:
        seconds = [json.loads(line)["duration"] for line in lines if line.strip()]
    decoded = sum(int(each * 16000) * 2 for each in seconds)
    return Entry(cfg, lambda n: decoded * n // len(seconds), "1GiB", **{
        "source.kind": "audio", "source.path": str(manifest), "batch.collate": "pad",
        "batch.size": 16, "order.drop_last": True, "memory.cache": "off"})


WORKLOADS = {function.__name__: function
             for function in (lidar, lidar15, frames, window, table, jpeg, audio)}


def main():
    for name in sys.argv[1:] or WORKLOADS:
        try:
            entry = WORKLOADS[name]({})
        except (StopIteration, FileNotFoundError, forebay.Error) as error:
            print(json.dumps({"workload": name, "error": str(error) or "there is no data"}))
            continue
        for epoch in range(2):
            began, batches = time.perf_counter(), 0
            for _ in entry.epoch():
                batches += 1
            seconds = time.perf_counter() - began
        print(json.dumps({"workload": name, "samples": entry.n, "batches": batches,
                          "samples_per_s": round(entry.n / seconds, 1),
                          "mb_per_s": round(entry.bytes / seconds / 1e6, 1)}))
        entry.close()


if __name__ == "__main__":
    main()
