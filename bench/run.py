#!/usr/bin/env python3
"""make bench: forebay beside the physical limit (and peers, where installed), in one run.

    bench/run.py [WORKLOAD ...] [--rounds 5] [--program build/forebay] [--peers PYTHON] [--json FILE]

By the rules of docs/benchmarks.md: contestants are interleaved, the consumer reads every batch, the
median of the ratios and their spread are printed, and a bar is missed when the median misses it by
more than the spread. Data sets are generated once (--data, $FOREBAY_BENCH_DATA or
~/.cache/forebay-bench; about 12 GB for all).
"""
import argparse
import io
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = 2
DATA = pathlib.Path(os.environ.get("FOREBAY_BENCH_DATA",
                                   pathlib.Path.home() / ".cache" / "forebay-bench"))

# name -> what to generate, the limit that stands for 1.0, the settings, the bars of the issue.
WORKLOADS = {
    "lidar": {
        "generate": ["lidar", "--files", "256", "--bytes", "1MB"],
        "limit": ["read", "{dir}", ".bin"],
        "settings": {"source.kind": "bin", "source.path": "{dir}/*.bin", "batch.size": 16,
                     "memory.budget": "512MiB"},
        "epochs": 40, "bar": 0.85, "first": 1.5, "batch": 16000000,
    },
    "lidar15": {
        "generate": ["lidar", "--files", "64", "--bytes", "15MB"],
        "limit": ["read", "{dir}", ".bin"],
        "settings": {"source.kind": "bin", "source.path": "{dir}/*.bin", "source.sequence": 8,
                     "batch.size": 4, "order.drop_last": "true", "memory.budget": "3GiB"},
        "epochs": 4, "bar": 0.85, "first": 3, "batch": 480000000,
    },
    "frames": {
        "generate": ["frames", "--files", "60"],
        "limit": ["read", "{dir}", "_voxel.npy"],
        "settings": {"source.kind": "npy", "source.fields.blur": "{dir}/*_blur.npy",
                     "source.fields.sharp": "{dir}/*_sharp.npy",
                     "source.fields.voxel": "{dir}/*_voxel.npy", "batch.size": 1,
                     "memory.budget": "1GiB"},
        "epochs": 4, "bar": 0.85, "first": 3, "batch": 140083200,
    },
    "window": {
        "generate": ["windows", "--files", "200"],
        "limit": ["gather", "50000", "24576"], "unit": "items",
        "settings": {"source.kind": "windows", "source.path": "{dir}/*.npy", "source.window": 64,
                     "source.stride": 20, "batch.size": 1024, "memory.budget": "1GiB",
                     "memory.cache": "600MiB"},
        "epochs": 8, "bar": 0.7, "first": None, "peer_bar": 1.4,
    },
    "table": {
        "generate": ["table", "--files", "8", "--bytes", "47MB"],
        "limit": ["gather", "2000000", "96"], "unit": "items",
        "settings": {"source.kind": "table", "source.path": "{dir}/data.csv", "source.as": "matrix",
                     "batch.size": 512, "memory.budget": "1GiB"},
        "epochs": 12, "bar": 0.3, "first": None, "peer_bar": 5,
    },
    "packed-lidar": {  # forebay pack of the same scans, beside the same limit over loose files
        "generate": ["lidar", "--files", "256", "--bytes", "1MB"],
        "pack": "source: {kind: bin, path: '*.bin'}",
        "limit": ["read", "{dir}", ".bin"],
        "settings": {"source.kind": "tar", "source.path": "{dir}/packed-*.tar", "batch.size": 16,
                     "memory.budget": "512MiB"},
        "epochs": 6, "bar": 0.85, "first": None,
    },
    "packed-frames": {
        "generate": ["frames", "--files", "12"],
        "pack": "source: {kind: npy, fields: {blur: '*_blur.npy', sharp: '*_sharp.npy', "
                "voxel: '*_voxel.npy'}}",
        "limit": ["read", "{dir}", "_voxel.npy"],
        "settings": {"source.kind": "tar", "source.path": "{dir}/packed-*.tar", "batch.size": 1,
                     "memory.budget": "1GiB"},
        "epochs": 6, "bar": 0.85, "first": None,
    },
    "jpeg": {
        "generate": ["images", "--files", "2000"],
        "limit": ["jpeg", "{dir}"], "unit": "items",
        "settings": {"source.kind": "images", "source.path": "{dir}/**/*.jpg", "source.size": 224,
                     "source.crop": "random", "source.flip": "true", "source.layout": "chw",
                     "source.mean": "[0.485, 0.456, 0.406]", "source.std": "[0.229, 0.224, 0.225]",
                     "batch.size": 64, "memory.budget": "1GiB", "memory.cache": "off"},
        "epochs": 2, "bar": 0.9, "first": None, "peer_bar": 1.5,
    },
    "tar": {  # the same pictures in shards, beside the same limit over loose files
        "generate": ["images", "--files", "2000"], "shards": 500,
        "limit": ["jpeg", "{dir}"], "unit": "items",
        "settings": {"source.kind": "tar", "source.path": "{dir}/shards/*.tar", "source.size": 224,
                     "source.crop": "random", "source.flip": "true", "source.layout": "chw",
                     "source.mean": "[0.485, 0.456, 0.406]", "source.std": "[0.229, 0.224, 0.225]",
                     "batch.size": 64, "memory.budget": "1GiB", "memory.cache": "off"},
        "epochs": 2, "bar": 0.9, "first": None,
    },
    "audio": {
        "generate": ["audio", "--files", "2000"],
        "limit": ["audio", "{dir}"], "unit": "items",
        "settings": {"source.kind": "audio", "source.path": "{dir}/manifest.jsonl",
                     "batch.collate": "pad", "batch.size": 16, "memory.budget": "1GiB",
                     "memory.cache": "off"},
        "epochs": 3, "bar": 0.8, "first": None, "peer_bar": 1.3,
    },
}


