import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from hpctrip.base.errors import InputError
from hpctrip.learn.data.texts import Sentences
from hpctrip.learn.workloads.shakespeare import ALPHABET, Shakespeare, encode

SHARED = Path(__file__).parents[2].parent / "shared/data/shakespeare"
TEXT = "".join(f"{i:03} bottles of beer, " for i in range(64))[:1280]
"""1,280 characters, no window of which occurs twice."""


pytestmark = pytest.mark.usefixtures("cache")


def decode(symbols):
    return "".join(ALPHABET[i] for i in symbols)


def leaf(texts, **changed):
    """LEAF's file of these texts: every window of 80 characters and the one that follows."""
    data = {
        user: {"x": [text[i : i + 80] for i in range(len(text) - 80)], "y": list(text[80:])}
        for user, text in texts.items()
    }
    counts = [len(samples["y"]) for samples in data.values()]
    return {"users": list(data), "num_samples": counts, "user_data": data, **changed}


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def samples(dataset):
    """(window, next character, owner) of every sample, as a reader of the text sees them."""
    return [
        (decode(x), ALPHABET[y], int(group))
        for x, y, group in zip(dataset.inputs, dataset.labels, dataset.groups, strict=True)
    ]


def test_the_alphabet_has_leafs_80_symbols_and_the_last_stands_for_all_others():
    assert len(set(ALPHABET)) == len(ALPHABET) == 80
    assert encode("\nAz}").tolist() == [0, 25, 78, 79]
    assert encode("|\t$\u00e9\u20ac\U0001f600\udc80").tolist() == [79] * 7


FORMATS = {
    "leaf": lambda folder: written(folder / "all_data.json", leaf({"HAMLET": TEXT})),
    "leaf, in parts": lambda folder: (
        [
            written(folder / "data/all_data" / f"{role}.json", leaf({role: text}))
            for role, text in (("HAMLET", TEXT), ("MUTE", ""))
        ]
        and folder / "data"
    ),
    "by role": lambda folder: written(folder / "by_role.json", {"hamlet/HAMLET": TEXT, "hamlet/MUTE": "Oh."}),
    "plain text": lambda folder: (
        written(folder / "plays" / "play.txt", f"HAMLET:\n{TEXT}\n\nMute:\nOh.\n").parent
    ),
}


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_every_format_gives_the_same_samples(write, tmp_path):
    task = Shakespeare(data=str(write(tmp_path))).task(seed=0)
    # 1,200 windows: 960 to train on, 160 to test on, 80 between them that share characters with both
    assert samples(task.train) == [(TEXT[i : i + 80], TEXT[i + 80], 0) for i in range(960)]
    assert samples(task.test) == [(TEXT[i : i + 80], TEXT[i + 80], 0) for i in range(1040, 1200)]
    assert not task.synthetic and "1 roles" in task.source


def test_roles_too_short_are_left_out_and_counted(tmp_path):
    path = written(
        tmp_path / "roles.json", {"A": TEXT[:500], "B": TEXT[:80], "C": "", "D": TEXT[:81], "E": TEXT}
    )
    one, two = Shakespeare(data=str(path)), Shakespeare(data=str(path), min_characters=100)
    assert "3 roles (2 with fewer than 81 characters left out)" in one.task(0).source
    assert "2 roles (3 with fewer than 100 characters left out)" in two.task(0).source
    assert np.bincount(one.task(0).train.groups).tolist() == [336, 1, 960]


def test_leafs_train_and_test_folders_are_used_as_they_are(tmp_path):
    written(tmp_path / "train/a_train.json", leaf({"A": TEXT[:100]}))
    written(tmp_path / "train/b_train.json", leaf({"B": TEXT[:90]}))
    written(tmp_path / "test/a_test.json", leaf({"A": TEXT[10:92]}))
    written(tmp_path / "all_data/all.json", "not looked at")
    task = Shakespeare(data=str(tmp_path)).task(0)
    assert task.train.groups.tolist() == [0] * 20 + [1] * 10
    assert samples(task.test) == [(TEXT[10:90], TEXT[90], 0), (TEXT[11:91], TEXT[91], 0)]


def test_every_asks_for_the_next_character_80_times_and_visits_each_once(tmp_path):
    path = written(tmp_path / "roles.json", {"A": TEXT})
    task = Shakespeare(data=str(path), predict="every").task(0)
    assert task.train.labels.shape == (12, 80)
    for i, (x, y) in enumerate(zip(task.train.inputs, task.train.labels, strict=True)):
        assert decode(x) + decode(y)[-1] == TEXT[80 * i : 80 * i + 81]
        assert decode(x)[1:] == decode(y)[:-1]
    x, y = torch.tensor(task.train.inputs), torch.tensor(task.train.labels)
    assert task.loss(task.build_model()(task.prepare(x)), y) > 0


