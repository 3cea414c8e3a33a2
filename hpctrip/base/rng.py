"""Named random streams: the same (seed, purpose, keys) always gives the same stream.

There is no state to checkpoint, and streams are never keyed by a rank.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class _Key(ISeedSequence):
    """Passes a key to Philox unchanged. `Philox(key=...)` first gathers entropy and takes three times as long."""

    def __init__(self, digest: bytes):
        self.words = np.frombuffer(digest, dtype="<u8")

    def generate_state(self, n_words: int, dtype: type = np.uint64) -> np.ndarray:
        """The two words that Philox asks for."""
        return self.words


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A counter-based generator that depends on the name alone, e.g. `stream(seed, "order", round, site)`."""
    name = "/".join([str(int(seed)), purpose, *(str(int(key)) for key in keys)])
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(_Key(digest)))


@contextmanager
def same_draws() -> Iterator[None]:
    """Let the body, code of the user's, draw the same from global generators in every process: numpy's, Python's and,
    where it is imported, as in every run, torch's. Puts them back."""
    before, torch = (random.getstate(), np.random.get_state()), sys.modules.get("torch")
    of_torch = torch and torch.get_rng_state()
    random.seed(0)
    np.random.seed(0)
    if torch:
        torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch:
            torch.set_rng_state(of_torch)
