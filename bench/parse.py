#!/usr/bin/env python3
"""How fast a CSV becomes typed columns: forebay beside pyarrow and polars, in interleaved rounds.

    bench/parse.py [--rounds 5] [--program build/forebay] [--peers PYTHON] [--json FILE]

All have two CPUs, warm files and the same types: those that forebay found are given to the peers.
forebay also writes what it parsed, with a checksum, to a file (here in an empty cache folder each
time), the others leave it in memory. Bars: as fast as pyarrow, 0.8 of polars.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from run import DATA, HERE, WORKLOADS, make_data, warm

BARS = {"pyarrow": 1.0, "polars": 0.8}
THREADS = 2


def read_pyarrow(paths, types):
    import pyarrow
    import pyarrow.csv
    pyarrow.set_cpu_count(THREADS)
    names = {"f64": pyarrow.float64(), "i64": pyarrow.int64()}
    options = pyarrow.csv.ConvertOptions(column_types={k: names[v] for k, v in types.items()})
    return lambda: [pyarrow.csv.read_csv(path, convert_options=options) for path in paths]


def read_polars(paths, types):
    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    import polars
    names = {"f64": polars.Float64, "i64": polars.Int64}
    schema = {k: names[v] for k, v in types.items()}
    return lambda: [polars.read_csv(path, schema=schema) for path in paths]


READERS = {"pyarrow": read_pyarrow, "polars": read_polars}


def read_here(name, folder, types):
    """In the peers' interpreter: the second of two readings, as the first one warms the library up."""
    try:
        read = READERS[name](sorted(map(str, pathlib.Path(folder).glob("*.csv"))), json.loads(types))
    except ImportError as error:
        print(error.name, file=sys.stderr)
        return 3
    for _ in range(2):
        began, cpu = time.perf_counter(), time.process_time()
        rows = sum(len(table) for table in read())
        took = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "rows": rows}
    print(json.dumps(took))
    return 0


def run(argv):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_forebay(args, folder):
    argv = [str(args.program), "inspect", "--set", "source.kind=table", "--set",
            f"source.path={folder / 'data.csv'}", "--json"]
    with tempfile.TemporaryDirectory() as kept:
        os.environ["XDG_CACHE_HOME"] = kept
        done, cpu = run(argv)
        _, rest = run(argv)  # it is kept now: all that is not parsing
    found = json.loads(done.stdout)
    return {"seconds": float(re.search(r"parsed .* in ([0-9.]+) s", done.stderr)[1]), "cpu": cpu - rest,
            "rows": found["samples"], "types": {f["name"]: f["dtype"] for f in found["fields"]}}


def run_peer(args, name, folder, types):
    done = subprocess.run([args.peers, __file__, "--read", name, folder, json.dumps(types)],
                          capture_output=True, text=True)
    if done.returncode == 3:
        return None
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def measure(args, folder):
    rounds = []
    for number in range(args.rounds):
        warm(folder)
        one = {"forebay": run_forebay(args, folder)}
        for name in READERS:
            one[name] = run_peer(args, name, folder, one["forebay"]["types"])
        rounds.append(one)
        print(f"parse: round {number + 1}/{args.rounds}: " + ", ".join(
            f"{name} {its['seconds']:.2f} s" for name, its in one.items() if its), file=sys.stderr)
    return rounds


def verdict(name, rounds):
    if any(r[name] is None for r in rounds):
        return {"peer": name, "times": None}
    rows = {r[who]["rows"] for r in rounds for who in ("forebay", name)}
    times = sorted(r[name]["seconds"] / r["forebay"]["seconds"] for r in rounds)
    middle, spread = statistics.median(times), (times[-1] - times[0]) / 2
    return {"peer": name, "times": middle, "spread": spread, "bar": BARS[name], "same_rows": len(rows) == 1,
            "seconds": statistics.median(r[name]["seconds"] for r in rounds),
            "cpu": statistics.median(r[name]["cpu"] for r in rounds), "reached": middle + spread >= BARS[name]}


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--read":
        return read_here(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "forebay")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--json", type=pathlib.Path, help="write the lines as JSON too")
    args = parser.parse_args()
    args.program = args.program.resolve()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    folder = make_data(args, "table", WORKLOADS["table"])
    rounds = measure(args, folder)
    size = sum(path.stat().st_size for path in folder.glob("*.csv"))
    seconds = statistics.median(r["forebay"]["seconds"] for r in rounds)
    print(f"parse: {size / 1e6:.0f} MB of CSV, {THREADS} threads, {args.rounds} rounds, medians: "
          f"{seconds:.2f} s, {size / seconds / 1e6:.0f} MB/s, "
          f"{statistics.median(r['forebay']['cpu'] for r in rounds):.2f} s of CPU")
    lines = [verdict(name, rounds) for name in READERS]
    for line in lines:
        print(f"parse: {line['peer']}: " + ("not installed" if line["times"] is None else
              f"{line['seconds']:.2f} s, {line['cpu']:.2f} s of CPU; forebay is {line['times']:.2f} times as fast, spread "
              f"{line['spread']:.2f}, bar {line['bar']} {'ok' if line['reached'] else 'MISS'}"))
    if args.json:
        args.json.write_text(json.dumps(lines, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
