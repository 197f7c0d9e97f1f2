#!/usr/bin/env python3
"""Check every #include of our own against src/LAYERS. Exit 0, or 1 with the offenders named.

A file in src/ may include its own folder and folders on lines above its own; folders on one line
are strangers. cli/ and python/ are clients. Tests and fuzzers (test_*, fuzz_*) may include anything.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
PUBLIC = "forebay.h"
# What the clients may see beside the public header: folders of src/.
CLIENTS = {
    "cli": {"base", "decode", "memory", "config", "source", "cache", "device", "monitor", "plan",
            "pack", "generate"},
    "python": set(),
    "examples": set(),
}


def read_layers(path):
    """folder -> the folders it may include."""
    allowed, above = {}, set()
    for line in path.read_text().splitlines():
        folders = line.split("#")[0].split()
        for folder in folders:
            allowed[folder] = above | {folder}
        above |= set(folders)
    return allowed


def is_exempt(path):
    return path.name.startswith(("test_", "fuzz_"))


def includes(path):
    text = path.read_text(errors="replace")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1)


def why_not(root, path, included, allowed, own_folder):
    """None if `path` may include `included`, else the reason."""
    if included == PUBLIC:
        return None
    if ".." in pathlib.PurePath(included).parts:
        return "a path with '..' hides which folder it goes to"
    folder, slash, _ = included.partition("/")
    if not slash or folder == own_folder:
        there = not slash or (root / "src" / included).exists()
        return None if there else "there is no such file"
    if (root / "src" / folder).is_dir():
        return None if folder in allowed else f"{own_folder} may not know {folder}"
    return "it is neither in src/ nor beside the file"


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h") and p.is_file())


def check(root):
    layers = read_layers(root / "src" / "LAYERS")
    offenders = []

    def look(path, allowed, own_folder):
        for line, included in includes(path):
            reason = why_not(root, path, included, allowed, own_folder)
            if reason:
                offenders.append(f"{path.relative_to(root)}:{line}: \"{included}\": {reason}")

    for path in files_of(root / "src"):
        folder = path.relative_to(root / "src").parts[0]
        if folder not in layers:
            offenders.append(f"{path.relative_to(root)}: '{folder}' is not in src/LAYERS")
        elif not is_exempt(path):
            look(path, layers[folder], folder)
    for client, allowed in CLIENTS.items():
        for path in files_of(root / client):
            if not is_exempt(path):
                look(path, allowed, client)
    return offenders


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                               pathlib.Path(__file__).parent.parent).resolve())
    for offender in found:
        print(offender)
    print(f"layers: {len(found)} offenders" if found else "layers: every include is allowed")
    sys.exit(1 if found else 0)
