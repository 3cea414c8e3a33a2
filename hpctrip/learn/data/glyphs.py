"""Glyphs: a synthetic stand-in for EMNIST, rendered from the fonts that matplotlib ships. No download needed.

62 characters (digits, upper case, lower case) in 21 fonts, each scaled as EMNIST scales handwriting (bounding box
into the middle of 28x28, aspect kept, so O, o and 0 are as easy to confuse), then distorted: rotation, slant, stretch,
shift, stroke thickness, a smooth elastic field, and noise. It is print, not handwriting: accuracies say how learning
proceeds, and must not be compared with EMNIST's. Training and test samples share the fonts and differ in the
distortions alone, so test accuracy does not measure generalisation to unseen writers. As a task: the light CNN (SGD,
lr 0.01, batch 20, 6,000 samples on one site) reaches 31, 54, 67, 75, 78 % after 1, 3, 5, 8, 11 epochs.

Each glyph is kept once per font as a signed distance field, so that a sample is one bilinear look-up through the
distorted coordinates, and thickness is one addition. Pixel values may differ in the last bit between versions of
Pillow (FreeType).

Shapes: G glyphs (font x character), F field size, S image size, B samples of one chunk.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.rng import stream
from hpctrip.config.component import Component
from hpctrip.learn.data.cached import load, prepared

if TYPE_CHECKING:
    from PIL import ImageFont

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes in the order of EMNIST by-class."""

FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10"),
)
"""The fonts of matplotlib that draw all 62 characters (the others there hold symbols; cmmi10 has old-style digits)."""

IMAGE_SIZE = 28
MOST_GLYPHS = 10_000_000
"""Rendered for one data set: 8 GB."""
_VERSION = 1  # part of `renderer`: raise it with any change that alters the pictures
_FIELD_SIZE = 64
_FIELD_BOX = 44  # the glyph's longer side in the field; the rest is room for thicker strokes
_IMAGE_BOX = 20.0  # ... and in the image before distortion, as in EMNIST
_REACH = 8  # distances are exact up to this many field pixels (3.6 image pixels)
_GRID = 5  # control points of the elastic field along each axis
_CHUNK = 512  # samples per stream: sample i is the same picture, however many are drawn

# EMNIST by-class holds 402,953 digits, 220,304 upper-case and 190,998 lower-case letters (Cohen et al. 2017, Table II).
_BYCLASS_SHARE = {string.digits: 402_953, string.ascii_uppercase: 220_304, string.ascii_lowercase: 190_998}


@cache  # looking versions up takes 5 ms
def renderer() -> str:
    """Versions of this module and of the libraries, on which the pictures depend beside the options and the seed."""
    return f"glyphs {_VERSION}, pillow {version('pillow')}, matplotlib {version('matplotlib')}"


@dataclass(frozen=True)
class Hand:
    """Style that one writer has in all characters; by default none, and every character has its own font."""

    font: int | None = None
    """Index into FONTS."""
    angle: float = 0.0
    slant: float = 0.0
    log_height: float = 0.0
    log_width: float = 0.0
    thickness: float = 0.0
    """Added to the distortion's own draws for each character, in their units."""

    @classmethod
    def of(cls, rng: np.random.Generator) -> Hand:
        """A random one: a font, and as much of its own as `distortion = 1` adds to each character."""
        return cls(int(rng.integers(len(FONTS))), *rng.normal(0, [0.12, 0.2, 0.1, 0.1, 0.3]).tolist())


