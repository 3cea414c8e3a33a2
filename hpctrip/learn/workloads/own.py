"""Workloads on data of the user's own: images in folders or a table, and arrays. The model may be the user's, too."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName, digest
from hpctrip.base.rng import stream
from hpctrip.config.plugins import CodeName, code_name, named_code, user_code
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached
from hpctrip.learn.data.images import decoded, image_files, image_table, in_class_folders, parts_of, paths_in
from hpctrip.learn.samples import check_alike, check_classes, check_names, only_in_test
from hpctrip.learn.task import Task
from hpctrip.learn.workloads.base import WORKLOADS, SampledWorkload, own_model
from hpctrip.learn.workloads.emnist import MODELS

if TYPE_CHECKING:
    import torch
    from torch import nn


class Samples(NamedTuple):
    """Samples as they are read."""

    inputs: np.ndarray
    """[n, ...], or the files [n] of images."""
    labels: np.ndarray
    """[n] texts or whole numbers."""
    owners: np.ndarray | None = None
    """[n] texts or whole numbers, where the data have natural owners."""

    def rows(self, rows: np.ndarray) -> Samples:
        """Some of the samples."""
        return Samples(*(None if values is None else values[rows] for values in self))


class OwnData(SampledWorkload):
    """Base of the workloads on the user's own data: classes are the different labels, sorted."""

    embedded: ClassVar[str] = ""
    lr: ClassVar[float] = 0.01
    batch_size: ClassVar[int] = 20

    owner: str | None = None
    """Column or array with the owner of each training sample, for partition.kind = "natural"."""
    test_fraction: float = Field(0.1, gt=0, lt=1)
    """Share of the samples that is held out, at random by the run's seed, if the data have no test set."""

    @property
    def origin(self) -> str:
        """Description of the data."""
        return f"{self.kind} from {self.data}"

    def read(self) -> dict[str, Samples]:
        """The samples "train" and "test", or all of them under "all". Raises InputError that names the file."""
        raise NotImplementedError

    def checked(self) -> dict[str, Samples]:
        """`read`, checked. Raises InputError as the checks of `learn.samples`."""
        parts, place = self.read(), f"workload.data = {self.data!r}"
        check_classes({name: part.labels for name, part in parts.items()}, place)
        check_alike([part.inputs for part in parts.values()], place)
        for part in parts.values():
            if part.owners is not None:
                check_names(part.owners, place, "owners")
        return parts

    def decode(self, inputs: np.ndarray) -> np.ndarray:
        """The inputs [n, ...] of samples that were read."""
        return inputs

    def described_data(self) -> str:
        """The numbers of samples and classes."""
        parts = self.checked()
        sizes = {name: len(part.labels) for name, part in parts.items()}
        num_samples, noun = sum(sizes.values()), "images" if self.kind == "images" else "samples"
        num_classes = len(np.unique(np.concatenate([part.labels for part in parts.values()])))
        if "all" in sizes:
            test = round(self.test_fraction * num_samples)
            sizes = {"train": num_samples - test, "test": test}
        train, test = (min(sizes[part], getattr(self, f"{part}_samples") or sizes[part]) for part in sizes)
        return f"{num_samples} {noun}, {num_classes} classes; {train} to train on, {test} to test on"

    def content(self) -> str:
        """The digest of what `read` depends on."""
        raise NotImplementedError

    def network(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """hpctrip's own model for samples of this shape."""
        raise NotImplementedError

    def folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        settings = self.model_dump(exclude={"data", "model"}) | {"content": self.content(), "seed": seed}
        settings["checks"] = 1  # raise it with the checks: arrays that were prepared before are checked, too
        return cached.prepared(self.kind, settings, lambda: self._arrays(seed))

    def _arrays(self, seed: int) -> dict[str, np.ndarray]:
        """`{part}_inputs` [n, ...], `{part}_labels` [n] int64, perhaps `{part}_groups` [n] int64, and `classes`."""
        parts = self.checked()
        if "all" in parts:
            order = stream(seed, f"{self.kind}/split").permutation(len(parts["all"].labels))
            num_test = round(self.test_fraction * len(order))
            rows = {"train": order[num_test:], "test": order[:num_test]}
            parts = {part: parts["all"].rows(np.sort(of_part)) for part, of_part in rows.items()}
        classes, arrays = np.unique(np.concatenate([part.labels for part in parts.values()])), {}
        for name, part in parts.items():
            if not len(part.labels):
                raise InputError("workload.data", f"{self.data} leaves no {name} samples", "give more data")
            samples = part.rows(self.subset(name, len(part.labels), self.data, seed))
            arrays[f"{name}_inputs"] = self.decode(samples.inputs)
            arrays[f"{name}_labels"] = np.searchsorted(classes, samples.labels).astype(np.int64)
            if parts["train"].owners is not None:
                owners = (
                    samples.labels if samples.owners is None else samples.owners
                )  # of a test set: not used
                arrays[f"{name}_groups"] = np.unique(owners, return_inverse=True)[1].astype(np.int64)
        return arrays | {"classes": classes.astype(str)}

    def task(self, seed: int) -> Task:
        """The memory-mapped data and the model; prepares the data first where the cache lacks it."""
        import torch.nn.functional as F

        folder = self.folder(seed)
        has_owners = (folder / "train_groups.npy").exists()
        train, test = cached.datasets(folder, "inputs", "labels", *(["groups"] if has_owners else []))
        classes = cached.load(folder, "classes")
        names = ", ".join(classes[:5].tolist()) + (", ..." if len(classes) > 5 else "")
        counts = f"{len(train):,} training and {len(test):,} test samples"
        only = only_in_test(train.labels, test.labels, classes)
        counts += f"; only in the test set: {only}" if only else ""
        built = partial(self.network, train.inputs.shape[1:], len(classes))
        return Task(
            train=train,
            test=test,
            num_classes=len(classes),
            build_model=own_model(self.model, len(classes)) or built,
            prepare=_scaled,
            loss=F.cross_entropy,
            source=f"{self.origin}: {len(classes)} classes ({names}), {counts}",
            digests={"data": cached.digest_of(folder)},
        )


def _scaled(inputs: torch.Tensor) -> torch.Tensor:
    """Bytes as numbers from -1 to 1, others as they are."""
    return inputs.float() if inputs.is_floating_point() else inputs.float() / 127.5 - 1


@WORKLOADS.add
class Images(OwnData):
    """Your own images: a folder with a subfolder per class, or a CSV file with the columns path and label."""

    kind: ClassVar[str] = "images"
    data: Annotated[PathName, Reads(find=image_files)] = Field(min_length=1)
    """A folder whose subfolders are the classes, optionally below `train` and `test` (or `val`); or a CSV file with the
    columns `path`, relative to its folder, `label`, and optionally that of `owner`."""
    image_size: int = Field(32, ge=8, le=1024)
    """Side length in pixels of the scaled images, which are cropped to a central square."""
    channels: Literal[1, 3] = 3
    """3: colours, 1: grey."""
    model: Literal["light", "leaf"] | CodeName = "light"
    """The CNN of emnist for images of this size and number of channels, or `"file.py:Name"`: your own class or
    function; Name(num_classes) returns a model, which takes [B, channels, image_size, image_size] from -1 to 1."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: parts of other names than `train` and `test` are no classes."""
        return 1 + (
            {path.name for path in parts_of(self.path).values()} not in ({"train", "test"}, {self.path.name})
        )

    def content(self) -> str:
        """The digest of all files, and the folders that all of them lie in, whose names the digest lacks: they may be
        the class."""
        files = image_files(self.data)
        shared = os.path.commonpath([os.path.abspath(file.parent) for file in files])
        return f"{cached.content_of(files)} {os.path.relpath(shared, self.data)}"

    def read(self) -> dict[str, Samples]:
        """The files of the images, with their labels and owners."""
        if self.path.is_file():
            table = image_table(self.path)
            owners = None if self.owner is None else np.array(table.texts(self.owner))
            files = np.array(paths_in(self.path, table))
            return {"all": Samples(files, np.array(table.texts("label")), owners)}
        if self.owner is not None:
            problem = f"{self.data} is a folder, in which images have no owners"
            raise InputError(
                f"workload.owner = {self.owner!r}", problem, "give a CSV file with such a column"
            )
        listed = {part: in_class_folders(folder) for part, folder in parts_of(self.path).items()}
        return {part: Samples(*map(np.array, zip(*images, strict=True))) for part, images in listed.items()}

    def decode(self, inputs: np.ndarray) -> np.ndarray:
        """Decode the images."""
        return decoded(inputs, self.image_size, self.channels)

    def network(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """The CNN."""
        from hpctrip.learn.models.cnn import CNN

        return CNN(*MODELS[self.model], num_classes, self.channels, self.image_size)


def _array_files(data: str) -> list[Path]:
    """The file of a function, the npz file, or the npy files of a folder. InputError where there are none."""
    path = Path(code_name(data)[0] if code_name(data) else data)
    files = sorted(path.glob("[!.]*.npy")) if path.is_dir() else [path] * path.is_file()
    if not files:
        hint = "give an .npz file, a folder of .npy files, or file.py:function"
        raise InputError("workload.data", f"there are no arrays at {path}", hint)
    return files


@WORKLOADS.add
class Arrays(OwnData):
    """Your own arrays with labels: NumPy files, or a torch Dataset from your own function."""

    kind: ClassVar[str] = "arrays"
    data: Annotated[PathName, Reads(find=_array_files)] = Field(min_length=1)
    """An .npz file, or a folder of .npy files, with the arrays `x` [n, ...] and `y` [n], or `x_train`, `y_train`,
    `x_test` and `y_test`; or `"file.py:function"`, which returns a torch Dataset of (x, y) or (x, y, owner), or a
    training and a test one. Every rank calls it."""
    model: Literal["mlp"] | CodeName = "mlp"
    """`mlp`: one hidden layer of 128 units; or `"file.py:Name"`: your own class or function; Name(num_classes) returns
    a model. It takes [B, ...] float32: bytes from -1 to 1, other numbers as they are."""

    def check_data(self) -> None:
        """The files; the function."""
        super().check_data()
        if code_name(self.data):
            named_code(self.data, "workload.data")

    def content(self) -> str:
        """The digest of the files, or of what the function makes."""
        if not code_name(self.data):
            return cached.content_of(_array_files(self.data))
        arrays = [array for part in self.read().values() for array in part if array is not None]
        return digest(
            b"".join(str((a.dtype, a.shape)).encode() + np.ascontiguousarray(a).tobytes() for a in arrays)
        )

    def read(self) -> dict[str, Samples]:
        """Load the arrays, or call the function."""
        if code_name(self.data):
            function = named_code(self.data, "workload.data")
            with user_code(f"workload.data = {self.data!r}", "fails"):
                made = function()
                sets = (
                    dict(zip(("train", "test"), made, strict=True))
                    if isinstance(made, tuple | list)
                    else {"all": made}
                )
                columns = {part: _collected(samples) for part, samples in sets.items()}
            return {part: self._checked(*arrays) for part, arrays in columns.items()}
        arrays = _loaded(_array_files(self.data))
        is_split = "x_train" in arrays
        ends = {"train": "_train", "test": "_test"} if is_split else {"all": ""}
        missing = [name + end for end in ends.values() for name in ("x", "y") if name + end not in arrays]
        missing += [
            name for name in [f"{self.owner}{next(iter(ends.values()))}"] if self.owner and name not in arrays
        ]
        if missing:
            problem = f"{self.data} has the arrays {', '.join(arrays)}, and not {', '.join(missing)}"
            raise InputError(
                "workload.data", problem, "name them x and y, or x_train, y_train, x_test and y_test"
            )
        names = ("x", "y", self.owner) if self.owner else ("x", "y")
        return {
            part: self._checked(*(arrays.get(name + end) for name in names)) for part, end in ends.items()
        }

    def _checked(self, inputs: np.ndarray, labels: np.ndarray, owners: np.ndarray | None = None) -> Samples:
        """The samples, bytes as they are and other numbers as float32. InputError where they are none."""
        place = f"workload.data = {self.data!r}"
        others = [labels] if owners is None else [labels, owners]
        if inputs.ndim < 2 or any(each.shape != inputs.shape[:1] for each in others):
            shapes = " and ".join(str(list(each.shape)) for each in (inputs, *others))
            raise InputError(place, f"holds arrays of shape {shapes}", "give x [n, ...] and y [n]")
        if any(each.dtype.kind not in "iuU" for each in others) or inputs.dtype.kind not in "biuf":
            types = " and ".join(str(each.dtype) for each in (inputs, *others))
            raise InputError(
                place, f"holds arrays of type {types}", "x must be numbers, y whole numbers or texts"
            )
        if inputs.dtype != np.uint8:
            inputs = inputs.astype(np.float32)
            if not np.isfinite(inputs).all():
                raise InputError(place, "holds x that is not finite", "fill the missing values")
        return Samples(inputs, labels, owners)

    def network(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """A perceptron with one hidden layer."""
        from torch import nn

        layers = nn.Linear(int(np.prod(shape)), 128), nn.ReLU(), nn.Linear(128, num_classes)
        return nn.Sequential(nn.Flatten(), *layers)


def _collected(samples: Any) -> list[np.ndarray]:
    """The arrays of inputs, labels and perhaps owners of a torch Dataset."""
    columns = zip(*(samples[i] for i in range(len(samples))), strict=True)
    return [np.stack([np.asarray(part) for part in column]) for column in columns]


def _loaded(files: list[Path]) -> dict[str, np.ndarray]:
    """The arrays of an npz file, or of npy files, by their names."""
    arrays = {}
    for file in files:
        try:
            loaded = np.load(file, allow_pickle=False)
            arrays |= {file.stem: loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        except (OSError, ValueError, EOFError, BadZipFile):
            raise InputError(
                str(file), "holds no arrays of numbers or texts", "write it with numpy.savez"
            ) from None
    return arrays