def test_a_stride_takes_every_so_many_windows(tmp_path):
    path = written(tmp_path / "roles.json", {"A": TEXT})
    task = Shakespeare(data=str(path), stride=100).task(0)
    assert [window for window, _, _ in samples(task.train)] == [TEXT[i : i + 80] for i in range(0, 960, 100)]


def cut_leaf(**changed):
    return json.dumps(leaf({"A": TEXT[:90]}, **changed))


BAD = {  # {case: ({file: content}, complaint)}
    "no files": ({}, "data holds no files .json, .json.gz, .txt, .txt.gz"),
    "train without test": ({"train/a.json": cut_leaf()}, "there is no file or folder"),
    "JSON cut short": (
        {"roles.json": json.dumps({"A": TEXT})[:-9]},
        "roles.json: not valid JSON (Unterminated",
    ),
    "no text": ({"roles.txt": b"A:\n\xff\xfe\n"}, "roles.txt: not a UTF-8 text (byte 3)"),
    "a text without roles": (
        {"roles.txt": "It was a dark and stormy night.\n"},
        "roles.txt: it does not begin with a speaking role",
    ),
    "a role that is not text": (
        {"roles.json": json.dumps({"A": TEXT, "B": 3})},
        "roles.json: 'B' holds a int, expected a text",
    ),
    "only short roles": (
        {"roles.json": json.dumps({"A": "", "B": "Oh."})},
        "gives no train window of 80 characters and the next, of 2 roles (0 with at least 81",
    ),
    "nothing left to test on": ({"roles.json": json.dumps({"A": TEXT[:100]})}, "gives no test window"),
    "a missing key": ({"leaf.json": json.dumps({"users": ["A"]})}, "leaf.json: user_data: Field required"),
    "a missing user": ({"leaf.json": cut_leaf(users=["B"])}, "leaf.json: user 'B' is not in 'user_data'"),
    "samples without labels": (
        {"leaf.json": cut_leaf(user_data={"A": {"x": ["a"]}})},
        "leaf.json: user_data.A.y: Field required",
    ),
    "a window too short": (
        {"leaf.json": cut_leaf(user_data={"A": {"x": [TEXT[:79]], "y": ["x"]}})},
        "leaf.json: user 'A': sample 0 is not a text of 80 characters and the one that follows it",
    ),
}


@pytest.mark.parametrize(("files", "complaint"), BAD.values(), ids=BAD)
def test_bad_data_are_one_line_that_names_the_file_and_leave_nothing_behind(files, complaint, tmp_path):
    (tmp_path / "data").mkdir()
    for name, content in files.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        Shakespeare(data=str(tmp_path / "data")).prepare_data(0)
    assert len(str(caught.value).splitlines()) == 1
    assert complaint in str(caught.value) and caught.value.faults[0].hint
    assert not list((tmp_path / "cache/shakespeare").rglob("*.npy"))


def test_sentences_are_called_synthetic_and_the_seed_decides_them():
    small = {"roles": 3, "characters": 900}
    task = Shakespeare(sentences=small).task(0)
    assert task.synthetic and "sentences (synthetic text, not Shakespeare's): 3 roles" in task.source
    assert set(task.train.groups.tolist()) == {0, 1, 2}
    texts = Sentences(**small).write(0)
    assert texts == Sentences(**small).write(0) != Sentences(**small).write(1)
    assert list(Sentences(**small | {"roles": 4}).write(0).values())[:3] == list(texts.values())
    assert set("".join(texts.values())) <= set(ALPHABET[:-1])
    assert all(450 <= len(text) <= 1800 for text in texts.values())


def test_roles_use_words_of_their_own():
    texts = Sentences(roles=2, characters=20_000).write(0).values()
    often = [{word for word, count in Counter(text.split()).items() if count > 40} for text in texts]
    assert often[0] - often[1] and often[1] - often[0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no texts of Shakespeare's in ../shared/data/shakespeare")
def test_the_real_plays_are_read_in_both_formats():
    by_role = Shakespeare(data=str(SHARED / "shakespeare_by_role.json.gz"), predict="every").task(0)
    assert "898 roles (172 with fewer than 81 characters left out)" in by_role.source
    assert len(np.unique(by_role.train.groups)) == 898
    text = Shakespeare(data=str(SHARED / "tinyshakespeare_input.txt"), predict="every").task(0)
    assert decode(text.train.inputs[0]).startswith(
        "Before we proceed any further, hear me speak.\nYou are all"
    )
