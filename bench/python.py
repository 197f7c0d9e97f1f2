#!/usr/bin/env python3
"""What Python costs: the same settings through forebay.Loader and through `forebay run`, in turns.

    .venv/bin/python bench/python.py [WORKLOAD ...] [--rounds 5]

Prints for each set of bench/run.py the rate of both, the share that Python loses (bar: 5 %, or the spread), and the
microseconds a batch (bar for table, whose batches are small: 10). Both consumers read every 4096th byte.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

import run as bench

HERE = pathlib.Path(__file__).resolve().parent


def touch(batch):
    for array in batch.values():
        flat = array.reshape(-1)
        if flat.nbytes >= 4096:
            np.bitwise_xor.reduce(flat.view("u1")[::4096])  # a sum would cast every byte


def iterate(settings, epochs):
    """In a process of its own: seconds and batches of the epochs after the first."""
    import forebay
    seconds = batches = 0
    with forebay.Loader(settings=settings) as loader:
        for epoch in range(epochs):
            began, count = time.perf_counter(), 0
            for batch in loader:
                touch(batch)
                count += 1
            if epoch:
                seconds += time.perf_counter() - began
                batches += count
    print(json.dumps({"seconds": seconds, "batches": batches}))


def through_python(settings, epochs):
    done = subprocess.run([sys.executable, __file__, "--iterate", json.dumps(settings),
                           "--epochs", str(epochs)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["seconds"] / result["batches"]


def through_run(args, settings, epochs):
    argv = [str(args.program), "run", "--epochs", str(epochs), "--json"]
    for key, value in settings.items():
        argv += ["--set", f"{key}={value}"]
    result, _, _ = bench.call(argv)
    steady = result["epochs"][1:]
    return sum(e["seconds"] for e in steady) / (result["batches"] * len(steady) / epochs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "forebay")
    parser.add_argument("--data", type=pathlib.Path, default=bench.DATA)
    parser.add_argument("--iterate", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.iterate:
        return iterate(args.iterate, args.epochs)
    args.program = args.program.resolve()
    for name in args.workloads or bench.WORKLOADS:
        workload = bench.WORKLOADS[name]
        folder = bench.make_data(args, name, workload)
        settings = {key: bench.fill(value, folder) for key, value in workload["settings"].items()}
        settings["workers"] = bench.WORKERS
        bench.warm(folder)
        pairs = [(through_run(args, settings, workload["epochs"]),
                  through_python(settings, workload["epochs"])) for _ in range(args.rounds)]
        losses = sorted(1 - a / b for a, b in pairs)
        print(f"{name:9} run {statistics.median(a for a, _ in pairs) * 1e6:10.1f} us a batch, "
              f"Python {statistics.median(b for _, b in pairs) * 1e6:10.1f}, difference "
              f"{statistics.median(b - a for a, b in pairs) * 1e6:8.1f} us = "
              f"{100 * statistics.median(losses):5.1f} % (spread {50 * (losses[-1] - losses[0]):.1f})",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
