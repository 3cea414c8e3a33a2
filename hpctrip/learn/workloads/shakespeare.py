"""The shakespeare workload: the next character of a play, by speaking role, with a two-layer LSTM (paper, Table 2).

The data are LEAF's files, or texts by role in two other formats, read from a file or a folder, or `sentences`:
synthetic texts, so that a first run needs no download. One role is one natural owner.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached, leaf_json
from hpctrip.learn.data.cached import PARTS, fingerprints
from hpctrip.learn.data.play_text import ALPHABET, WINDOW, encode, read_windows, split_by_time, windows
from hpctrip.learn.data.sentences import VERSION, Sentences
from hpctrip.learn.data.subsample import subset
from hpctrip.learn.models.lstm import CharLSTM, next_character_loss
from hpctrip.learn.task import Task
from hpctrip.learn.workloads.base import WORKLOADS, Workload

_SUFFIXES = (".json", ".txt")
_WAY_OUT = 'fetch a text with `python -m hpctrip fetch shakespeare DIR`, or set workload.data = "sentences"'


def _all_files(data: str) -> list[Path]:
    """The files of all parts."""
    parts = leaf_json.parts(Path(data).expanduser(), _SUFFIXES, _WAY_OUT)
    return [file for files in parts.values() for file in files]


@WORKLOADS.add
class Shakespeare(Workload):
    """Next character of plays by speaking role (LEAF's files or texts), or synthetic sentences, and LEAF's LSTM."""

    kind: ClassVar[str] = "shakespeare"
    has_owners: ClassVar[bool] = True
    lr: ClassVar[float] = 0.8
    batch_size: ClassVar[int] = 20
    local_epochs: ClassVar[int] = 1

    data: Annotated[PathName, Reads(unless="sentences", find=_all_files)] = Field("sentences", min_length=1)
    """`"sentences"`: synthetic text by made-up roles, no download; else a file, or a folder of files: LEAF's JSON (its
    folders `train` and `test` are used as they are; else every role is split by time), JSON of the form {"play/ROLE":
    text}, or plain text (.txt) in blocks of `ROLE:` and its lines. Each gzipped or not; several are put together."""
    predict: Literal["last", "every"] = "last"
    """Characters to predict from a window of 80. `last`: the one that follows it (LEAF); `every`: after each of the 80
    the next one, 80 predictions for the same work, in loss and accuracy (McMahan et al. 2017). The model is the
    same."""
    stride: int | None = Field(None, ge=1)
    """Characters from the start of one window to the next. None: 1 with `last` (LEAF's), 80 with `every`: every
    character is then predicted once."""
    min_characters: int = Field(WINDOW + 1, ge=WINDOW + 1)
    """Roles that speak fewer are left out. 81: those without a single window."""
    train_samples: int | None = Field(None, ge=1, le=100_000_000)
    """Number of training windows: a random subset drawn from the run's seed. None: all."""
    test_samples: int | None = Field(None, ge=1, le=100_000_000)
    """Number of test windows, likewise. None: all."""
    sentences: Sentences = Sentences()
    """Amount of synthetic text; ignored with data from files."""

    def resolve(self) -> Self:
        """With the stride that belongs to what is predicted."""
        return super().resolve().with_defaults(stride=1 if self.predict == "last" else WINDOW)

    def check_data(self) -> None:
        """The files, where the data are files."""
        if self.data != "sentences":
            leaf_json.parts(self._path(), _SUFFIXES, _WAY_OUT)

    def prepare_data(self, seed: int) -> None:
        """Cut the texts into windows in the cache, once per node. Raises InputError naming the file that is wrong."""
        self._folder(seed)

    def task(self, seed: int) -> Task:
        """The memory-mapped windows and the LSTM; prepares the data first where nobody has."""
        folder = self._folder(seed)
        train, test = cached.datasets(folder, "inputs", "labels", "groups")
        num_roles, left_out = cached.load(folder, "roles").tolist()
        synthetic = self.data == "sentences"
        origin = (
            "sentences (synthetic text, not Shakespeare's)" if synthetic else f"texts from {self._path()}"
        )
        short = (
            f" ({left_out:,} with fewer than {self.min_characters} characters left out)" if left_out else ""
        )
        return Task(
            train=train,
            test=test,
            num_classes=len(ALPHABET),
            build_model=partial(CharLSTM, len(ALPHABET), every=self.predict == "every"),
            prepare=torch.Tensor.long,
            loss=next_character_loss,
            source=f"{origin}: {num_roles:,} roles{short}, {len(train):,} training and {len(test):,} test windows",
            synthetic=synthetic,
            digests={"data": cached.digest_of(folder)},
        )

    def _path(self) -> Path:
        return Path(self.data).expanduser().resolve()

    def _folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        settings: dict[str, Any] = self.resolve().model_dump(exclude={"data", "sentences"})
        if self.data == "sentences":
            settings |= {"sentences (synthetic)": self.sentences.model_dump(), "version": VERSION}
            settings["seed"] = seed
            return cached.prepared("shakespeare", settings, lambda: self._arrays({}, seed))
        files = leaf_json.parts(self._path(), _SUFFIXES, _WAY_OUT)
        settings["files"] = {part: fingerprints(paths) for part, paths in files.items()}
        if self.train_samples or self.test_samples:
            settings["seed"] = seed
        return cached.prepared("shakespeare", settings, lambda: self._arrays(files, seed))

    def _arrays(self, files: dict[str, list[Path]], seed: int) -> dict[str, np.ndarray]:
        """`{part}_inputs` [num_windows, 80] uint8 and `{part}_labels` [num_windows] or [num_windows, 80] int64 of both
        parts, `{part}_groups` [num_windows] int64, and `roles`: how many there are, and how many were left out."""
        spoken = {part: read_windows(paths) for part, paths in files.items()} or {
            "all": {role: windows(encode(text)) for role, text in self.sentences.write(seed).items()}
        }
        whole = spoken["all"] if "all" in spoken else spoken["train"]
        long_enough = {role: cut for role, cut in whole.items() if len(cut) + WINDOW >= self.min_characters}
        if "all" in spoken:
            halves = [split_by_time(cut) for cut in long_enough.values()]
            by_part = {part: [half[i] for half in halves] for i, part in enumerate(PARTS)}
        else:
            by_part = {"train": list(long_enough.values()), "test": list(spoken["test"].values())}
        arrays = {"roles": np.array([len(long_enough), len(whole) - len(long_enough)])}
        stride = self.resolve().stride
        for part in PARTS:
            cuts = [cut[::stride] for cut in by_part[part]]
            num_windows = sum(map(len, cuts))
            if not num_windows:
                raise InputError(
                    "workload.data",
                    f"{self._path()} gives no {part} window of {WINDOW} characters and the next, of {len(whole):,} "
                    f"roles ({len(long_enough):,} with at least {self.min_characters} characters)",
                    "give longer texts, or lower workload.min_characters",
                )
            limit = self.train_samples if part == "train" else self.test_samples
            index = subset(self.kind, part, limit, num_windows, str(self.data), seed)
            both = np.concatenate(cuts)[index]
            arrays[f"{part}_inputs"] = np.ascontiguousarray(both[:, :WINDOW])
            arrays[f"{part}_labels"] = (both[:, 1:] if self.predict == "every" else both[:, WINDOW]).astype(
                np.int64
            )
            arrays[f"{part}_groups"] = np.repeat(np.arange(len(cuts)), [len(cut) for cut in cuts])[index]
        return arrays
