"""Sample data: deterministic, of the promised shapes, whole files only."""
import csv
import json
import os
import resource
import signal
import subprocess
import time
import wave

import numpy as np
import pytest

SMALL = {
    "lidar": ["--files", 5, "--bytes", "64kB"],
    "frames": ["--files", 2, "--bytes", "200kB"],
    "windows": ["--files", 3, "--bytes", "40kB"],
    "images": ["--files", 12, "--bytes", "10kB"],
    "audio": ["--files", 4, "--bytes", "32kB"],
    "table": ["--files", 3, "--rows", 200],
}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", SMALL)
def test_the_same_seed_gives_the_same_bytes(result, tmp_path, kind):
    one = result("generate", kind, tmp_path / "one", *SMALL[kind])
    two = result("generate", kind, tmp_path / "two", *SMALL[kind])
    other = result("generate", kind, tmp_path / "other", *SMALL[kind], "--seed", 1)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert one["checksum"] == two["checksum"] != other["checksum"]
    assert one["bytes"] == sum(map(len, contents(tmp_path / "one").values()))
    assert one["written"] == len(contents(tmp_path / "one"))
    assert contents(tmp_path / "one") != contents(tmp_path / "other")


@pytest.mark.parametrize("kind", SMALL)
def test_what_is_there_is_kept(result, tmp_path, kind):
    first = result("generate", kind, tmp_path / "set", *SMALL[kind])
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*")}
    again = result("generate", kind, tmp_path / "set", *SMALL[kind])
    assert (again["written"], again["kept"]) == (0, first["written"])
    assert again["checksum"] == first["checksum"]
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*")}


def test_another_file_is_not_overwritten_without_force(failure, result, tmp_path):
    (tmp_path / "000003.bin").write_bytes(b"mine")
    error = failure(1, "generate", "lidar", tmp_path, *SMALL["lidar"])
    assert "--force" in error["message"] and error["place"].endswith("000003.bin")
    assert (tmp_path / "000003.bin").read_bytes() == b"mine"
    assert result("generate", "lidar", tmp_path, *SMALL["lidar"], "--force")["written"] == 5
    assert (tmp_path / "000003.bin").stat().st_size == 64000


def test_lidar(result, checksum, tmp_path):
    made = result("generate", "lidar", tmp_path, *SMALL["lidar"])
    scans = [np.fromfile(path, "<f4").reshape(-1, 4) for path in sorted(tmp_path.iterdir())]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"{i:06}.bin" for i in range(5)]
    assert all(scan.shape == (4000, 4) for scan in scans)
    points = np.concatenate(scans)
    assert points[:, :3].min() >= -80 and points[:, :3].max() < 80
    assert points[:, 3].min() >= 0 and points[:, 3].max() < 1
    assert abs(points[:, :3].mean()) < 1 and abs(points[:, 3].mean() - 0.5) < 0.02
    assert made["checksum"] == checksum(scans) and made["checksum_of"] == "data"


def test_frames_scale_with_bytes(result, checksum, tmp_path):
    made = result("generate", "frames", tmp_path, *SMALL["frames"])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"00{i}_{part}.npy" for i in range(2) for part in ("blur", "sharp", "voxel")]
    arrays = [np.load(tmp_path / name) for name in names]
    height, width, _ = arrays[0].shape
    assert arrays[1].shape == (height, width, 3) and arrays[2].shape == (32, height, width)
    assert 0.9 * 200000 < height * width * 38 * 4 <= 200000 and 1.6 < width / height < 2
    assert made["checksum"] == checksum(arrays)


def test_a_full_frame_has_the_guides_size(result, tmp_path):
    result("generate", "frames", tmp_path, "--files", 1)
    shapes = [np.load(path, mmap_mode="r").shape for path in sorted(tmp_path.iterdir())]
    assert shapes == [(720, 1280, 3), (720, 1280, 3), (32, 720, 1280)]


