"""Images of the user's own, decoded by Pillow: a folder with a folder for each class, or a CSV file that names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
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
    """{"train": its folder, "test": its folder}, or {"all": the folder} where it has not both."""
    parts = {part: folder / part for part in ("train", "test")}
    return parts if all(part.is_dir() for part in parts.values()) else {"all": folder}


def in_class_folders(folder: Path) -> list[tuple[Path, str]]:
    """(image, name of the folder that it lies in or below) of all class folders, sorted. InputError where there are
    none."""
    if not folder.is_dir():
        raise InputError("workload.data", f"there is no file or folder {folder}", _LAYOUT)
    images = [
        (file, label.name)
        for label in sorted(folder.iterdir())
        if label.is_dir() and not label.name.startswith(".")
        for file in sorted(label.rglob("*"))
        if file.suffix.lower() in _SUFFIXES and file.is_file()
    ]
    if not images:
        raise InputError("workload.data", f"{folder} has no folders with images", _LAYOUT)
    return images


def image_table(path: Path) -> Table:
    """The CSV file of images, with the columns path and label."""
    table = read_table(path, f"workload.data = {str(path)!r}")
    table.require("path", "label")
    return table


def paths_in(path: Path, table: Table) -> list[Path]:
    """The images that a CSV file names, relative to its folder. InputError names the first that is not there."""
    files = [path.parent / name for name in table.texts("path")]
    table.refuse("path", np.array([not file.is_file() for file in files], bool), "is not a file")
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
