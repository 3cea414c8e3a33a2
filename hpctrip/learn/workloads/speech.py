"""The speech workload: Speech Commands v2 (Warden 2018), one spoken word a second, and KWT-1 (paper, Table 2).

The data are the published clips, read from a folder or an archive, or `chirps`: synthetic words of synthetic speakers,
so that a first run needs no download.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.config.identity import Added
from hpctrip.config.plugins import CodeName
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached, speech
from hpctrip.learn.data.chirps import Chirps
from hpctrip.learn.task import Task
from hpctrip.learn.workloads.base import WORKLOADS, SampledWorkload, own_model

_VERSION = 1  # of the prepared data: raise it with any change that alters them


@WORKLOADS.add
class Speech(SampledWorkload):
    """Spoken words (Speech Commands v2), or synthetic chirps, as MFCCs, and the Keyword Transformer KWT-1."""

    kind: ClassVar[str] = "speech"
    embedded: ClassVar[str] = "chirps"
    origins: ClassVar[tuple[str, str]] = (
        "chirps (synthetic words of synthetic speakers, not Speech Commands)",
        "files in Speech Commands' layout",
    )
    has_owners: ClassVar[bool] = True
    lr: ClassVar[float] = 0.001
    batch_size: ClassVar[int] = 16
    optimizer: ClassVar[Literal["adamw"]] = "adamw"
    weight_decay: ClassVar[float] = 0.1  # of KWT; the paper's Table 2 states none

    data: Annotated[PathName, Reads(unless=("chirps",), find=speech.clip_files)] = Field(
        "chirps", min_length=1
    )
    """`"chirps"`: synthetic words of synthetic speakers, no download; otherwise a folder of
    `word/speaker_nohash_n.wav` (or .flac), or a tar archive of one, compressed or not."""
    words: list[str] | None = Field(None, min_length=2)
    """The words to recognise; they are the classes in this order, and clips of other words are omitted. Absent: all
    words, sorted (35 in the whole set)."""
    split: Literal["official", "speaker"] = "official"
    """`official`: tested on the clips in testing_list.txt, trained on those in neither list; `speaker`: all clips are
    used, `test_fraction` of the speakers, drawn from the run's seed, is held out for testing. In both, no speaker is
    on both sides. Chirps are always split by speaker."""
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Share of speakers held out if the split is by speaker."""
    client_map: Annotated[PathName | None, Reads()] = Field(None, min_length=1)
    """A CSV file with the columns `file` (word_speaker_nohash_n.wav) and `client`, gzipped or not: the natural owner
    of a training clip is then its client; clips without one are omitted. Absent: the owner is the speaker."""
    model: Added[Literal["kwt"] | CodeName] = "kwt"
    """`kwt`: the Keyword Transformer; `"file.py:Name"`: your own class or function: Name(num_classes) returns a
    model of inputs [B, 98, 40]: 40 coefficients of 98 frames."""
    depth: int = Field(12, ge=1, le=24)
    """Number of transformer blocks of `kwt`: 12 is KWT-1; fewer train faster, but are another model."""
    chirps: Chirps = Chirps()
    """Synthesis of the synthetic words; ignored with data from files."""

    def check_data(self) -> None:
        """The folder or archive, and the client map, where they are named."""
        if not self.synthetic:
            hint = 'fetch it with `python -m hpctrip fetch speech DIR`, or set workload.data = "chirps"'
            _require("workload.data", self.path, hint)
        if self.client_map is not None:
            hint = "give a CSV file with the columns file and client"
            _require("workload.client_map", Path(self.client_map).resolve(), hint)

    def task(self, seed: int) -> Task:
        """The memory-mapped features and KWT-1; prepares the data first where the cache lacks it."""
        import torch
        import torch.nn.functional as F

        from hpctrip.learn.models.kwt import KWT

        folder = self.folder(seed)
        train, test = cached.datasets(folder, "inputs", "labels", "groups")
        num_classes = len(cached.load(folder, "words"))
        (note,) = cached.load(folder, "note").tolist()
        owners = f"{len(np.unique(train.groups)):,} {'clients' if self.client_map else 'speakers'}"
        return Task(
            train=train,
            test=test,
            num_classes=num_classes,
            build_model=own_model(self.model, num_classes) or partial(KWT, num_classes, self.depth),
            prepare=torch.Tensor.float,
            loss=F.cross_entropy,
            source=f"{self.origin}: {num_classes} words, {len(train):,} training clips of {owners}, {len(test):,} test "
            f"clips of other speakers{note}",
            synthetic=self.synthetic,
            digests={"data": cached.digest_of(folder)},
        )

    def folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        self.check_data()
        settings: dict[str, Any] = {
            "version": _VERSION,
            "words": self.words,
            "limits": [self.train_samples, self.test_samples],
        }
        if self.synthetic:
            settings |= {"chirps (synthetic)": self.chirps.model_dump()}
        else:
            settings |= {"source": str(self.path), "split": self.split}
            settings["files"] = cached.content_of(speech.clip_files(self.data))
        if self._by_speaker:
            settings["test_fraction"] = self.test_fraction
        if self.client_map is not None:
            settings["client_map"] = cached.content_of([Path(self.client_map)])
        if self._by_speaker or settings["limits"] != [None, None]:
            settings["seed"] = seed
        return cached.prepared("speech", settings, lambda: self._arrays(seed))

    def _arrays(self, seed: int) -> dict[str, np.ndarray]:
        """For both parts `{part}_inputs` [num_samples, 98, 40] float16, `{part}_labels` and `{part}_groups`
        [num_samples] int64; then `words`, `note`, and what `_standardised` adds."""
        clips = (
            self.chirps.draw(self.words, seed) if self.synthetic else speech.read_clips(self.path, self.words)
        )
        words = self.words or sorted({speech.word_of(name) for name in clips.names})
        labels = np.array([words.index(speech.word_of(name)) for name in clips.names])
        owners, unowned = speech.owners_of(clips.names, self.client_map)
        parts, absent = self._parts(clips, seed)
        parts["train"] &= owners >= 0
        arrays = {"words": np.array(words), "note": np.array([unowned + absent])}
        for part, mask in parts.items():
            rows = self._rows(part, mask, clips.names, seed)
            arrays[f"{part}_inputs"] = clips.features[rows]
            arrays[f"{part}_labels"], arrays[f"{part}_groups"] = labels[rows], owners[rows]
        return arrays | _standardised(arrays["train_inputs"], arrays["test_inputs"])

    @property
    def _by_speaker(self) -> bool:
        return self.synthetic or self.split == "speaker"

    def _parts(self, clips: speech.Clips, seed: int) -> tuple[dict[str, np.ndarray], str]:
        """For both parts [num_clips] bool, which clips are in it, and a note on listed clips that are absent."""
        if self._by_speaker:
            speakers = np.unique([speech.speaker_of(name) for name in clips.names])
            num_held = max(1, round(self.test_fraction * len(speakers)))
            held = set(stream(seed, "speech/held_out").permutation(speakers)[:num_held].tolist())
            is_test = np.array([speech.speaker_of(name) in held for name in clips.names])
            return {"train": ~is_test, "test": is_test}, ""
        return speech.official_parts(clips, str(self.path))

    def _rows(self, part: str, mask: np.ndarray, names: list[str], seed: int) -> np.ndarray:
        """The clips of a part in an order that mixes words and depends on the names alone, a random subset where a
        limit asks so."""
        rows = np.flatnonzero(mask)
        if not len(rows):
            raise InputError(
                f"workload.split = {self.split!r}",
                f"leaves no clip for the {part} part, of {len(names):,} in {self.data}",
                "use the other split, or other words",
            )
        rows = rows[self.subset(part, len(rows), self.data, seed)]
        return np.array(sorted(rows, key=lambda row: hashlib.blake2b(names[row].encode()).digest()))


def _standardised(train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs [n, 98, 40] of both parts, float32 and changed in place, as float16, and the `mean` and `deviation`
    [40] that they were freed of.

    Every coefficient is standardised over all training clips, which the first linear layer could undo: KWT's released
    code leaves them as they are, but their scales differ by two orders.
    """
    mean = train.mean((0, 1), dtype=np.float64).astype(np.float32)
    deviation = train.std((0, 1), dtype=np.float64).clip(1e-6).astype(np.float32)
    arrays = {"mean": mean, "deviation": deviation}
    for part, inputs in (("train", train), ("test", test)):
        inputs -= mean
        inputs /= deviation
        arrays[f"{part}_inputs"] = inputs.astype(np.float16)
    return arrays


def _require(key: str, path: Path, hint: str) -> None:
    """Raises InputError where there is nothing at the path that an input key names."""
    if not (path.is_file() or path.is_dir()):  # reading a pipe or a device may never end
        raise InputError(key, f"there is no file or folder {path}", hint)
