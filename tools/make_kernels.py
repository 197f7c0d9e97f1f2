#!/usr/bin/env python3
"""make_kernels.py KERNELS.cl OUT.c OUT.ptx [CLANG] -- kernels as C strings: text, and PTX if clang can.

The PTX asks for compute capability 5.0 and PTX 6.0, so that every driver since 2017 takes it. If
clang has no NVPTX target, OUT.ptx is empty, the string is "" and the CUDA back end does without.
"""
import pathlib
import subprocess
import sys


def ptx_of(source, clang):
    command = [clang, "--target=nvptx64-nvidia-cuda", "-x", "cl", "-cl-std=CL1.2", "-O2", "-S",
               "-Xclang", "-finclude-default-header", "-Xclang", "-target-cpu", "-Xclang", "sm_50",
               "-Xclang", "-target-feature", "-Xclang", "+ptx60", "-o", "-", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0 and ".entry" in done.stdout:
        return done.stdout
    print(f"make_kernels.py: {clang} makes no PTX; CUDA gathers by copies\n{done.stderr}",
          file=sys.stderr)
    return ""


def c_string(name, text):
    """One literal a line; C compilers take as many as there are, one after the other."""
    lines = [line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
             for line in text.splitlines()]
    body = "".join(f'    "{line}\\n"\n' for line in lines) or '    ""\n'
    return f"const char {name}[] =\n{body}    ;\n"


def main():
    source, out_c, out_ptx, *clang = sys.argv[1:]
    ptx = ptx_of(source, clang[0]) if clang else ""
    text = pathlib.Path(source).read_text()
    pathlib.Path(out_ptx).write_text(ptx)
    pathlib.Path(out_c).write_text(
        "/* Made from kernels.cl by tools/make_kernels.py. */\n"
        '#include "device/device.h"\n\n'
        "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
        + c_string("fb_kernels_source", text) + c_string("fb_kernels_ptx", ptx))


if __name__ == "__main__":
    main()
