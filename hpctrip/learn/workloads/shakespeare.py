"""The shakespeare workload: the next character of a play, by speaking role, with a two-layer LSTM (paper, Table 2).

The data are LEAF's files, or texts by role in two other formats, read from a file or a folder, or `sentences`:
synthetic texts, so that a first run needs no download. One role is one natural owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.config.identity import Added
from hpctrip.config.plugins import CodeName
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached, files
from hpctrip.learn.data.texts import VERSION, Sentences, roles_from_json, roles_from_text
from hpctrip.learn.task import Task
from hpctrip.learn.workloads.base import WORKLOADS, SampledWorkload, own_model

WINDOW = 80
"""Characters that the model sees before the one that it predicts."""
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 symbols, in its order. Any other character becomes the last one, as in LEAF's labels: its look-up says -1,
which its one-hot rows count from the end."""
TRAIN_FRACTION = 0.8  # of each role's text, as in McMahan et al. 2017

_CODES = np.full(256, len(ALPHABET) - 1, np.uint8)
_CODES[[ord(symbol) for symbol in ALPHABET]] = np.arange(len(ALPHABET))
_FILES = {
    "suffixes": (".json", ".txt"),
    "hint": 'fetch a text with `python -m hpctrip fetch shakespeare DIR`, or set workload.data = "sentences"',
}


@WORKLOADS.add
class Shakespeare(SampledWorkload):
    """Next character of plays by speaking role (LEAF's files or texts), or synthetic sentences, and LEAF's LSTM."""

    kind: ClassVar[str] = "shakespeare"
    embedded: ClassVar[str] = "sentences"
    origins: ClassVar[tuple[str, str]] = ("sentences (synthetic text, not Shakespeare's)", "texts")
    has_owners: ClassVar[bool] = True
    lr: ClassVar[float] = 0.8
    batch_size: ClassVar[int] = 20

    data: Annotated[PathName, Reads(unless=("sentences",), find=partial(files.all_parts, **_FILES))] = Field(
        "sentences", min_length=1
    )
    """`"sentences"`: synthetic text by invented roles, no download; otherwise a file or a folder of files, gzipped or
    not, which are combined: LEAF's JSON (folders `train` and `test` define the split; otherwise every role is split by
    time), JSON of the form {"play/ROLE": text}, or plain text (.txt) in blocks of `ROLE:` and its lines."""
    predict: Literal["last", "every"] = "last"
    """Characters to predict from a window of 80. `last`: the one that follows it (LEAF); `every`: after each of the 80
    the next one, 80 predictions for the same work, in loss and accuracy (McMahan et al. 2017). The model is the
    same."""
    model: Added[Literal["lstm"] | CodeName] = "lstm"
    """`lstm`: LEAF's; `"file.py:Name"`: a class or function of yours that Name(80) makes a model, which takes [B, 80]
    int64, the symbols' numbers, and gives [B, 80] logits; with `every` [B, 80, 80], for each character."""
    stride: int | None = Field(None, ge=1)
    """Characters from the start of one window to the next. Absent: 1 with `last` (as in LEAF), 80 with `every`, so
    that every character is predicted once."""
    min_characters: int = Field(WINDOW + 1, ge=WINDOW + 1)
    """Roles with fewer characters are omitted. 81: those without a single window."""
    sentences: Sentences = Sentences()
    """Amount of synthetic text; ignored with data from files."""

    def resolve(self) -> Self:
        """With the stride that belongs to what is predicted."""
        return super().resolve().with_defaults(stride=1 if self.predict == "last" else WINDOW)

    def task(self, seed: int) -> Task:
        """The memory-mapped windows and the LSTM; prepares the data first where the cache lacks it."""
        import torch

        from hpctrip.learn.models.lstm import CharLSTM, next_character_loss

        folder = self.folder(seed)
        train, test = cached.datasets(folder, "inputs", "labels", "groups")
        num_roles, left_out = cached.load(folder, "roles").tolist()
        short = (
            f" ({left_out:,} with fewer than {self.min_characters} characters left out)" if left_out else ""
        )
        return Task(
            train=train,
            test=test,
            num_classes=len(ALPHABET),
            build_model=own_model(self.model, len(ALPHABET))
            or partial(CharLSTM, len(ALPHABET), every=self.predict == "every"),
            prepare=torch.Tensor.long,
            loss=next_character_loss,
            source=f"{self.origin}: {num_roles:,} roles{short}, {len(train):,} training and {len(test):,} test windows",
            synthetic=self.synthetic,
            digests={"data": cached.digest_of(folder)},
        )

    def folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        settings: dict[str, Any] = self.resolve().model_dump(exclude={"data", "model", "sentences"})
        paths: dict[str, list[Path]] = {}
        if self.synthetic:
            settings |= {"sentences (synthetic)": self.sentences.model_dump(), "version": VERSION}
        else:
            paths = files.by_part(self.path, **_FILES)
            settings["files"] = {part: cached.content_of(of_part) for part, of_part in paths.items()}
        if self.synthetic or self.train_samples or self.test_samples:
            settings["seed"] = seed
        return cached.prepared("shakespeare", settings, lambda: self._arrays(paths, seed))

    def _arrays(self, paths: dict[str, list[Path]], seed: int) -> dict[str, np.ndarray]:
        """`{part}_inputs` [num_windows, 80] uint8 and `{part}_labels` [num_windows] or [num_windows, 80] int64 of both
        parts, `{part}_groups` [num_windows] int64, and `roles`: how many there are, and how many were left out."""
        spoken = {part: read_windows(of_part) for part, of_part in paths.items()} or {
            "all": {role: windows(encode(text)) for role, text in self.sentences.write(seed).items()}
        }
        whole = spoken["all"] if "all" in spoken else spoken["train"]
        long_enough = {role: cut for role, cut in whole.items() if len(cut) + WINDOW >= self.min_characters}
        if "all" in spoken:
            halves = [split_by_time(cut) for cut in long_enough.values()]
            by_part = {part: [half[i] for half in halves] for i, part in enumerate(cached.PARTS)}
        else:
            by_part = {"train": list(long_enough.values()), "test": list(spoken["test"].values())}
        arrays = {"roles": np.array([len(long_enough), len(whole) - len(long_enough)])}
        stride = self.resolve().stride
        for part in cached.PARTS:
            cuts = [cut[::stride] for cut in by_part[part]]
            num_windows = sum(map(len, cuts))
            if not num_windows:
                raise InputError(
                    "workload.data",
                    f"{self.path} gives no {part} window of {WINDOW} characters and the next, of {len(whole):,} "
                    f"roles ({len(long_enough):,} with at least {self.min_characters} characters)",
                    "give longer texts, or lower workload.min_characters",
                )
            index = self.subset(part, num_windows, self.data, seed)
            both = np.concatenate(cuts)[index]
            arrays[f"{part}_inputs"] = np.ascontiguousarray(both[:, :WINDOW])
            arrays[f"{part}_labels"] = (both[:, 1:] if self.predict == "every" else both[:, WINDOW]).astype(
                np.int64
            )
            arrays[f"{part}_groups"] = np.repeat(np.arange(len(cuts)), [len(cut) for cut in cuts])[index]
        return arrays