def call(argv):
    """Run a contestant: its JSON, its CPU seconds, what it read from disk."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
    return (json.loads(done.stdout),
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            (after.ru_inblock - before.ru_inblock) * 512)


def fill(value, folder):
    return value.replace("{dir}", str(folder)) if isinstance(value, str) else value


def make_shards(folder, each):
    """The pictures of a folder, and their classes, as tar shards."""
    pictures = sorted(folder.rglob("*.jpg"))
    classes = sorted({p.parent.name for p in pictures})
    (folder / "shards").mkdir()
    for first in range(0, len(pictures), each):
        with tarfile.open(folder / "shards" / f"{first // each:06d}.tar", "w") as archive:
            for number, path in enumerate(pictures[first:first + each], first):
                archive.add(path, f"{number:06d}.jpg")
                label = str(classes.index(path.parent.name)).encode()
                member = tarfile.TarInfo(f"{number:06d}.cls")
                member.size = len(label)
                archive.addfile(member, io.BytesIO(label))


def make_data(args, name, workload):
    folder = args.data / name
    if not (folder / ".complete").exists():
        print(f"{name}: generating {folder}", file=sys.stderr)
        subprocess.run([args.program, "generate", workload["generate"][0], folder,
                        *workload["generate"][1:], "--force"], check=True)
        if "shards" in workload:
            make_shards(folder, workload["shards"])
        if "pack" in workload:
            (folder / "pack.yaml").write_text(workload["pack"])
            subprocess.run([args.program, "pack", folder / "pack.yaml", folder / "packed", "--force"],
                           check=True)
        (folder / ".complete").touch()
    return folder


def warm(folder):
    """The page cache may have lost some of it: read everything once."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def build_limit(args, kind):
    """The limit program that has the test `kind`."""
    decodes = kind in ("jpeg", "audio")
    source = HERE / ("limit_decode.c" if decodes else "limits.c")
    program = args.program.parent / f"bench-{source.stem}"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([os.environ.get("CC", "cc"), "-std=c17", "-D_GNU_SOURCE", "-O3",
                        "-march=native", str(source), "-o", str(program), "-lpthread", "-lm",
                        *(("-ljpeg", "-lFLAC") if decodes else ())], check=True)
    return program


