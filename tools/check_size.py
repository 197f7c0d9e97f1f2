#!/usr/bin/env python3
"""Report how long functions and files are; fail where one is above the limit.

The aim: function median <= 15 lines, 95th percentile <= 55, lines of at most 100 columns. The
limits: no function above 80 lines, no .c file above 600. Lines count from a function's name to its
closing brace. The scanner is small because our style is fixed: a function's brace stands alone in
column 1, and so does the brace that closes it.
"""
import pathlib
import re
import statistics
import sys

FUNCTION_LINES, FILE_LINES, COLUMNS = 80, 600, 100
FOLDERS = ("src", "include", "cli", "python", "tests", "bench", "examples")
NAME = re.compile(r"^[A-Za-z_].*?\b([A-Za-z_]\w*)\s*\(")


def functions(lines):
    """(name, first line number, lines) of each function."""
    head = None  # the last line in column 1 that may be the start of a definition
    opened = None
    for number, line in enumerate(lines, 1):
        if opened is None and line.startswith("{") and head:
            opened = head
        elif opened and line.startswith("}"):
            yield opened[0], opened[1], number - opened[1] + 1
            opened = head = None
        elif opened is None and (line[:1].isalpha() or line[:1] == "_"):
            match = None if line.rstrip().endswith(";") else NAME.match(line)
            head = (match.group(1), number) if match else None
        elif opened is None and line.rstrip().endswith(";"):
            head = None


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def check(root):
    """(what is above a limit, lines that are too wide, lengths of all functions, sorted)"""
    offenders, wide, lengths = [], [], []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]")):
            name = path.relative_to(root)
            lines = path.read_text(errors="replace").splitlines()
            if path.suffix == ".c" and len(lines) > FILE_LINES:
                offenders.append(f"{name}: {len(lines)} lines, more than {FILE_LINES}")
            for number, line in enumerate(lines, 1):
                if len(line) > COLUMNS:
                    wide.append(f"{name}:{number}: {len(line)} columns, more than {COLUMNS}")
            for function, number, count in functions(lines):
                lengths.append(count)
                if count > FUNCTION_LINES:
                    offenders.append(f"{name}:{number}: {function} has {count} lines, "
                                     f"more than {FUNCTION_LINES}")
    return offenders, wide, sorted(lengths)


if __name__ == "__main__":
    found, too_wide, all_lengths = check(pathlib.Path(
        sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve())
    for line in found + too_wide:
        print(line)
    if all_lengths:
        print(f"size: {len(all_lengths)} functions, median {statistics.median(all_lengths):g} "
              f"lines (aim 15), p95 {percentile(all_lengths, 0.95)} (aim 55), "
              f"longest {all_lengths[-1]} (limit {FUNCTION_LINES}); {len(found)} offenders, "
              f"{len(too_wide)} wide lines")
    sys.exit(1 if found else 0)
