"""Clips of spoken words: who speaks, whose they are, and which are to be tested on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.text import unknown_name

TESTING, VALIDATION = LISTS = ("testing_list.txt", "validation_list.txt")


@dataclass(frozen=True)
class Clips:
    """What a source holds of the words asked for, in the order of the names."""

    names: list[str]
    """`word/speaker_nohash_n`, without the suffix."""
    features: np.ndarray
    """[num_clips, 98, 40] float32, see `mfcc`."""
    lists: dict[str, frozenset[str]]
    """What each list that is there names, likewise without suffixes."""


def word_of(name: str) -> str:
    """`word/speaker_nohash_n` -> the word."""
    return name.partition("/")[0]


def speaker_of(name: str) -> str:
    """`word/speaker_nohash_n` -> the speaker."""
    return name.partition("/")[2].partition("_nohash_")[0]


def check_words(words: Sequence[str] | None, known: Collection[str], source: str) -> None:
    """Raises InputError where a word is asked for twice, or is not among those that the source has."""
    for word in words or ():
        if words.count(word) > 1:
            raise InputError("workload.words", f"{word!r} is named twice", "name every word once")
        if word not in known:
            raise InputError("workload.words", f"{word!r} is not in {source}", unknown_name(word, known))


def owners_of(names: Sequence[str], client_map: str | None) -> tuple[np.ndarray, str]:
    """[num_clips] int64 the owner of each clip, -1 where it has none, and what to say of those that have none.

    The owner is the speaker, or who the CSV file `client_map` says. Raises InputError where that cannot be read.
    """
    if client_map is None:
        return np.unique([speaker_of(name) for name in names], return_inverse=True)[1], ""
    table = read_table(client_map, f"workload.client_map = {client_map!r}")
    table.require("file", "client")
    clips = [file.rpartition(".")[0].replace("_", "/", 1) for file in table.texts("file")]
    clients = table.texts("client")
    client_of = dict(zip(clips, clients, strict=True))
    differs = [client_of[clip] != client for clip, client in zip(clips, clients, strict=True)]
    table.refuse("file", np.array(differs, dtype=bool), "has another client further down", "keep one of them")
    number = {client: i for i, client in enumerate(dict.fromkeys(clients))}
    owners = np.array([number.get(client_of.get(name, ""), -1) for name in names], dtype=np.int64)
    return owners, f"; {(owners < 0).sum():,} clips have no client"


def official_parts(clips: Clips, source: str) -> tuple[dict[str, np.ndarray], str]:
    """For both parts [num_clips] bool, which clips are in it after the published lists, and what to say of listed clips
    that are absent. Raises InputError where there is no list of clips for testing."""
    if TESTING not in clips.lists:
        raise InputError(
            source, f"there is no {TESTING} in it or beside it", 'or set workload.split = "speaker"'
        )
    listed = {name: np.array([clip in clips.lists.get(name, ()) for clip in clips.names]) for name in LISTS}
    wanted = {word_of(name) for name in clips.names}
    named = sum(word_of(name) in wanted for names in clips.lists.values() for name in names)
    absent = named - sum(int(there.sum()) for there in listed.values())
    note = f"; {absent:,} listed clips are not there" if absent else ""
    return {"train": ~(listed[TESTING] | listed[VALIDATION]), "test": listed[TESTING]}, note