class Glyphs(Component):
    """Drawing of the synthetic glyphs (used only with `data = "glyphs"`)."""

    distortion: float = Field(1.0, ge=0, le=3)
    """Scales rotation, slant, stretch, shift, thickness and the elastic field; 0 is clean print."""
    noise: float = Field(0.05, ge=0, le=1)
    """Standard deviation of the pixel noise, as a fraction of full white."""
    frequencies: Literal["byclass", "uniform"] = "byclass"
    """`byclass`: digits, upper and lower case as frequent as in EMNIST by-class (49.5, 27.1, 23.5 %), equal within
    each of the three; `uniform`: every character equally frequent."""

    def draw(
        self, num_samples: int, seed: int, part: str, among: str = CHARACTERS, hand: Hand = Hand()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images [num_samples, 28, 28] uint8, white on black, and characters [num_samples] uint8 (into CHARACTERS).

        `part` ("train", "test") names the stream; only the characters in `among` are drawn, all in this `hand`. The
        first n samples are the same whatever `num_samples` is.
        """
        images = np.empty((num_samples, IMAGE_SIZE, IMAGE_SIZE), np.uint8)
        characters = np.empty(num_samples, np.uint8)
        weights = self._weights(among)
        for chunk, start in enumerate(range(0, num_samples, _CHUNK)):
            rng = stream(seed, f"glyphs/{part}", chunk)
            drawn = rng.choice(len(CHARACTERS), size=_CHUNK, p=weights)
            pictures = self._distorted(drawn, rng, hand)
            end = min(start + _CHUNK, num_samples)
            images[start:end], characters[start:end] = pictures[: end - start], drawn[: end - start]
        return images, characters

    def _weights(self, among: str) -> np.ndarray:
        """[62] probability of each character; 0 for those that are not in `among`."""
        share = np.ones(len(CHARACTERS))
        if self.frequencies == "byclass":
            share = np.concatenate(
                [np.full(len(group), n / len(group)) for group, n in _BYCLASS_SHARE.items()]
            )
        share *= [character in among for character in CHARACTERS]
        return share / share.sum()

    def _distorted(self, characters: np.ndarray, rng: np.random.Generator, hand: Hand) -> np.ndarray:
        """[B, S, S] uint8: each character in a random font or the hand's, seen through a random smooth map."""
        num = len(characters)
        font = rng.integers(len(FONTS), size=num) if hand.font is None else hand.font
        glyphs = font * len(CHARACTERS) + characters
        # Signed, in image pixels; the mean of a quarter pixel keeps the hairlines of thin fonts visible.
        distances = _look_up(_distance_fields(), glyphs, self._coordinates(num, rng, hand))
        distances += (
            0.25 + hand.thickness + rng.normal(0, 0.3, (num, 1, 1)).astype(np.float32) * self.distortion
        )
        edge = rng.uniform(0.8, 2.0, (num, 1, 1)).astype(np.float32)  # image pixels from black to white
        ink = np.clip(0.5 + distances / edge, 0, 1)
        ink += rng.normal(0.0, 1.0, ink.shape).astype(np.float32) * self.noise
        return (np.clip(ink, 0, 1) * 255 + 0.5).astype(np.uint8)

    def _coordinates(self, num: int, rng: np.random.Generator, hand: Hand) -> np.ndarray:
        """[2, B, S, S] float32: where in the field (row, column) each image pixel looks; affine, then elastic."""
        d = self.distortion
        angle = rng.normal(0, 0.12, num) * d + hand.angle  # radians: about 7 degrees
        slant = rng.normal(0, 0.2, num) * d + hand.slant
        height, width = np.exp(rng.normal(0, 0.1, (2, num)) * d + [[hand.log_height], [hand.log_width]])
        shift = rng.normal(0, 0.9, (2, num, 1, 1)) * d
        elastic = rng.normal(0, 1.0, (2, num, _GRID, _GRID)) * d

        axis = np.arange(IMAGE_SIZE, dtype=np.float32) - (IMAGE_SIZE - 1) / 2
        knots = np.linspace(axis[0], axis[-1], _GRID)
        hats = np.clip(1 - np.abs(axis[:, None] - knots) / (knots[1] - knots[0]), 0, 1)
        blend = (hats * hats * (3 - 2 * hats)).astype(np.float32)  # [S, _GRID]: smoothstep between the knots
        moved = shift.astype(np.float32) + blend @ elastic.astype(np.float32) @ blend.T
        row, column = axis[:, None] + moved[0], axis[None, :] + moved[1]

        cos, sin = np.cos(angle), np.sin(angle)
        to_field = np.array(
            [[cos / height, sin / height], [(slant * cos - sin) / width, (slant * sin + cos) / width]]
        )
        a = (to_field * (_FIELD_BOX / _IMAGE_BOX)).astype(np.float32)[..., None, None]
        centre = np.float32((_FIELD_SIZE - 1) / 2)
        return np.stack([a[0, 0] * row + a[0, 1] * column, a[1, 0] * row + a[1, 1] * column]) + centre


class Writers(Glyphs):
    """Synthetic writers: a stand-in for FEMNIST, glyphs drawn by writers with a hand of their own (used only with
    `data = "glyphs"`)."""

    writers: int = Field(100, ge=1, le=100_000)
    """Synthetic writers: owners of a natural partition. Each has its own font, slant, size and stroke."""
    samples: int = Field(200, ge=2, le=100_000)
    """Mean number of characters per writer (FEMNIST: 226); each writer has half to twice that. At most 10 million in
    all, of 784 bytes each."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        return self.product_at_most(MOST_GLYPHS, "writers", "samples")

    def pages(self, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each writer images [n, 28, 28] uint8, white on black, and characters [n] uint8 (into CHARACTERS)."""
        for writer in range(self.writers):
            rng = stream(seed, "glyphs/writer", writer)
            num_samples = int(self.samples * 2 ** rng.uniform(-1, 0.82))  # the mean of 2^u is 1.00
            yield self.draw(num_samples, seed, f"writer/{writer}", hand=Hand.of(rng))


def _look_up(fields: np.ndarray, glyphs: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """[B, S, S] float32: `fields[glyphs]` at fractional (row, column) coordinates, bilinear, clamped at the border."""
    inside = np.clip(coordinates, 0, _FIELD_SIZE - 1.001)
    corner = inside.astype(np.int32)
    fr, fc = inside - corner
    at = glyphs[:, None, None] * _FIELD_SIZE**2 + corner[0] * _FIELD_SIZE + corner[1]
    flat = fields.reshape(-1)
    top = flat[at] * (1 - fc) + flat[at + 1] * fc
    bottom = flat[at + _FIELD_SIZE] * (1 - fc) + flat[at + _FIELD_SIZE + 1] * fc
    return top * (1 - fr) + bottom * fr


@lru_cache(maxsize=1)
def _distance_fields() -> np.ndarray:
    """[G, F, F] float32: signed distance to the outline in image pixels, positive inside; G = fonts x characters.
    Computed once on a machine: it takes half a second, most of a short run."""
    folder = prepared("fonts", {"renderer": renderer()}, lambda: {"fields": _computed_fields()})
    return load(folder, "fields")


def _computed_fields() -> np.ndarray:
    import matplotlib
    from PIL import ImageFont  # heavy

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    fonts = [ImageFont.truetype(folder / f"{name}.ttf", 2 * _FIELD_SIZE) for name in FONTS]
    inside = np.stack([_bitmap(font, character) for font in fonts for character in CHARACTERS])
    # between the centres of two pixels runs the outline
    to_edge = _distance_to(~inside) + _distance_to(inside) - 0.5
    signed = np.where(inside, to_edge, -to_edge)
    return (signed * (_IMAGE_BOX / _FIELD_BOX)).astype(np.float32)


def _bitmap(font: ImageFont.FreeTypeFont, character: str) -> np.ndarray:
    """[F, F] bool: the character with its bounding box fitted into the middle of the field, aspect kept."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (4 * _FIELD_SIZE, 4 * _FIELD_SIZE))
    ImageDraw.Draw(canvas).text((_FIELD_SIZE, _FIELD_SIZE), character, font=font, fill=255)
    glyph = canvas.crop(canvas.getbbox())
    scale = _FIELD_BOX / max(glyph.size)
    glyph = glyph.resize([max(1, round(side * scale)) for side in glyph.size], Image.Resampling.BOX)
    field = Image.new("L", (_FIELD_SIZE, _FIELD_SIZE))
    field.paste(glyph, ((_FIELD_SIZE - glyph.width) // 2, (_FIELD_SIZE - glyph.height) // 2))
    return np.asarray(field) >= 128


def _distance_to(target: np.ndarray) -> np.ndarray:
    """[G, F, F] float32: distance from each pixel to the nearest True pixel, exact up to _REACH, then constant.

    Squared distances are separable: first along columns, then along rows, the least over offsets within reach.
    """
    far = np.float32((_REACH + 1) ** 2)
    squared = np.where(target, np.float32(0), far)
    for axis in (1, 2):
        nearest = squared.copy()
        for offset in range(1, _REACH + 1):
            ahead = [slice(None)] * 3
            behind = [slice(None)] * 3
            ahead[axis], behind[axis] = slice(offset, None), slice(None, -offset)
            for to, of in ((ahead, behind), (behind, ahead)):
                view = nearest[tuple(to)]
                np.minimum(view, squared[tuple(of)] + np.float32(offset**2), out=view)
        squared = nearest
    return np.sqrt(np.minimum(squared, far))