def run_forebay(args, workload, folder):
    settings = [part for key, value in workload["settings"].items()
                for part in ("--set", f"{key}={fill(value, folder)}")]
    result, cpu, disk = call([str(args.program), "run", *settings, "--set", f"workers={WORKERS}",
                              "--epochs", str(workload["epochs"]), "--json"])
    steady = result["epochs"][1:]  # the first one faults the slots in and fills the cache
    seconds = sum(epoch["seconds"] for epoch in steady)
    share = len(steady) / workload["epochs"]
    return {
        "rate": result["bytes"] * share / seconds,
        "samples_per_s": sum(epoch["samples"] for epoch in steady) / seconds,
        "first": result["first_batch_s"] / (seconds / (result["batches"] * share)),
        "cpu_per_sample": cpu / result["samples"],
        "disk": disk,
        "peak_pss": result["memory"]["peak_pss_bytes"],
        "peak": result["memory"]["peak_bytes"],
        "budget": result["memory"]["budget_bytes"],
        "checksum": result["checksum"],
    }


def run_peers(args, name, folder):
    """What each peer says of itself; None where it is not installed."""
    listed = json.loads(subprocess.run([args.peers, HERE / "peers.py", "--list"], check=True,
                                       capture_output=True, text=True).stdout)
    rates = {}
    for peer in listed.get(name, ()):
        done = subprocess.run([args.peers, HERE / "peers.py", name, peer, folder],
                              capture_output=True, text=True)
        rates[peer] = json.loads(done.stdout) if done.returncode == 0 else None
        if done.returncode not in (0, 3):
            print(f"{name}: {peer} failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return rates


def measure(args, name, workload):
    folder = make_data(args, name, workload)
    kind, *rest = workload["limit"]
    limits = build_limit(args, kind)
    in_items = workload.get("unit") == "items"
    rounds = []
    for number in range(args.rounds):
        warm(folder)
        limit, _, _ = call([str(limits), kind, str(WORKERS), *(fill(r, folder) for r in rest)])
        ours = run_forebay(args, workload, folder)
        ours["limit"] = limit["items_per_s" if in_items else "bytes_per_s"]
        ours["of_batch"] = None
        if "batch" in workload:
            whole, _, _ = call([str(limits), kind, str(WORKERS), *(fill(r, folder) for r in rest),
                                str(workload["batch"])])
            ours["of_batch"] = ours["rate"] / whole["bytes_per_s"]
        if in_items:
            ours["rate"] = ours["samples_per_s"]
        ours["ratio"] = ours["rate"] / ours["limit"]
        ours["peers"] = run_peers(args, name, folder) if args.peers else {}
        rounds.append(ours)
        print(f"{name}: round {number + 1}/{args.rounds}: {ours['rate']:.4g} of "
              f"{ours['limit']:.4g} {'samples' if in_items else 'bytes'}/s", file=sys.stderr)
    return rounds


def beside(rounds, peer, bar):
    """How many times as fast as the peer: the rounds' ratios, their median and spread."""
    times = sorted(r["samples_per_s"] / r["peers"][peer]["samples_per_s"] for r in rounds)
    middle, spread = statistics.median(times), (times[-1] - times[0]) / 2
    return {"samples_per_s": statistics.median(r["peers"][peer]["samples_per_s"] for r in rounds),
            "cpu_ms_per_sample": statistics.median(r["peers"][peer]["cpu_per_sample"] for r in rounds) * 1e3,
            "times": middle, "spread": spread, "bar": bar,
            "reached": bar is None or middle + spread >= bar}


def verdict(name, workload, rounds):
    def median(key):
        return statistics.median(r[key] for r in rounds)
    ratios = sorted(r["ratio"] for r in rounds)
    spread = (ratios[-1] - ratios[0]) / 2
    first = median("first")
    row = {
        "workload": name, "rate": median("rate"), "limit": median("limit"),
        "unit": "samples/s" if workload.get("unit") == "items" else "bytes/s",
        "ratio": median("ratio"), "spread": spread, "bar": workload["bar"],
        "reached": median("ratio") + spread >= workload["bar"],
        "samples_per_s": median("samples_per_s"), "first_batch_x": first,
        "first_reached": workload["first"] is None or first <= workload["first"],
        "cpu_ms_per_sample": median("cpu_per_sample") * 1e3, "disk_mb": median("disk") / 1e6,
        "peak_pss_mib": max(r["peak_pss"] for r in rounds) / 2**20,
        "budget_mib": rounds[0]["budget"] / 2**20,
        "ratio_of_batch": median("of_batch") if rounds[0]["of_batch"] else None,
        "same_checksum": len({r["checksum"] for r in rounds}) == 1,
    }
    row["peers"] = {peer: beside(rounds, peer, workload.get("peer_bar"))
                    if all(r["peers"][peer] for r in rounds) else None for peer in rounds[0]["peers"]}
    row["memory_reached"] = row["peak_pss_mib"] <= row["budget_mib"] + 16
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD",
                        help=f"{', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=pathlib.Path,
                        default=HERE.parent / "build" / "forebay")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--json", type=pathlib.Path, help="write the table as JSON too")
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable,
                        help="the interpreter that has the peers (bench/peers.py); '' leaves them out")
    args = parser.parse_args()
    for name in args.workloads:
        if name not in WORKLOADS:
            parser.error(f"no workload {name}; there are {', '.join(WORKLOADS)}")
    if args.peers and not shutil.which(args.peers):
        parser.error(f"--peers: no interpreter {args.peers}; '' leaves the peers out")
    args.program = args.program.resolve()
    rows = []
    for name in args.workloads or WORKLOADS:
        rows.append(verdict(name, WORKLOADS[name],
                            measure(args, name, WORKLOADS[name])))
    print(f"{time.strftime('%Y-%m-%d')}, {WORKERS} workers, {args.rounds} rounds, medians")
    print("workload       rate      limit  unit       ratio  spread  bar        first x  "
          "CPU ms  disk MB  PSS MiB / budget")
    for r in rows:
        print(f"{r['workload']:9} {r['rate']:10.4g} {r['limit']:10.4g}  {r['unit']:9}  {r['ratio']:5.2f}  "
              f"{r['spread']:6.2f}  {r['bar']:.2f} {'ok  ' if r['reached'] else 'MISS'}  "
              f"{r['first_batch_x']:7.2f}{' ' if r['first_reached'] else '!'} "
              f"{r['cpu_ms_per_sample']:6.3f}  {r['disk_mb']:7.0f}  "
              f"{r['peak_pss_mib']:7.0f} / {r['budget_mib']:.0f}"
              f"{'' if r['memory_reached'] else '  OVER'}")
    for r in rows:
        if r["ratio_of_batch"]:
            print(f"{r['workload']:9} {r['ratio_of_batch']:.2f} of the limit into memory as large as a batch")
    for r in rows:
        for peer, its in r["peers"].items():
            print(f"{r['workload']:9} {peer}: " + ("not installed" if its is None else
                  f"{its['samples_per_s']:.4g} samples/s, {its['cpu_ms_per_sample']:.3f} CPU ms; forebay is "
                  f"{its['times']:.2f} times as fast, spread {its['spread']:.2f}" +
                  (f", bar {its['bar']} {'ok' if its['reached'] else 'MISS'}" if its["bar"] else "")))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
