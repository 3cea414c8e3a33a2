"""Writers: a synthetic stand-in for FEMNIST, glyphs drawn by writers with a hand of their own. No download needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.rng import stream
from hpctrip.learn.data.glyphs import MOST_GLYPHS, Glyphs, Hand


class Writers(Glyphs):
    """How many synthetic writers there are and how they draw (used only with `data = "glyphs"`)."""

    writers: int = Field(100, ge=1, le=100_000)
    """Synthetic writers: owners of a natural partition. Each has one font, and a slant, size and stroke of its own."""
    samples: int = Field(200, ge=2, le=100_000)
    """Characters that a writer draws, on average (FEMNIST: 226); a writer's own number is half to twice that. All
    writers together draw at most 10 million, of 784 bytes each."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        return self.product_at_most(MOST_GLYPHS, "writers", "samples")

    def pages(self, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each writer images [n, 28, 28] uint8, white on black, and characters [n] uint8 (into CHARACTERS)."""
        for writer in range(self.writers):
            rng = stream(seed, "glyphs/writer", writer)
            num_samples = int(self.samples * 2 ** rng.uniform(-1, 0.82))  # the mean of 2^u is 1.00
            yield self.draw(num_samples, seed, f"writer/{writer}", hand=Hand.of(rng))