def encode(text: str) -> np.ndarray:
    """[len(text)] uint8: the symbols' places in ALPHABET."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _CODES[np.minimum(code_points, 255)]  # 255 is not in the alphabet


def windows(symbols: np.ndarray) -> np.ndarray:
    """[n, 81] view of a text [n + 80]: every window of 80 symbols and the one after it; n = 0 of a short text."""
    if len(symbols) <= WINDOW:
        return np.empty((0, WINDOW + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(symbols, WINDOW + 1)


def split_by_time(cut: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A role's windows [n, 81], one character apart: the first 80 % to train on, and those after them that share no
    character with any of these to test on; none in a short role."""
    num_train = max(1, int(TRAIN_FRACTION * len(cut)))
    return cut[:num_train], cut[num_train + WINDOW :]


def read_windows(paths: list[Path]) -> dict[str, np.ndarray]:
    """The windows [n, 81] of every role in these files; those of one role in several files are joined."""
    by_role: dict[str, list[np.ndarray]] = {}
    for path in paths:
        for role, cut in _read(path):
            by_role.setdefault(role, []).append(cut)
    return {role: np.concatenate(cuts) if len(cuts) > 1 else cuts[0] for role, cuts in by_role.items()}


def _read(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Role and windows [n, 81], from a file in any of the three formats: its content tells which."""
    text = files.read_text(path)
    content = files.json_object(path, text) if text.lstrip().startswith("{") else None
    if content is None or not content.keys() & {"users", "num_samples", "user_data"}:
        plays = f"{path.stem}/" if content is None else ""
        roles = roles_from_text(path, text) if content is None else roles_from_json(path, content)
        for role, speech in roles.items():
            yield f"{plays}{role}", windows(encode(speech))
        return
    for name, user in files.leaf_users(path, content):
        for i, (x, y) in enumerate(zip(user.x, user.y, strict=True)):
            if not (isinstance(x, str) and isinstance(y, str) and (len(x), len(y)) == (WINDOW, 1)):
                problem = f"sample {i:,} is not a text of {WINDOW} characters and the one that follows it"
                raise files.leaf_fault(path, name, problem)
        together = "".join(x + y for x, y in zip(user.x, user.y, strict=True))
        yield name, encode(together).reshape(-1, WINDOW + 1)
