"""The femnist workload: emnist's task and model on LEAF's FEMNIST files (Caldas et al. 2018), one writer = one owner.

Embedded data are synthetic glyphs, drawn by writers with a hand of their own, so that a first run needs no download.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.text import shown
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached, files
from hpctrip.learn.data.glyphs import CHARACTERS, IMAGE_SIZE, Writers, renderer
from hpctrip.learn.task import Task
from hpctrip.learn.workloads.base import WORKLOADS
from hpctrip.learn.workloads.emnist import CharacterImages

TRAIN_FRACTION = 0.9  # of each writer's samples, the default of LEAF's scripts
_FILES = {
    "suffixes": (".json",),
    "hint": 'make them with LEAF\'s data/femnist/preprocess.sh, or set workload.data = "glyphs"',
}
_Page = tuple[np.ndarray, np.ndarray]
"""A writer's images [n, 28, 28] uint8, white on black, and labels [n]."""


@WORKLOADS.add
class Femnist(CharacterImages):
    """Handwritten characters by writer (LEAF's FEMNIST files), or synthetic writers, and the CNN of emnist."""

    kind: ClassVar[str] = "femnist"
    embedded: ClassVar[str] = "glyphs"
    origins: ClassVar[tuple[str, str]] = (
        "glyphs (synthetic characters by synthetic writers, not FEMNIST)",
        "files in LEAF's format",
    )
    has_owners: ClassVar[bool] = True

    data: Annotated[PathName, Reads(unless=("glyphs",), find=partial(files.all_parts, **_FILES))] = Field(
        "glyphs", min_length=1
    )
    """`"glyphs"`: synthetic characters by synthetic writers, no download; otherwise a JSON file of LEAF, gzipped or
    not, or a folder of them. Folders `train` and `test` define the split; without them, a random nine tenths of each
    writer's samples, by the run's seed, are training samples."""
    glyphs: Writers = Writers()
    """Writers of the synthetic glyphs; ignored with data from files."""

    def task(self, seed: int) -> Task:
        """The memory-mapped data and the CNN; prepares the data first where the cache lacks it."""
        folder = self.folder(seed)
        train, test = cached.datasets(folder, "images", "labels", "groups")
        writers = f"{len(np.unique(train.groups)):,} writers"
        return self.cnn_task(folder, train, test, len(CHARACTERS), writers)

    def folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        settings: dict[str, Any] = {"limits": [self.train_samples, self.test_samples]}
        paths: dict[str, list[Path]] = {}
        if self.synthetic:
            settings |= {"glyphs (synthetic)": self.glyphs.model_dump(), "renderer": renderer()}
        else:
            paths = files.by_part(self.path, **_FILES)
            settings["files"] = {part: cached.content_of(of_part) for part, of_part in paths.items()}
            settings |= {"owners": "by name"} if any(len(of_part) > 1 for of_part in paths.values()) else {}
        if "train" not in paths or settings["limits"] != [None, None]:
            settings["seed"] = seed
        return cached.prepared("femnist", settings, lambda: self._arrays(paths, seed))

    def _arrays(self, paths: dict[str, list[Path]], seed: int) -> dict[str, np.ndarray]:
        """`{part}_images` [num_samples, 28, 28] uint8, `{part}_labels` and `{part}_groups` [num_samples] int64."""
        if "train" in paths:
            by_part = {part: _read(paths[part]) for part in cached.PARTS}
        else:
            pages = _read(paths["all"]) if paths else self.glyphs.pages(seed)
            halves = [_split(page, stream(seed, "femnist/split", i)) for i, page in enumerate(pages)]
            by_part = {part: [half[i] for half in halves] for i, part in enumerate(cached.PARTS)}
        arrays = {}
        for part in cached.PARTS:
            if not any(len(labels) for _, labels in by_part[part]):
                raise InputError("workload.data", f"{self.path} has no {part} samples", "give more data")
            images, labels = map(np.concatenate, zip(*by_part[part], strict=True))
            rows = self.subset(part, len(labels), self.data, seed)
            groups = np.repeat(np.arange(len(by_part[part])), [len(page[1]) for page in by_part[part]])
            arrays |= {f"{part}_images": images[rows], f"{part}_labels": labels[rows].astype(np.int64)}
            arrays[f"{part}_groups"] = groups[rows]
        return arrays


def _split(page: _Page, rng: np.random.Generator) -> tuple[_Page, _Page]:
    """A writer's samples to train on, and those to test on, in random order."""
    images, labels = page
    order = rng.permutation(len(labels))
    num_train = int(np.ceil(TRAIN_FRACTION * len(labels)))
    (first, second) = order[:num_train], order[num_train:]
    return (images[first], labels[first]), (images[second], labels[second])


def _read(paths: Iterable[Path]) -> list[_Page]:
    """The writers of LEAF's files, in the order in which they come; the pages of one in several files are joined."""
    by_writer: dict[str, list[_Page]] = {}
    for name, page in _pages(paths):
        by_writer.setdefault(name, []).append(page)
    return [tuple(map(np.concatenate, zip(*pages, strict=True))) for pages in by_writer.values()]


def _pages(paths: Iterable[Path]) -> Iterator[tuple[str, _Page]]:
    """Names and pages in LEAF's files. LEAF's pixels go from 0 (ink) to 1 (paper), EMNIST's from 0 (paper) to 255."""
    for path in paths:
        for name, user in files.leaf_users(path, files.json_object(path, files.read_text(path))):
            try:
                with np.errstate(over="ignore"):  # refused below
                    paper = np.array(user.x, np.float32).reshape(len(user.x), IMAGE_SIZE**2)
            except (ValueError, TypeError, OverflowError):
                raise files.leaf_fault(path, name, f"a sample is not {IMAGE_SIZE**2} numbers") from None
            if not ((paper >= 0) & (paper <= 1)).all():
                raise files.leaf_fault(path, name, "pixels below 0 (ink) or above 1 (paper)")
            for label in user.y:
                if type(label) is not int or not 0 <= label < len(CHARACTERS):
                    problem = f"label {shown(label)}, expected 0 to {len(CHARACTERS) - 1}"
                    raise files.leaf_fault(path, name, problem)
            images = np.rint(255 * (1 - paper)).astype(np.uint8).reshape(-1, IMAGE_SIZE, IMAGE_SIZE)
            yield name, (images, np.array(user.y, np.int64))
