"""Speech manifests, held against soundfile."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import forebay

soundfile = pytest.importorskip("soundfile")

KINDS = [("wav", "PCM_U8"), ("wav", "PCM_16"), ("wav", "PCM_24"), ("wav", "PCM_32"),
         ("wav", "FLOAT"), ("wav", "DOUBLE"), ("flac", "PCM_16"), ("flac", "PCM_24"),
         ("ogg", "VORBIS"), ("wav", "ULAW"), ("aiff", "PCM_16")]


def tone(frames: int, channels: int = 1, rate: int = 16000) -> np.ndarray:
    time = np.arange(frames)[:, None] / rate
    return 0.6 * np.sin(2 * np.pi * 330 * time * np.arange(1, channels + 1))


def write(folder: Path, lines: list[dict], name: str = "manifest.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def config_of(path, **more) -> dict:
    config = {"source": {"kind": "audio", "path": str(path)}, "order": {"shuffle": False},
              "batch": {"size": 3, "collate": "pad"}, "memory": {"budget": "64MiB"}}
    for key, value in more.items():
        section, _, name = key.partition("_")
        if name and key != "on_error":
            config.setdefault(section, {})[name] = value
        else:
            config[key] = value
    return config


def load(path, **more) -> list[tuple]:
    samples = []
    with forebay.Loader(config_of(path, **more), as_="numpy") as loader:
        for batch in loader:
            offsets = batch["text_offsets"]
            for i, length in enumerate(batch["audio_length"]):
                assert not batch["audio"][i][length:].any()
                text = batch["text"][offsets[i]:offsets[i + 1]].tobytes().decode()
                samples.append((np.array(batch["audio"][i][:length]), text))
    return samples


def mono(path: Path) -> np.ndarray:
    data, _ = soundfile.read(path, dtype="float32", always_2d=True)
    total = data[:, 0].copy()
    for channel in range(1, data.shape[1]):
        total += data[:, channel]
    return total if data.shape[1] == 1 else total / np.float32(data.shape[1])


@pytest.mark.parametrize("channels", [1, 2])
def test_values_are_those_of_soundfile(tmp_path, channels):
    lines = []
    for i, (extension, subtype) in enumerate(KINDS):
        path = tmp_path / "clips" / f"{i}.{extension}"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, tone(4000 + 321 * i, channels), 16000, subtype=subtype)
        lines.append({"audio_filepath": f"clips/{i}.{extension}", "duration": 0.3,
                      "text": f"größe {i}" * (i % 3)})
    for (sound, text), line in zip(load(write(tmp_path, lines), workers=2), lines, strict=True):
        wanted = mono(tmp_path / line["audio_filepath"])
        assert text == line["text"]
        if line["audio_filepath"].endswith("ogg"):  # soundfile brings a libvorbis of its own
            assert sound.shape == wanted.shape and np.abs(sound - wanted).max() < 1e-6
        else:
            assert np.array_equal(sound, wanted), line


@pytest.fixture
def speech(tmp_path):
    """Eight utterances of 0.25 to 2 s."""
    lines = []
    for i in range(8):
        soundfile.write(tmp_path / f"{i}.wav", tone(4000 * (i + 1)), 16000)
        lines.append({"audio_filepath": f"{i}.wav", "duration": 0.25 * (i + 1), "text": f"t{i}",
                      "speaker": f"s{i % 3}", "lang": ["de", i]})
    return tmp_path, lines


def test_durations_filter(speech):
    folder, lines = speech
    found = load(write(folder, lines), source_min_duration=0.5, source_max_duration=1.25)
    assert [text for _, text in found] == ["t1", "t2", "t3", "t4"]
    for line in lines:
        del line["duration"]
    found = load(write(folder, lines), source_min_duration=0.5, source_max_duration=1.25)
    assert [text for _, text in found] == ["t1", "t2", "t3", "t4"]


def test_an_offset_takes_a_part(speech):
    folder, lines = speech
    whole = mono(folder / "7.wav")
    parts = [(0.0, 0.5), (0.7, 0.31), (1.5, 3.0)]
    found = load(write(folder, [{**lines[7], "offset": o, "duration": d} for o, d in parts]))
    for (sound, _), (offset, duration) in zip(found, parts, strict=True):
        first = round(offset * 16000)
        assert np.array_equal(sound, whole[first:first + round(duration * 16000)])


def test_other_keys_come_as_text_if_they_are_named(speech):
    folder, lines = speech
    config = config_of(write(folder, lines), batch_fields=["speaker", "lang"])
    with forebay.Loader(config, as_="numpy") as loader:
        batch = next(iter(loader))
        assert set(batch) == {"index", "speaker", "speaker_offsets", "lang", "lang_offsets"}
        assert batch["speaker"].tobytes() == b"s0s1s2"
        assert batch["lang"].tobytes() == b'["de",0]["de",1]["de",2]'


def test_text_is_ragged_under_every_collate(speech):
    folder, lines = speech
    path = write(folder, lines)
    for collate in ("pad", "ragged", "stack"):
        size = 1 if collate == "stack" else 3
        with forebay.Loader(config_of(path, batch_collate=collate, batch_size=size),
                            as_="numpy") as loader:
            batch = next(iter(loader))
            assert batch["text_offsets"].tolist() == list(range(0, 2 * size + 1, 2))
            assert ("audio_length" in batch) == (collate == "pad")
            assert ("audio_offsets" in batch) == (collate == "ragged")


def test_another_rate_is_an_error_or_resampled(speech):
    folder, lines = speech
    soundfile.write(folder / "1.wav", tone(44100, rate=44100), 44100)
    path = write(folder, lines)
    with pytest.raises(forebay.Error, match="44100.*source.rate=16000"):
        load(path)
    found = load(path, source_rate=16000)
    assert len(found[1][0]) == 16000
    middle = slice(2000, 14000)
    assert np.allclose(found[1][0][middle], tone(16000)[middle, 0], atol=1e-3)
    assert np.array_equal(found[0][0], mono(folder / "0.wav"))


def test_broken_ones_are_named_and_skipped(speech):
    folder, lines = speech
    (folder / "2.wav").write_bytes((folder / "2.wav").read_bytes()[:3000])
    (folder / "4.wav").unlink()
    (folder / "5.wav").write_bytes(b"no sound at all")
    path = write(folder, lines)
    path.write_text(path.read_text() + "{not json\n" + json.dumps(lines[0]) + "\n")
    with pytest.raises(forebay.Error, match=r"2\.wav.*ends \d+ bytes early"):
        load(path)
    with pytest.raises(forebay.Error, match="line 9"):
        load(path, batch_size=9, source_min_duration=1.9)
    found = load(path, on_error="skip")
    assert [text for _, text in found] == ["t0", "t1", "t3", "t6", "t7", "t0"]


def test_what_is_no_manifest_fails_at_once(tmp_path):
    path = tmp_path / "table.jsonl"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(forebay.Error, match=r"table\.jsonl.*line 1: no JSON"):
        load(path)


def test_a_manifest_that_changes_is_noticed(speech):
    folder, lines = speech
    path = write(folder, lines)
    with forebay.Loader(config_of(path, memory_cache="off", workers=0), as_="numpy") as loader:
        next(iter(loader))
        path.write_text(path.read_text().replace("t7", "T7"))
        with pytest.raises(forebay.Error, match="changed"):
            for _ in range(2):
                for _ in loader:
                    pass


def test_a_sound_much_longer_than_any_promised_is_refused(speech):
    folder, lines = speech
    soundfile.write(folder / "0.wav", tone(16000 * 60), 16000)
    with pytest.raises(forebay.Error, match="lasts 60.0 s"):
        load(write(folder, lines))


MP3 = Path(__file__).parent.parent / "corpus" / "wav"


@pytest.mark.parametrize("name, frames, estimate", [
    ("vbr-without-xing.mp3", 25344, 10368),  # lame -V 6 -t: 44 frames of 576
    ("vbr-with-xing.mp3", 24000, 24000),     # lame -V 6: it says what to cut off at both ends
    ("cbr-stereo.mp3", None, None),          # lame -b 64 -t
])
def test_all_frames_of_an_mp3_are_counted(tmp_path, name, frames, estimate):
    """libsndfile estimates the length of a file without a Xing header, and reads no further."""
    (tmp_path / name).write_bytes((MP3 / name).read_bytes())
    found = load(write(tmp_path, [{"audio_filepath": name, "text": ""}]))[0][0]
    wanted = mono(tmp_path / name)
    assert len(found) == (frames or len(found))
    assert len(wanted) == (estimate or len(wanted))
    shared = min(len(found), len(wanted))
    # soundfile brings a libmpg123 of its own: another version rounds the last bit in another way
    np.testing.assert_allclose(found[:shared], wanted[:shared], atol=1e-6)
    assert len(found) >= len(wanted)


def test_an_mp3_that_is_cut_short_is_an_error(tmp_path):
    data = (MP3 / "vbr-with-xing.mp3").read_bytes()
    (tmp_path / "a.mp3").write_bytes(data[:len(data) // 2])
    with pytest.raises(forebay.Error, match="a.mp3.*cut short"):
        load(write(tmp_path, [{"audio_filepath": "a.mp3", "text": ""}]))
