#!/usr/bin/env python3
"""check_exports.py LIBRARY -- the shared library may export forebay_* only, and must export all of
what forebay.h declares."""
import pathlib
import re
import subprocess
import sys


def exported(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True,
                             capture_output=True, text=True).stdout
    return {line.split()[0].split("@")[0] for line in listing.splitlines() if line.strip()}


def declared(header):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    return set(re.findall(r"FOREBAY_API[^;]*?\b(forebay_\w+)\s*\(", text))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check_exports.py libforebay.so")
    names = exported(sys.argv[1])
    promised = declared(pathlib.Path(__file__).parent.parent / "include" / "forebay.h")
    strangers = sorted(n for n in names if not n.startswith("forebay_"))
    missing = sorted(promised - names)
    for name in strangers:
        print(f"{name}: exported, but not forebay_*")
    for name in missing:
        print(f"{name}: in forebay.h, but not exported")
    print(f"exports: {len(names)} symbols, {len(strangers)} strangers, {len(missing)} missing")
    sys.exit(1 if strangers or missing else 0)
