"""The emnist workload: 28x28 characters in up to 62 classes, and the small CNN (paper, Table 2).

The data are either the official EMNIST files (Cohen et al. 2017), read from a directory, or `glyphs`: synthetic
characters rendered on the spot, so that a first run needs no download.
"""

from __future__ import annotations

import string
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.config.plugins import CodeName
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached
from hpctrip.learn.data.files import read_idx
from hpctrip.learn.data.glyphs import CHARACTERS, IMAGE_SIZE, MOST_GLYPHS, Glyphs, renderer
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, SampledWorkload, own_model

if TYPE_CHECKING:
    import torch

MEAN, STD = 0.1736, 0.3317
"""Mean and deviation of the pixels of EMNIST by-class, as fractions of white; used for every data source, so that one
model fits all."""

_MERGED = "CIJKLMOPSUVWXYZ"  # letters whose two cases look alike: one class each in bymerge and balanced
_BYMERGE = (
    *string.digits,
    *(c + c.lower() if c in _MERGED else c for c in string.ascii_uppercase),
    *(c for c in string.ascii_lowercase if c.upper() not in _MERGED),
)
SPLITS: dict[str, tuple[str, ...]] = {
    "byclass": tuple(CHARACTERS),
    "bymerge": _BYMERGE,
    "balanced": _BYMERGE,
    "letters": tuple(c + c.lower() for c in string.ascii_uppercase),
    "digits": tuple(string.digits),
    "mnist": tuple(string.digits),
}
"""The official splits: the characters that each label stands for."""

_FIRST_LABEL = {"letters": 1}  # the files of this split count from 1, all others from 0
# where no limit is given: as many as MNIST
_GLYPHS_SAMPLES = {"train_samples": 60_000, "test_samples": 10_000}
MODELS = {"light": (3, (16, 32), 128), "leaf": (5, (32, 64), 512)}


def _all_files(data: str) -> list[Path]:
    """The files of all splits, sorted."""
    return sorted(Path(data).glob("emnist-*-*-ubyte*"))


class CharacterImages(SampledWorkload):
    """Base of the workloads of 28x28 images of characters, which a small CNN classifies."""

    lr: ClassVar[float] = 0.01
    batch_size: ClassVar[int] = 20

    model: Literal["light", "leaf"] | CodeName = "light"
    """`light`: 3x3 convolutions with 16 and 32 channels, 128 hidden units (0.21 M parameters with 62 classes); `leaf`:
    5x5, 32 and 64 channels, 512 hidden units (1.69 M), the model of LEAF (Caldas et al. 2018) on 28x28;
    `"file.py:Name"`: your own class or function; Name(num_classes) returns a model, which takes [B, 1, 28, 28]."""

    def cnn_task(self, folder: Path, train: Dataset, test: Dataset, num_classes: int, about: str) -> Task:
        """The task of the CNN on these sets of a prepared folder; `about` describes them, besides their sizes."""
        import torch.nn.functional as F

        from hpctrip.learn.models.cnn import CNN

        own = own_model(self.model, num_classes)
        return Task(
            train=train,
            test=test,
            num_classes=num_classes,
            build_model=own or partial(CNN, *MODELS[self.model], num_classes=num_classes),
            prepare=normalise,
            loss=F.cross_entropy,
            source=f"{self.origin}: {about}, {len(train):,} training and {len(test):,} test samples",
            synthetic=self.synthetic,
            digests={"data": cached.digest_of(folder)},
        )


