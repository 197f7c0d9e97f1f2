#!/usr/bin/env python3
"""Where a cache can pay, and what it costs where it cannot yet.

    bench/cache.py [frames|jpeg|tiny|hits|steps ...] [--rounds 3] [--frames 24] [--program build/forebay]

frames  cold: in a memory cgroup of half the set (needs root; without, that is said and it is left out), so that
        neither the page cache nor ours can hold all. Without a cache, with ours, with lru.
jpeg    decoded pictures, no random crop: the cache keeps them decoded. Without a cache, half of them, all.
tiny    20,000 separate files of 1 KiB (--tiny, --tiny-bytes), equal and unequal ones: no cache, half of them, all. What an epoch costs,
        hits, bytes of cache: what is lost beside `forebay pack`, which makes them shards.
hits    everything is in the cache: scans of 1 MB, beside the same bytes copied by memcpy with as many threads.
steps   the cache's own steps (bench/cache_ops.c): a lookup with its pin, a shrink, a hit beside memcpy.

Seconds of an epoch after the first, bytes read from the disk in it, the first epoch beside that without a cache
(bar 1.3), hits beside memcpy (bar 0.9), a lookup (bar 1 us), a shrink (bar 2 GiB/s). Contestants are interleaved.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

from run import HERE, WORKERS, WORKLOADS, build_limit, call, make_data, warm

MIB = 1 << 20
EPOCHS = 3


class Group:
    """A memory cgroup of our own, v1 or v2."""

    def __init__(self, limit):
        v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        parent = pathlib.Path("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory")
        self.path = parent / f"forebay-bench-{os.getpid()}"
        if v2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        self.path.mkdir()
        (self.path / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit))

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.path.rmdir()


def forget(paths):
    """Out of the page cache with them."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def run(args, settings, epochs=EPOCHS, **more):
    """What forebay run says, and what it read from the disk."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    done = subprocess.run(
        [str(args.program), "run", *(part for key, value in settings.items()
                                     for part in ("--set", f"{key}={value}")),
         "--set", f"workers={WORKERS}", "--epochs", str(epochs), "--json"],
        capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    result = json.loads(done.stdout)
    result["disk"] = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512
    return result


def compare(args, what, contestants, once):
    """Rounds of all contestants; a line for each. The first one has no cache."""
    rounds = {name: [] for name in contestants}
    for _ in range(args.rounds):
        for name, settings in contestants.items():
            rounds[name].append(once(settings))
    base, rows = rounds[next(iter(rounds))], []
    for name, results in rounds.items():
        later = [statistics.mean(e["seconds"] for e in r["epochs"][1:]) for r in results]
        first = sorted(a["epochs"][0]["seconds"] / b["epochs"][0]["seconds"]
                       for a, b in zip(results, base))
        use = results[-1]["epochs"][-1]
        row = {"what": what, "cache": name, "epoch_s": statistics.median(later),
               "disk_bytes_per_epoch": statistics.median(
                   max(0, r["disk"] - r["cold"]) / (len(r["epochs"]) - 1) for r in results),
               "hit_rate": use["hits"] / max(1, use["hits"] + use["misses"]),
               "first_x": statistics.median(first), "first_spread": (first[-1] - first[0]) / 2,
               "cache_mib": (results[-1]["cache"]["bytes"] or 0) / MIB,
               "peak_pss_mib": (results[-1]["memory"]["peak_pss_bytes"] or 0) / MIB,
               "same_batches": len({r["checksum"] for r in results + base}) == 1}
        # lru copies every unit in, which nobody is advised to: for comparison only.
        row["reached"] = (name == "lru" or row["first_x"] - row["first_spread"] <= 1.3) and row[
            "same_batches"]
        rows.append(row)
        print(f"{what:12} {name:6} {row['epoch_s']:7.3f} s an epoch, "
              f"{row['disk_bytes_per_epoch'] / 1e6:6.0f} MB from disk, {row['hit_rate']:4.0%} hits of "
              f"{row['cache_mib']:5.0f} MiB; epoch 1 {row['first_x']:.2f} x no cache (spread "
              f"{row['first_spread']:.2f}) {'ok' if row['reached'] else 'MISS'}", flush=True)
    return rows


def frames(args):
    folder = make_data(args, "frames", WORKLOADS["frames"])
    numbers = sorted(path.name[:-len("_voxel.npy")] for path in folder.glob("*_voxel.npy"))
    fields = ("blur", "sharp", "voxel")
    few = args.data / f"frames-{args.frames}"
    few.mkdir(exist_ok=True)
    paths = [few / f"{n}_{field}.npy" for n in numbers[:args.frames] for field in fields]
    for path in paths:
        if not path.exists():
            os.link(folder / path.name, path)
    each = sum(path.stat().st_size for path in paths[:3])
    half = args.frames * each // 2
    base = {"source.kind": "npy", "batch.size": 1, "prefetch": 2, "memory.budget": half - 64 * MIB}
    for field in fields:
        base[f"source.fields.{field}"] = f"{few}/*_{field}.npy"
    try:
        Group(half).remove()
    except OSError as error:
        print(f"frames: left out: memory cgroups are not permitted here: {error}")
        return []

    def once(settings):
        forget(paths)
        group = Group(half)
        try:
            result = run(args, settings, preexec_fn=group.join)
        finally:
            group.remove()
        result["cold"] = args.frames * each  # the first epoch reads all of it
        return result
    return compare(args, "frames", {
        "none": {**base, "memory.cache": "off"}, "auto": {**base, "memory.cache": "auto"},
        "lru": {**base, "memory.cache": "auto", "memory.policy": "lru"}}, once)


def jpeg(args):
    folder = make_data(args, "jpeg", WORKLOADS["jpeg"])
    warm(folder)
    base = {"source.kind": "images", "source.path": f"{folder}/**/*.jpg", "source.size": 224,
            "source.crop": "center", "batch.size": 64, "memory.budget": "1GiB"}

    def once(settings):
        result = run(args, settings)
        result["cold"] = 0
        return result
    return compare(args, "jpeg", {
        "none": {**base, "memory.cache": "off"}, "half": {**base, "memory.cache": "152MB"},
        "all": {**base, "memory.cache": "320MB"}}, once)


def tiny_data(args, name, rows_of):
    """Files of `rows_of(i)` points of 16 bytes each."""
    folder = args.data / f"tiny-{name}-{args.tiny}-{args.tiny_bytes}"
    if not folder.exists():
        making = folder.with_suffix(".making")
        making.mkdir(parents=True, exist_ok=True)
        for i in range(args.tiny):
            (making / f"{i:06d}.bin").write_bytes(
                b"".join((i * 977 + k).to_bytes(4, "little") for k in range(4 * rows_of(i))))
        making.rename(folder)
    return folder


def tiny(args):
    def once(settings):
        result = run(args, settings)
        result["cold"] = 0
        return result
    rows, mean = [], args.tiny_bytes // 16
    for name, rows_of in {"equal": lambda i: mean, "unequal": lambda i: 1 + i * 7919 % (2 * mean - 1)}.items():
        folder = tiny_data(args, name, rows_of)
        warm(folder)
        bytes_all = sum(16 * rows_of(i) for i in range(args.tiny))
        base = {"source.kind": "bin", "source.path": f"{folder}/*.bin", "source.dtype": "i32",
                "batch.size": 256, "batch.collate": "ragged", "memory.budget": "256MiB"}
        rows += compare(args, f"tiny {name}", {
            "none": {**base, "memory.cache": "off"},
            "half": {**base, "memory.cache": bytes_all // 2 + MIB},
            "all": {**base, "memory.cache": 2 * bytes_all + MIB}}, once)
    return rows


def hits(args):
    """The last epochs of a run whose cache holds all, beside memcpy."""
    folder = make_data(args, "lidar", WORKLOADS["lidar"])
    warm(folder)
    settings = {"source.kind": "bin", "source.path": f"{folder}/*.bin", "batch.size": 16,
                "memory.budget": "768MiB", "memory.cache": "300MiB"}
    ratios = []
    for _ in range(args.rounds):
        limit = call([str(build_limit(args, "memcpy")), "memcpy", str(WORKERS)])[0]["bytes_per_s"]
        result = run(args, settings, epochs=40)
        late = result["epochs"][20:]
        rate = result["bytes"] / 40 / statistics.median(e["seconds"] for e in late)
        if any(e["misses"] for e in late):
            sys.exit("hits: not everything was in the cache")
        ratios.append(rate / limit)
    row = {"what": "hits", "ratio": statistics.median(ratios),
           "spread": (max(ratios) - min(ratios)) / 2}
    row["reached"] = row["ratio"] + row["spread"] >= 0.9
    print(f"hits    {rate / 1e9:.1f} GB/s, {row['ratio']:.2f} of memcpy (spread {row['spread']:.2f}) "
          f"{'ok' if row['reached'] else 'MISS'}", flush=True)
    return [row]


def steps(args):
    source, program = HERE / "cache_ops.c", args.program.parent / "bench-cache_ops"
    library = args.program.parent.parent / "libforebay.a"
    if not library.exists():
        library = args.program.parent / "libforebay.a"
    if not program.exists() or program.stat().st_mtime < max(
            source.stat().st_mtime, library.stat().st_mtime):
        subprocess.run([os.environ.get("CC", "cc"), "-std=c17", "-D_GNU_SOURCE", "-O3",
                        f"-I{HERE.parent / 'src'}", f"-I{HERE.parent / 'include'}", str(source),
                        str(library), "-o", str(program), "-lpthread", "-lm"], check=True)
    got = [call([str(program)])[0] for _ in range(args.rounds)]
    row = {"what": "steps", **{key: statistics.median(r[key] for r in got) for key in got[0]}}
    row["hit_ratio"] = statistics.median(r["hit_bytes_per_s"] / r["memcpy_bytes_per_s"] for r in got)
    row["reached"] = (row["find_ns"] <= 1000 and row["shrink_bytes_per_s"] >= 2 * 2**30
                      and row["index_bytes"] <= 48 and row["hit_ratio"] >= 0.9)
    print(f"steps   find + pin + done {row['find_ns']:.0f} ns, hits {row['hit_ratio']:.2f} of memcpy, "
          f"shrink {row['shrink_bytes_per_s'] / 2**30:.1f} GiB/s (the kernel's hole alone "
          f"{row['punch_bytes_per_s'] / 2**30:.1f}), index {row['index_bytes']:.0f} bytes a unit "
          f"{'ok' if row['reached'] else 'MISS'}", flush=True)
    return [row]


PARTS = {"frames": frames, "jpeg": jpeg, "tiny": tiny, "hits": hits, "steps": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=24, help="of 140 MB")
    parser.add_argument("--tiny", type=int, default=20000, help="tiny: how many files")
    parser.add_argument("--tiny-bytes", type=int, default=1024, help="tiny: of each, or the mean")
    parser.add_argument("--program", type=pathlib.Path,
                        default=HERE.parent / "build" / "forebay")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(
        os.environ.get("FOREBAY_BENCH_DATA", pathlib.Path.home() / ".cache" / "forebay-bench")))
    parser.add_argument("--json", type=pathlib.Path, help="write the lines as JSON too")
    args = parser.parse_args()
    args.program = args.program.resolve()
    for name in args.parts:
        if name not in PARTS:
            parser.error(f"no part {name}; there are {', '.join(PARTS)}")
    rows = [row for name in args.parts or PARTS for row in PARTS[name](args)]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
