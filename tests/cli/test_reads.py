"""How bytes come in: from the page cache, cold, around it, and where io_uring is forbidden."""
import ctypes
import mmap
import os
import resource

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP = 425  # the same on every architecture
SECCOMP_RET_ALLOW, SECCOMP_RET_EPERM = 0x7fff0000, 0x00050001


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte),
                ("k", ctypes.c_uint)]


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.POINTER(Instruction))]


def forbid_io_uring():
    """A seccomp filter, as container engines have it: io_uring_setup says EPERM."""
    code = (Instruction * 4)(Instruction(0x20, 0, 0, 0),               # load the call's number
                             Instruction(0x15, 0, 1, IO_URING_SETUP),  # is it this one?
                             Instruction(0x06, 0, 0, SECCOMP_RET_EPERM),
                             Instruction(0x06, 0, 0, SECCOMP_RET_ALLOW))
    program = Filter(4, code)
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0  # no new privileges, so that anybody may
    assert LIBC.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
    assert LIBC.syscall(IO_URING_SETUP, 1, 0) == -1 and ctypes.get_errno() == 1


def forbid_locked_memory():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))


def resident(path):
    """Bytes of the file in the page cache."""
    size = path.stat().st_size
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        seen = (ctypes.c_ubyte * pages)()
        address = (ctypes.c_char * size).from_buffer(mapped)
        assert LIBC.mincore(ctypes.c_void_p(ctypes.addressof(address)), ctypes.c_size_t(size),
                            seen) == 0
        del address
    return sum(page & 1 for page in seen) * mmap.PAGESIZE


def make_cold(files):
    for path in files:
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@pytest.fixture
def large(result, tmp_path):
    """16 scans of 3 MB: several chunks of a ring each."""
    class Large:
        folder = tmp_path / "large"
        made = result("generate", "lidar", folder, "--files", 16, "--bytes", "3MB")
        files = sorted(folder.glob("*.bin"))
        settings = ["--set", "source.kind=bin", "--set", f"source.path={folder}/*.bin", "--set",
                    "memory.budget=64MiB", "--set", "memory.cache=off", "--set", "batch.size=2",
                    "--set", "batch.collate=ragged"]
    return Large


@pytest.mark.parametrize("how", ["warm", "cold"])
@pytest.mark.parametrize("ring", [None, forbid_io_uring, forbid_locked_memory],
                         ids=["ring", "forbidden", "no-memlock"])
@pytest.mark.parametrize("direct", ["false", "true"])
def test_every_way_of_reading_gives_the_same(result, large, how, ring, direct):
    if how == "cold":
        make_cold(large.files)
    got = result("run", *large.settings, "--set", f"source.direct={direct}", preexec_fn=ring)
    assert got["samples"] == 16
    assert got["checksum"] == large.made["checksum"]
    assert got["epochs"][0]["bytes_read"] == 16 * 3000000


@pytest.mark.parametrize("ring", [None, forbid_io_uring], ids=["ring", "forbidden"])
def test_direct_keeps_nothing_in_the_page_cache(result, large, ring):
    make_cold(large.files)
    if any(resident(path) for path in large.files):
        pytest.skip("this file system keeps its pages whatever one says (tmpfs?)")
    result("run", *large.settings, preexec_fn=ring)
    assert sum(map(resident, large.files)) >= 40e6, "read as usual they do stay"
    make_cold(large.files)
    got = result("run", *large.settings, "--set", "source.direct=true", "--epochs", 2,
                 preexec_fn=ring)
    assert got["samples"] == 32
    assert sum(map(resident, large.files)) <= 1e6


def test_a_raw_file_that_is_kept_is_not_kept_by_the_kernel_too(result, large):
    make_cold(large.files)
    if any(resident(path) for path in large.files):
        pytest.skip("this file system keeps its pages whatever one says (tmpfs?)")
    got = result("run", *large.settings, "--set", "memory.cache=25MB", "--set", "memory.share=off",
                 "--epochs", 3)
    there = [resident(path) for path in large.files]
    assert 4 <= got["cache"]["items"] <= 8
    assert sum(here <= 200_000 for here in there) == got["cache"]["items"], there
    assert sum(here >= 2_900_000 for here in there) == 16 - got["cache"]["items"], there


def test_raw_files_that_fit_are_left_to_the_page_cache(result, large):
    assert result("run", *large.settings, "--set", "memory.cache=auto")["cache"]["policy"] == "none"
