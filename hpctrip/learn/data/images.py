"""Images of the user's own, decoded by Pillow: a folder with a folder for each class, or a CSV file that names them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
_PARTS = {
    "train": ("train", "training"),
    "test": ("test", "testing", "val", "valid", "validation", "eval", "evaluation", "dev", "holdout"),
}
"""The usual names of the folders, in any case; of several the first counts."""
_LAYOUT = (
    "give a folder with a folder of images for each class, or a CSV file with the columns path and label"
)


def image_files(data: str) -> list[Path]:
    """All files that images are read from, the CSV file among them. InputError where there are none."""
    path = Path(data)
    if path.is_file():
        return [path, *paths_in(path, image_table(path))]
    return [file for folder in parts_of(path).values() for file, _ in in_class_folders(folder)]


def parts_of(folder: Path) -> dict[str, Path]:
    """{"train": its folder, "test": its folder}, by their usual names, or {"all": the folder} where it has not both."""
    found = {path.name.lower(): path for path in _folders(folder)} if folder.is_dir() else {}
    names = {part: next(filter(found.get, usual), "") for part, usual in _PARTS.items()}
    return {part: found[name] for part, name in names.items()} if all(names.values()) else {"all": folder}


def in_class_folders(folder: Path) -> list[tuple[Path, str]]:
    """(image, name of the folder that it lies in or below) of all class folders, sorted; links are followed, what is
    hidden is left out. InputError where there are none, an image is there twice, or classes cannot be told."""
    if not folder.is_dir():
        raise InputError("workload.data", f"there is no file or folder {folder}", _LAYOUT)
    images = [(file, label.name) for label in _folders(folder) for file in _images_below(label)]
    if not images:
        raise InputError("workload.data", f"{folder} has no folders with images", _LAYOUT)
    twice = _repeated([file for file, _ in images])
    if twice.any():
        problem = f"{images[twice.argmax()][0]} is an image that is in {folder} already, by a link"
        raise InputError("workload.data", problem, "take one of them out")
    below: dict[str, set[str]] = {}
    for parent, label in {(file.parent, label) for file, label in images}:
        below.setdefault(label, set()).add(str(parent.relative_to(folder / label)).partition("/")[0])
    names, *others = below.values()
    if others and len(names) > 1 and "." not in names and all(each == names for each in others):
        problem = f"the folders of {folder} hold folders of the same names, {', '.join(sorted(names)[:5])}"
        raise InputError("workload.data", f"{problem}: either may be the classes", _LAYOUT)
    return images


def _visible(folder: Path) -> list[Path]:
    """What a folder holds, sorted, without what is hidden. InputError where it cannot be read, or a link leads
    nowhere."""
    try:
        visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InputError(str(folder), f"cannot be read ({error.strerror})", "check the permissions") from None
    for path in visible:
        if not path.exists():
            raise InputError(str(path), "is a link that leads nowhere", "repair it, or take it out")
    return visible


def _folders(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.is_dir()]


def _images_below(folder: Path) -> list[Path]:
    """The images in a folder and those below it, sorted; each folder once, though links may lead to it again."""
    images, seen, left = list[Path](), set[str](), [folder]
    while left:
        if (real := os.path.realpath(path := left.pop())) not in seen:
            seen.add(real)
            inside = _visible(path)
            left += [each for each in inside if each.is_dir()]
            images += [each for each in inside if each.suffix.lower() in _SUFFIXES and each.is_file()]
    return sorted(images)


def _repeated(files: Sequence[Path]) -> np.ndarray:
    """[n] whether each of the files is in the list before, perhaps by another path or a link."""
    folders = {folder: os.path.realpath(folder) for folder in {file.parent for file in files}}
    real = [
        os.path.realpath(file) if file.is_symlink() else f"{folders[file.parent]}/{file.name}"
        for file in files
    ]
    first: dict[str, int] = {}
    return np.array([first.setdefault(path, number) < number for number, path in enumerate(real)], bool)


def image_table(path: Path) -> Table:
    """The CSV file of images, with the columns path and label."""
    place = f"workload.data = {str(path)!r}"
    if path.suffix in (".npz", ".npy"):
        raise InputError(place, "has arrays, not a table of image files", 'set workload.kind = "arrays"')
    table = read_table(path, place)
    table.require("path", "label")
    return table


def paths_in(path: Path, table: Table) -> list[Path]:
    """The images that a CSV file names, relative to its folder. InputError names the first that is not there."""
    files = [path.parent / name for name in table.texts("path")]
    table.refuse("path", np.array([not file.is_file() for file in files], bool), "is not a file")
    table.refuse("path", _repeated(files), "is an image that is listed above already", "take the line out")
    return files


def decoded(files: Sequence[Path], side: int, channels: int) -> np.ndarray:
    """[n, channels, side, side] uint8: the images upright, cut to a square in the middle and scaled."""
    images = np.empty((len(files), channels, side, side), np.uint8)
    for image, pixels in zip(images, _pixels(files, side, "L" if channels == 1 else "RGB"), strict=True):
        image[:] = pixels.reshape(side, side, channels).transpose(2, 0, 1)
    return images


def _pixels(files: Sequence[Path], side: int, mode: str) -> Iterator[np.ndarray]:
    from PIL import Image, ImageOps  # only where images are decoded

    for file in files:
        try:
            with Image.open(file) as image:
                yield np.asarray(ImageOps.fit(ImageOps.exif_transpose(image).convert(mode), (side, side)))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            problem = f"is not an image that Pillow reads ({error})"
            raise InputError(str(file), problem, "repair it, or take it out") from None
