#!/usr/bin/env python3
"""What Python costs: the same settings through forebay.Loader and through `forebay run`, in turns.

    .venv/bin/python bench/python.py [WORKLOAD ...] [--rounds 5] [--seconds 2]

For each set of bench/run.py: microseconds a batch of both, the share of the speed that Python loses
(bar: 5 %, or the spread), and the difference (bar for table, whose batches are small: 10), by the
clock (all epochs, and the quiet ones alone) and in time on processors. The consumer is the same on both sides, bench/touch.c, and the sums
of what was read are compared. A turn is about --seconds long on each side; who goes first changes.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import sysconfig
import time

import run as bench

HERE = pathlib.Path(__file__).resolve().parent


def build_touch(args):
    """The consumer, as a module; its folder."""
    folder = args.program.parent / "bench-touch"
    made, source = folder / "touch.abi3.so", HERE / "touch.c"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        folder.mkdir(exist_ok=True)
        subprocess.run(["cc", "-std=c17", "-O3", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030b0000",
                        "-I" + sysconfig.get_paths()["include"], "-I" + str(HERE.parent / "src"),
                        str(source), "-o", str(made)], check=True)
    return folder


def spent():
    """Seconds on processors, of all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def by_the_clock(seconds, batches):
    """Of epochs of so many batches: all of them, and what three quarters of them did not reach, which
    is what other work on the machine disturbs least."""
    return {"wall": sum(seconds) / len(seconds) / batches,
            "quiet": sorted(seconds)[(len(seconds) - 1) // 4] / batches}


def iterate(settings, epochs, folder):
    """In a process of its own: the epochs after the first."""
    sys.path.insert(0, folder)
    import forebay
    import touch
    total = 0
    with forebay.Loader(settings=settings) as loader:
        total = sum(touch.batch(batch) for batch in loader)
        cpu, each, batches = spent(), [], 0
        for _ in range(epochs - 1):
            began = time.perf_counter()
            for batch in loader:
                total += touch.batch(batch)
                batches += 1
            each.append(time.perf_counter() - began)
        cpu = spent() - cpu
    print(json.dumps({"cpu": cpu / batches, "checksum": f"{total % 2**64:016x}",
                      **by_the_clock(each, batches // len(each))}))


def through_python(args, settings, epochs):
    done = subprocess.run([sys.executable, __file__, "--iterate", json.dumps(settings), "--epochs",
                           str(epochs), "--touch", str(build_touch(args))],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def through_run(args, settings, epochs):
    argv = [str(args.program), "run", "--epochs", str(epochs), "--json", "--set", "monitor.every=0"]
    for key, value in settings.items():
        argv += ["--set", f"{key}={value}"]
    result, cpu, _ = bench.call(argv)
    seconds = [epoch["seconds"] for epoch in result["epochs"][1:]]
    return {"cpu": cpu / result["batches"], "checksum": result["checksum"],
            **by_the_clock(seconds, result["batches"] / epochs)}


def pair(args, settings, epochs, number):
    """One turn: (through run, through Python)."""
    contestants = [through_run, through_python]
    order = contestants if number % 2 == 0 else contestants[::-1]
    results = {which: which(args, settings, epochs) for which in order}
    if len({result["checksum"] for result in results.values()}) != 1:
        sys.exit(f"the sums differ: {results}")
    return results[through_run], results[through_python]


def compare(args, name):
    workload = bench.WORKLOADS[name]
    folder = bench.make_data(args, name, workload)
    settings = {key: bench.fill(value, folder) for key, value in workload["settings"].items()}
    settings["workers"] = bench.WORKERS
    bench.warm(folder)
    began = time.perf_counter()
    through_run(args, settings, 3)
    epochs = max(3, min(200, int(3 * args.seconds / (time.perf_counter() - began))))
    pairs = [pair(args, settings, epochs, number) for number in range(args.rounds)]
    losses = sorted(1 - run["wall"] / python["wall"] for run, python in pairs)

    def middle(of):
        return statistics.median(of(*each) for each in pairs) * 1e6

    print(f"{name:13} run {middle(lambda r, p: r['wall']):9.1f} us a batch, Python "
          f"{middle(lambda r, p: p['wall']):9.1f}: {middle(lambda r, p: p['wall'] - r['wall']):+7.1f} us "
          f"= {100 * statistics.median(losses):+5.1f} % (spread {50 * (losses[-1] - losses[0]):.1f}); "
          f"quiet epochs {middle(lambda r, p: r['quiet']):9.1f} and {middle(lambda r, p: p['quiet']):9.1f}: "
          f"{middle(lambda r, p: p['quiet'] - r['quiet']):+7.1f} us; "
          f"processors {middle(lambda r, p: r['cpu']):9.1f} and {middle(lambda r, p: p['cpu']):9.1f}: "
          f"{middle(lambda r, p: p['cpu'] - r['cpu']):+7.1f} us", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "forebay")
    parser.add_argument("--data", type=pathlib.Path, default=bench.DATA)
    parser.add_argument("--iterate", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--touch", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.iterate:
        return iterate(args.iterate, args.epochs, args.touch)
    args.program = args.program.resolve()
    for name in args.workloads or bench.WORKLOADS:
        compare(args, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
