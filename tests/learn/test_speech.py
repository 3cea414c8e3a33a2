"""Speech Commands: clips read from folders and archives, their split, and the refusal of damaged ones."""

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from hpctrip.base.errors import InputError
from hpctrip.learn.data.chirps import Chirps
from hpctrip.learn.data.mfcc import mfcc
from hpctrip.learn.workloads.speech import Speech

SHARED = Path(__file__).parents[2].parent / "shared/data/speech_commands"
SPEAKERS = ("0a0a", "1b1b", "2c2c", "3d3d", "4e4e")
SECOND = np.sin(np.arange(16_000) / 16_000 * 2 * np.pi * 440)


pytestmark = pytest.mark.usefixtures("cache")


def sound(samples=SECOND, rate=16_000, format="WAV"):
    """The bytes of a sound file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=format)
    return buffer.getvalue()


@pytest.fixture
def published(tmp_path):
    """Write a tiny set in the published layout: two words, said once by five speakers of different loudness; the first
    speaker is on the testing list, the second on that for validation, and so are clips that are not there."""

    def write(suffix="wav", name="set"):
        folder = tmp_path / name
        for word in ("yes", "no", "_background_noise_"):
            (folder / word).mkdir(parents=True, exist_ok=True)
            for loud, speaker in enumerate(SPEAKERS, 1):
                content = sound(SECOND * loud / 10, format=suffix.upper())
                (folder / word / f"{speaker}_nohash_0.{suffix}").write_bytes(content)
        for list_name, speaker in (("testing_list.txt", "0a0a"), ("validation_list.txt", "1b1b")):
            clips = [f"{word}/{who}_nohash_0.wav" for word in ("yes", "no") for who in (speaker, "ffff")]
            (folder / list_name).write_text("\n".join(clips) + "\n")
        return folder

    return write


def archive(folder, path, mode="w"):
    with tarfile.open(path, mode) as tar:
        tar.add(folder, arcname="speech_commands_v0.02")
    return path


def task_of(data, **options):
    return Speech(data=str(data), **options).task(seed=0)


def test_the_official_split_keeps_its_lists_apart_and_counts_what_is_not_there(published):
    task = task_of(published())
    assert task.num_classes == 2
    assert sorted(task.test.labels.tolist()) == [0, 1]  # one speaker said both words
    assert len(task.train) == 6 and len(np.unique(task.train.groups)) == 3  # not the one for validation
    assert not set(task.train.groups.tolist()) & set(task.test.groups.tolist())
    assert "6 training clips of 3 speakers, 2 test clips of other speakers" in task.source
    assert "4 listed clips are not there" in task.source
    assert not task.synthetic


@pytest.mark.parametrize(
    ("mode", "suffix"), [("w", "wav"), ("w:gz", "flac"), ("w:bz2", "wav"), ("w:xz", "wav")]
)
def test_an_archive_is_the_same_data_as_its_folder_and_lists_may_lie_beside_it(
    mode, suffix, published, tmp_path
):
    folder = published(suffix)
    expected = task_of(folder)
    path = archive(folder, tmp_path / "with lists.tar", mode)
    assert _same(task_of(path), expected)
    for name in ("testing_list.txt", "validation_list.txt"):
        (folder / name).rename(tmp_path / name)
    assert _same(task_of(archive(folder, tmp_path / "without.tar", mode)), expected)
    path.write_bytes(path.read_bytes()[:-40] if ":" in mode else path.read_bytes()[:3000])
    assert "not a whole tar archive" in refusal(path)


def _same(task, other):
    return all(
        np.array_equal(getattr(getattr(task, part), array), getattr(getattr(other, part), array))
        for part in ("train", "test")
        for array in ("inputs", "labels", "groups")
    )


def test_inputs_are_the_features_standardised_over_the_training_clips(published):
    task = task_of(published())
    heard = [soundfile.read(io.BytesIO(sound(SECOND * loud / 10)))[0] for loud in (3, 4, 5)]
    raw = np.stack([mfcc(clip) for clip in heard])
    mean, deviation = raw.mean((0, 1)), raw.std((0, 1))
    order = np.argsort(task.train.groups[task.train.labels == 1])  # of the word "yes", by speaker
    inputs = task.train.inputs[task.train.labels == 1][order]
    np.testing.assert_allclose(inputs, (raw - mean) / deviation, rtol=1e-3, atol=1e-3)


def test_words_choose_the_classes_and_their_order(published):
    folder = published()
    (folder / "up").mkdir()
    (folder / "up" / "9a9a_nohash_0.wav").write_bytes(sound())
    task = task_of(folder, words=["yes", "no"])
    assert task.num_classes == 2 and task.train.labels.tolist().count(0) == 3 == len(task.train) / 2
    swapped = task_of(folder, words=["no", "yes"])
    assert np.array_equal(swapped.train.labels, 1 - task.train.labels)
    assert task_of(folder).num_classes == 3


def test_the_split_by_speaker_holds_out_speakers_that_the_seed_decides(published):
    workload = Speech(data=str(published()), split="speaker", test_fraction=0.4)
    held = []
    for seed in range(5):
        task = workload.task(seed)
        speakers = [set(np.unique(part.groups).tolist()) for part in (task.train, task.test)]
        assert [len(s) for s in speakers] == [3, 2] and not speakers[0] & speakers[1]
        assert (len(task.train), len(task.test)) == (6, 4)
        held.append(speakers[1])
    assert len({frozenset(h) for h in held}) > 1


def test_a_client_map_says_who_owns_a_clip_and_clips_without_a_client_are_left_out(published, tmp_path):
    table = tmp_path / "clients.csv.gz"
    rows = [f"{word}_{who}_nohash_0.wav,7" for word in ("yes", "no") for who in SPEAKERS[2:4]]
    table.write_bytes(gzip.compress("\n".join(["file,client", *rows]).encode()))
    task = task_of(published(), client_map=str(table))
    assert len(task.train) == 4 and len(np.unique(task.train.groups)) == 1
    assert "4 training clips of 1 clients" in task.source and "6 clips have no client" in task.source


def test_features_are_computed_once_until_a_clip_comes(published, monkeypatch):
    folder = published()
    task_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr("hpctrip.learn.data.speech.mfcc", None)
        again = task_of(folder)
    assert not again.train.inputs.flags.writeable and not again.train.inputs.flags.owndata
    (folder / "yes" / "5f5f_nohash_1.wav").write_bytes(sound(SECOND[:9000]))  # shorter ones are padded
    assert (len(again.train), len(task_of(folder).train)) == (6, 7)
    limited = task_of(folder, train_samples=3, test_samples=1)
    assert (len(limited.train), len(limited.test)) == (3, 1)


def refusal(data, **options):
    with pytest.raises(InputError) as error:
        Speech(data=str(data), **options).prepare_data(0)
    (fault,) = error.value.faults
    assert fault.hint and "\n" not in str(fault)
    return str(error.value)


def floats(value):
    """A clip of floating-point numbers, one of which has this value."""
    buffer = io.BytesIO()
    soundfile.write(buffer, np.where(np.arange(16_000) == 99, value, SECOND), 16_000, "FLOAT", format="WAV")
    return buffer.getvalue()


BAD_CLIPS = {
    "no number": (floats(np.nan), "samples that are no numbers or above 100"),
    "far too loud": (floats(1e30), "samples that are no numbers or above 100"),
    "another rate": (sound(rate=8000), "8,000 samples a second, expected 16,000"),
    "stereo": (sound(np.stack([SECOND, SECOND], 1)), "2 channels, expected one"),
    "too long": (sound(np.tile(SECOND, 2)), "32,000 samples, expected 480 to 16,000"),
    "too short": (sound(SECOND[:479]), "479 samples, expected 480"),
    "no samples": (sound(SECOND[:0]), "0 samples, expected 480"),
    "zero bytes": (b"", "cannot be decoded (the file is empty)"),
    "a truncated flac": (sound(format="FLAC")[:-800], ""),
    "no sound": (b"RIFF" + struct.pack("<I", 99) + b"nonsense", "cannot be decoded ("),
}


@pytest.mark.parametrize(("content", "complaint"), BAD_CLIPS.values(), ids=BAD_CLIPS)
def test_a_bad_clip_is_one_line_with_its_name(content, complaint, published, tmp_path, cache):
    folder = published()
    (folder / "yes" / "3d3d_nohash_0.wav").write_bytes(content)
    for source in (folder, archive(folder, tmp_path / "set.tar")):
        report = refusal(source)
        assert "yes/3d3d_nohash_0.wav: " in report and complaint in report
    assert [p for p in (cache / "speech").iterdir() if p.is_dir()] == []


def test_of_two_members_of_one_path_the_later_counts_as_when_unpacked(published, tmp_path):
    folder = published()
    path = archive(folder, tmp_path / "set.tar")
    quiet = folder / "yes" / "3d3d_nohash_0.wav"
    quiet.write_bytes(sound(SECOND / 1000))
    with tarfile.open(path, "a") as tar:
        tar.add(quiet, arcname="speech_commands_v0.02/yes/3d3d_nohash_0.wav")
    assert _same(task_of(path), task_of(folder))


def with_a_member(folder, path, name, **fields):
    """An archive of the folder and one more member, whose header has these fields."""
    header = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(header, field, value)
    with tarfile.open(archive(folder, path), "a") as tar:
        tar.addfile(header)
    return path


def test_a_clip_in_an_archive_is_a_file_of_its_own(published, tmp_path):
    name = "yes/4e4e_nohash_7.wav"
    link = {"type": tarfile.SYMTYPE, "linkname": "yes/0a0a_nohash_0.wav"}
    path = with_a_member(published(), tmp_path / "set.tar", name, **link)
    report = refusal(path)
    assert f"{path}: {name}: is a link or a device" in report and "tar --dereference" in report


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_a_damaged_header_does_not_end_an_archive_quietly(published, tmp_path, pack):
    path = with_a_member(published(), tmp_path / "set.tar", "more.txt")
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"more.txt")] ^= 1
    path.write_bytes(pack(bytes(whole)))
    assert f"{path}: not a whole tar archive (bad checksum)" in refusal(path)


def test_the_checksum_of_a_packed_archive_is_compared(published, tmp_path):
    path = archive(published(), tmp_path / "set.tar.gz", "w:gz")
    whole = path.read_bytes()
    path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
    assert "not a whole tar archive (CRC check failed" in refusal(path)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_cut_anywhere_is_one_line(mode, published, tmp_path):
    path = archive(published(), tmp_path / "set.tar", mode)
    whole = path.read_bytes()
    with tarfile.open(path) as tar:
        ends = [member.offset for member in tar][5:7] if mode == "w" else []
    # in the midst of a file; where one header begins; in the midst of a header; before the end mark
    for length in (*ends, len(whole) // 2, len(whole) // 2 + 100, *(end + 100 for end in ends)):
        path.write_bytes(whole[:length])
        assert f"{path}: not a whole tar archive" in refusal(path)


def test_what_is_not_there_is_named_with_a_hint(published, tmp_path):
    folder = published()
    assert "python -m hpctrip fetch speech" in refusal(tmp_path / "nowhere")
    assert "'yess' is not in" in refusal(folder, words=["yess", "no"])
    assert "did you mean 'yes'" in refusal(folder, words=["yess", "no"])
    assert "'no' is named twice" in refusal(folder, words=["no", "yes", "no"])
    assert "there is no file or folder" in refusal(folder, client_map=str(tmp_path / "none.csv"))
    assert "train_samples: 7, but" in refusal(folder, train_samples=7)
    (tmp_path / "wrong.csv").write_text("clip,owner\na,1\n")
    assert "has no column 'file'" in refusal(folder, client_map=str(tmp_path / "wrong.csv"))
    two = "file,client\nyes_0a0a_nohash_0.wav,1\nyes_0a0a_nohash_0.wav,2\n"
    (tmp_path / "two.csv").write_text(two)
    report = refusal(folder, client_map=str(tmp_path / "two.csv"))
    assert "line 2: file = 'yes_0a0a_nohash_0.wav' has another client" in report
    (folder / "yes" / "hello.wav").write_bytes(sound())
    assert "yes/hello.wav: the name says no speaker" in refusal(folder)
    (tmp_path / "empty").mkdir()
    assert "holds no clips" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "clips.tar").write_bytes(b"")
    assert f"give the archive in it: {tmp_path}/empty/clips.tar" in refusal(
        tmp_path / "empty", words=["yes", "no"]
    )
    (tmp_path / "text.tar").write_text("not an archive")
    assert "text.tar: not a whole tar archive" in refusal(tmp_path / "text.tar")


def test_lists_that_leave_one_side_empty_are_refused(published):
    folder = published()
    everything = [f"{word}/{speaker}_nohash_0.wav\n" for word in ("yes", "no") for speaker in SPEAKERS]
    (folder / "testing_list.txt").write_text("".join(everything))
    assert "leaves no clip for the train part, of 10" in refusal(folder)
    (folder / "testing_list.txt").write_text("yes/ffff_nohash_0.wav\n")
    assert "leaves no clip for the test part, of 10" in refusal(folder)
    (folder / "testing_list.txt").unlink()
    assert "there is no testing_list.txt" in refusal(folder)


def test_chirps_say_that_they_are_synthetic(cache):
    task = Speech(chirps={"num_words": 3, "num_speakers": 5, "repetitions": 2}).task(0)
    assert (len(task.train), len(task.test), task.num_classes) == (24, 6, 3)
    assert task.synthetic and "synthetic" in task.source
    assert len(np.unique(task.train.groups)) == 4
    (settings,) = cache.glob("speech/*/settings.json")
    assert "synthetic" in settings.read_text()


def test_a_chirp_is_its_word_by_its_speaker_whoever_else_there_is():
    few, more = (
        Chirps(num_words=n, num_speakers=s, repetitions=1).draw(None, 0) for n, s in ((2, 2), (2, 3))
    )
    rows = [more.names.index(name) for name in few.names]
    assert np.array_equal(more.features[rows], few.features)
    assert not np.array_equal(
        Chirps(num_words=2, num_speakers=2, repetitions=1).draw(None, 1).features, few.features
    )


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/data/speech_commands")
def test_the_real_clips_can_be_read():
    (path,) = SHARED.glob("*.tar")
    task = task_of(path, words=["backward", "visual"], split="speaker")
    assert task.num_classes == 2 and len(task.train) + len(task.test) > 10
    assert task.train.inputs.shape[1:] == (98, 40)
    assert abs(task.train.inputs.astype(np.float32).std() - 1) < 0.01