@WORKLOADS.add
class Emnist(CharacterImages):
    """Handwritten characters (EMNIST), or synthetic glyphs in the same layout, and a small CNN."""

    kind: ClassVar[str] = "emnist"
    embedded: ClassVar[str] = "glyphs"
    origins: ClassVar[tuple[str, str]] = (
        "glyphs (synthetic characters rendered from fonts, not EMNIST)",
        "files in EMNIST's format",
    )
    has_owners: ClassVar[bool] = False

    data: Annotated[PathName, Reads(unless=("glyphs",), find=_all_files)] = Field("glyphs", min_length=1)
    """`"glyphs"`: synthetic characters rendered from fonts, no download; otherwise the directory of the official files
    `emnist-<split>-{train,test}-{images-idx3,labels-idx1}-ubyte`, gzipped or not."""
    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "byclass"
    """EMNIST's official split: 62, 47, 47, 26, 10, 10 classes. With glyphs it selects the characters and merges the
    same cases, with the frequencies of `glyphs.frequencies`."""
    glyphs: Glyphs = Glyphs()
    """Drawing of the synthetic glyphs, by default 60,000 to train on and 10,000 to test on, at most 10 million; ignored
    with data from a directory."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        most = max(self.train_samples or 0, self.test_samples or 0)
        if self.synthetic and most > MOST_GLYPHS:
            raise ValueError(f"{most:,} samples are asked for, but at most {MOST_GLYPHS:,} glyphs are drawn")
        return self

    def resolve(self) -> Self:
        """With the default number of glyphs where the input sets none."""
        return super().resolve().with_defaults(**(_GLYPHS_SAMPLES if self.synthetic else {}))

    def check_data(self) -> None:
        """The four files of the split, where the data are files."""
        if not self.synthetic:
            self._files()

    def task(self, seed: int) -> Task:
        """The memory-mapped data and the CNN; prepares the data first where the cache lacks it."""
        folder = self.folder(seed)
        train, test = cached.datasets(folder, "images", "labels")
        return self.cnn_task(folder, train, test, len(SPLITS[self.split]), self.split)

    def folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        resolved = self.resolve()
        limits = [resolved.train_samples, resolved.test_samples]
        settings: dict[str, Any] = {"split": self.split, "limits": limits}
        if self.synthetic:
            settings |= {"glyphs (synthetic)": self.glyphs.model_dump(), "renderer": renderer()}
            files = None
        else:
            files = self._files()
            settings["files"] = cached.content_of([*files.values()])
        if self.synthetic or any(limits):
            settings["seed"] = seed
        return cached.prepared("emnist", settings, lambda: self._arrays(files, seed))

    def _arrays(self, files: dict[str, Path] | None, seed: int) -> dict[str, np.ndarray]:
        """`{part}_images` [num_samples, 28, 28] uint8 and `{part}_labels` [num_samples] int64 for both parts."""
        arrays = {}
        for part in cached.PARTS:
            images, labels = self._read(files, part, seed) if files else self._drawn(part, seed)
            arrays |= {f"{part}_images": images, f"{part}_labels": labels.astype(np.int64)}
        return arrays

    def _drawn(self, part: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of synthetic glyphs."""
        num_samples = getattr(self.resolve(), f"{part}_samples")
        classes = SPLITS[self.split]
        label_of = {character: label for label, characters in enumerate(classes) for character in characters}
        images, characters = self.glyphs.draw(num_samples, seed, part, among="".join(classes))
        return images, np.array([label_of.get(character, -1) for character in CHARACTERS])[characters]

    def _read(self, files: dict[str, Path], part: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Images, upright, and labels counted from 0, of the official files; a random subset where a limit asks so."""
        image_file, label_file = files[f"{part}-images-idx3"], files[f"{part}-labels-idx1"]
        images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
        first, num_classes = _FIRST_LABEL.get(self.split, 0), len(SPLITS[self.split])
        if images.shape != (len(labels), IMAGE_SIZE, IMAGE_SIZE):
            raise InputError(
                str(image_file),
                f"images of shape {list(images.shape)}, expected {[len(labels), IMAGE_SIZE, IMAGE_SIZE]}",
                f"use EMNIST's files, and images and labels of the same set ({label_file.name} has {len(labels):,})",
            )
        outside = np.flatnonzero((labels < first) | (labels >= first + num_classes))
        if len(outside):
            raise InputError(
                str(label_file),
                f"label {labels[outside[0]]} of sample {outside[0]:,}; {self.split} has {first} to "
                f"{first + num_classes - 1}",
                "are these the files of another split?",
            )
        rows = self.subset(part, len(labels), str(label_file), seed)
        # EMNIST stores every image transposed (it was exported column by column).
        return np.ascontiguousarray(images[rows].transpose(0, 2, 1)), labels[rows] - np.uint8(first)

    def _files(self) -> dict[str, Path]:
        """The four files of the split, e.g. under the key "train-images-idx3". InputError names missing ones."""
        hint = (
            f'fetch them with `python -m hpctrip fetch emnist {self.data}`, or set workload.data = "glyphs"'
        )
        if not self.path.is_dir():
            raise InputError("workload.data", f"there is no directory {self.path}", hint)
        files, missing = {}, []
        for key in (f"{part}-{array}" for part in cached.PARTS for array in ("images-idx3", "labels-idx1")):
            name = f"emnist-{self.split}-{key}-ubyte"
            paths = [path for path in (self.path / name, self.path / f"{name}.gz") if path.is_file()]
            if paths:
                files[key] = paths[0]
            else:
                missing.append(f"{name}[.gz]")
        if missing:
            others = sorted({path.name.split("-")[1] for path in _all_files(self.data)} - {self.split})
            held = f" (it has files of the splits {', '.join(others)})" if others else ""
            raise InputError("workload.data", f"{self.path} lacks {', '.join(missing)}{held}", hint)
        return files


def normalise(images: torch.Tensor) -> torch.Tensor:
    """uint8 [B, 28, 28] -> float32 [B, 1, 28, 28] with mean 0 and variance 1 over EMNIST by-class."""
    return images.unsqueeze(1).float().mul_(1 / (255 * STD)).sub_(MEAN / STD)
