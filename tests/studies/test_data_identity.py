"""Identities of runs depend on the contents of the data that they read, not on paths or other files beside them."""

import numpy as np
import pytest
import soundfile

from hpctrip.studies.studies import Changes, read_studies, study_file


def identity(study, data, folder):
    """Identity of the first run of a study that comes with hpctrip, on other data."""
    (read,) = read_studies(study_file(study), folder, Changes([f"workload.data={data}", "seed=0"]))
    return read.entries[0].identity


@pytest.fixture
def clips(tmp_path):
    """`make(name, level)`: a folder of two words with three clips each, of this amplitude."""

    def make(name, level):
        for word in ("no", "yes"):
            (tmp_path / name / word).mkdir(parents=True)
            for number in range(3):
                path = tmp_path / name / word / f"00{number}_nohash_0.wav"
                soundfile.write(path, np.full(16000, level), 16000)
        return tmp_path / name

    return make


def test_a_clip_in_its_words_folder_is_part_of_a_runs_identity(clips, tmp_path):
    one, same, other = clips("one", 0.1), clips("same", 0.1), clips("other", 0.2)
    before = identity("speech_policies", one, tmp_path)
    assert identity("speech_policies", same, tmp_path) == before
    assert identity("speech_policies", other, tmp_path) != before
    (one / "yes/000_nohash_0.wav").rename(one / "no/003_nohash_0.wav")
    assert identity("speech_policies", one, tmp_path) != before


def test_the_official_lists_are_and_a_note_beside_the_clips_is_not(clips, tmp_path):
    data = clips("data", 0.1)
    before = identity("speech_policies", data, tmp_path)
    (data / "README").write_text("my notes")
    assert identity("speech_policies", data, tmp_path) == before
    (data / "testing_list.txt").write_text("yes/000_nohash_0.wav\n")
    assert identity("speech_policies", data, tmp_path) != before


def test_leafs_two_folders_are(tmp_path):
    identities = set()
    for number, texts in enumerate(("abc", "abd", "abc")):
        for part in ("train", "test"):
            (tmp_path / str(number) / part).mkdir(parents=True)
            (tmp_path / str(number) / part / "plays.json").write_text(f'{{"play/A": "{texts}"}}')
        identities.add(identity("shakespeare_policies", tmp_path / str(number), tmp_path))
    assert len(identities) == 2