def test_windows_are_normal(result, checksum, tmp_path):
    made = result("generate", "windows", tmp_path, "--files", 2)
    arrays = [np.load(path) for path in sorted(tmp_path.iterdir())]
    assert all(a.shape == (6000, 96) and a.dtype == np.float32 for a in arrays)
    assert abs(arrays[0].mean()) < 0.01 and abs(arrays[0].std() - 1) < 0.01
    assert made["checksum"] == checksum(arrays)


def test_images_are_jpegs_in_class_folders_with_labels(result, tmp_path):
    result("generate", "images", tmp_path, *SMALL["images"])
    rows = list(csv.DictReader(open(tmp_path / "labels.csv")))
    assert len(rows) == 12
    for number, row in enumerate(rows):
        assert row["path"] == f"class_{number % 10}/{number:05}.jpg"
        assert int(row["label"]) == number % 10
        data = (tmp_path / row["path"]).read_bytes()
        assert data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9"
        assert 3000 < len(data) < 30000


def test_audio_has_a_manifest_with_relative_paths(result, tmp_path):
    result("generate", "audio", tmp_path, "--files", 4)
    rows = [json.loads(line) for line in open(tmp_path / "manifest.jsonl")]
    assert [row["audio_filepath"] for row in rows] == ["00000.wav", "00001.flac", "00002.wav",
                                                       "00003.flac"]
    for row in rows:
        assert 2 <= row["duration"] <= 15 and row["text"]
    assert (tmp_path / "00001.flac").read_bytes()[:4] == b"fLaC"
    with wave.open(str(tmp_path / "00000.wav")) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (16000, 1, 2)
        assert abs(sound.getnframes() / 16000 - rows[0]["duration"]) < 0.001
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
    assert 500 < samples.std() < 10000 and abs(samples.mean()) < 100


def test_table(result, tmp_path):
    result("generate", "table", tmp_path, *SMALL["table"])
    for part in (1, 2, 3):
        rows = list(csv.reader(open(tmp_path / f"data_part{part}.csv")))
        assert rows[0] == [f"c{i}" for i in range(24)] and len(rows) == 201
        for column in range(24):
            cells = [row[column] for row in rows[1:]]
            if column % 3 == 2:
                low = -1000 if column % 2 else 0
                assert all(low <= int(cell) < 10 ** (1 + column // 4) for cell in cells)
            else:
                assert all(len(cell.split(".")[1]) <= 5 for cell in cells)
                assert 0.7 < np.std([float(cell) for cell in cells]) / 10 ** (column % 4) < 1.3


def test_a_table_by_bytes_ends_with_the_row_that_reaches_them(result, tmp_path):
    result("generate", "table", tmp_path, "--files", 1, "--bytes", "1MB")
    data = (tmp_path / "data_part1.csv").read_bytes()
    assert 1000000 <= len(data) < 1000400 and data.endswith(b"\n")


def test_a_failing_write_leaves_no_half_file(program, tmp_path):
    def limits():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500000, 500000))

    done = subprocess.run([program, "generate", "lidar", tmp_path / "set", "--files", "3", "--json"],
                          preexec_fn=limits, restore_signals=False, capture_output=True, text=True)
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["status"] == "IO" and ".bin" in error["message"]
    assert list((tmp_path / "set").iterdir()) == []


def test_a_full_disk_is_said_clearly(program, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk],
                             capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount a small file system")
    try:
        done = subprocess.run([program, "generate", "lidar", disk / "set"], capture_output=True,
                              text=True)
        left = [path.stat().st_size for path in (disk / "set").iterdir()]
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 1 and "the disk is full" in done.stderr
    assert set(left) <= {1000000}


def test_a_folder_that_cannot_be_made(failure, tmp_path):
    (tmp_path / "file").write_text("")
    error = failure(1, "generate", "lidar", tmp_path / "file" / "below", *SMALL["lidar"])
    assert "cannot make the folder" in error["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_whole_files_only(program, tmp_path, number):
    command = [program, "generate", "frames", tmp_path / "set", "--files", "200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not list(tmp_path.glob("set/*.npy")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number
    names = os.listdir(tmp_path / "set")
    assert names and all(name.endswith(".npy") for name in names)
    for name in names:
        np.load(tmp_path / "set" / name, mmap_mode="r")
