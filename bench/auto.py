#!/usr/bin/env python3
"""`workers: auto` beside each fixed number of workers, on the sets of bench/run.py.

    bench/auto.py [WORKLOAD ...] [--rounds 7] [--seconds 10] [--program build/forebay]

Auto runs alone for --seconds to find its place; then what it found is fixed with `forebay set`. After that all
contestants take turns of --slice seconds, the others stopped (SIGSTOP), so that a machine with moods has the
same ones for all. The bar is 0.9 of the best fixed number. Beside it: the governor's own share of a core while auto
ran alone (bar 1 %).
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from run import HERE, WORKLOADS, fill, make_data, warm

FIXED = (1, 2, 3, 4)
BATCHES = 8  # of a turn, at least: fewer say little about a rate


class Contestant:
    """A run in the background that only works while it has its turn."""

    def __init__(self, args, workload, folder, workers, alone):
        settings = [part for key, value in workload["settings"].items()
                    for part in ("--set", f"{key}={fill(value, folder)}")]
        self.program = str(args.program)
        self.env = {**os.environ, "FOREBAY_RUN_DIR": str(args.data / "auto-run")}
        self.process = subprocess.Popen(
            [self.program, "run", *settings, "--set", f"workers={workers}", "--epochs", "1000000",
             "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.env)
        while not (self.look() or {}).get("batches"):
            if self.process.poll() is not None:
                sys.exit(f"a run with {workers} workers ended by itself")
            time.sleep(0.02)
        before, began = self.governed(), time.monotonic()
        time.sleep(alone)
        self.governor = (self.governed() - before) / (time.monotonic() - began)
        found = self.look()
        self.workers, self.prefetch = found["workers"], found["prefetch"]
        # A trial that is under way shows nothing yet: what was there before it counts.
        tried = re.match(r"(workers|prefetch) (\d+) -> .*: trying ",
                         found["decisions"][-1]["text"] if found["decisions"] else "")
        if tried:
            setattr(self, tried[1], int(tried[2]))
        # From here on nothing is tried any more: what is measured while others run is no guide.
        subprocess.run([self.program, "set", str(self.process.pid), f"workers={self.workers}",
                        f"prefetch={self.prefetch}"], env=self.env, check=True,
                       capture_output=True)
        self.process.send_signal(signal.SIGSTOP)

    def governed(self):
        """CPU seconds of the governor's thread so far."""
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "forebay-gov":
                return int((task / "schedstat").read_text().split()[0]) / 1e9
        sys.exit("there is no governor")

    def look(self):
        done = subprocess.run([self.program, "top", "--json"], capture_output=True, text=True,
                              env=self.env, check=True)
        return next((one for one in json.loads(done.stdout)["loaders"]
                     if one["pid"] == self.process.pid), None)

    def turn(self, seconds):
        """Bytes a second, by its own clock and count."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        first = last = self.look()
        end = time.monotonic() + seconds
        while last["batches"] < first["batches"] + BATCHES or time.monotonic() < end:
            time.sleep(max(0.05, end - time.monotonic()))
            last = self.look()
        self.process.send_signal(signal.SIGSTOP)
        return (last["bytes"] - first["bytes"]) / (last["time"] - first["time"])

    def end(self):
        self.process.kill()
        self.process.wait()


def measure(args, name, workload):
    folder = make_data(args, name, workload)
    warm(folder)
    runs = {}
    try:
        for number in ("auto", *FIXED):
            alone = args.seconds if number == "auto" else 1
            runs[number] = Contestant(args, workload, folder, number, alone)
        rates = {number: [] for number in runs}
        for _ in range(args.rounds):
            for number, run in runs.items():
                rates[number].append(run.turn(args.slice))
    finally:
        for run in runs.values():
            run.end()
    best = max(FIXED, key=lambda number: statistics.median(rates[number]))
    ratios = sorted(a / b for a, b in zip(rates["auto"], rates[best]))
    quarter = len(ratios) // 4
    row = {"workload": name, "best": best, "auto_workers": runs["auto"].workers,
           "auto_prefetch": runs["auto"].prefetch, "governor": runs["auto"].governor,
           "rates": {str(n): statistics.median(values) for n, values in rates.items()},
           "ratio": statistics.median(ratios),
           "spread": (ratios[-1 - quarter] - ratios[quarter]) / 2}
    row["reached"] = row["ratio"] + row["spread"] >= 0.9 and row["governor"] < 0.01
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD",
                        help=f"{', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10, help="that auto has to find its place")
    parser.add_argument("--slice", type=float, default=0.7, help="seconds of a turn")
    parser.add_argument("--program", type=pathlib.Path,
                        default=HERE.parent / "build" / "forebay")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(
        os.environ.get("FOREBAY_BENCH_DATA", pathlib.Path.home() / ".cache" / "forebay-bench")))
    parser.add_argument("--json", type=pathlib.Path, help="write the table as JSON too")
    args = parser.parse_args()
    args.program = args.program.resolve()
    rows = []
    for name in args.workloads or WORKLOADS:
        row = measure(args, name, WORKLOADS[name])
        rows.append(row)
        print(f"{name:8} auto {row['rates']['auto'] / 1e6:6.0f} MB/s ({row['auto_workers']} workers, "
              f"{row['auto_prefetch']} batches); fixed "
              + ", ".join(f"{n}: {row['rates'][str(n)] / 1e6:.0f}" for n in FIXED)
              + f"; {row['ratio']:.2f} of the best, spread {row['spread']:.2f}; governor "
              f"{row['governor']:.2%} of a core: "
              + ("ok" if row["reached"] else "MISS"), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    sys.exit(not all(row["reached"] for row in rows))


if __name__ == "__main__":
    main()
