"""Sentences: a synthetic stand-in for plays by speaking role, made from a small grammar. No download needed.

Every role draws its words from the same lists but with its own preferences, so that roles differ as speakers do: what
one says often another says rarely. Spelling, word order and punctuation can be learned, the choice of words only as
far as a role's preferences go, so a model's accuracy says how learning proceeds and must not be compared with
accuracies on Shakespeare's text.
"""

from __future__ import annotations

import re
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.rng import stream
from hpctrip.config.component import Component

VERSION = 1  # raise it with any change that alters the texts

_MOST_CHARACTERS = 200_000_000
_CONCENTRATION = 0.3  # of a role's preferences: small means that it uses few words, and often

_WORDS = {
    "noun": "king queen crown sword night morning sea ship island storm letter garden castle river forest friend "
    "brother sister daughter soldier captain servant stranger child heart hand voice song story promise secret "
    "shadow candle window door table bread winter summer road mountain village market horse dog",
    "name": "Alda Bruno Celia Dorin Edda Falk Gerda Hanno Ilse Jorin Katla Luca Mirel Nils Orsola Pello Quirin Rosa",
    "place": "Arden Belmont Corvo Dunmore Estrel Fenwick Gravelle Harrow",
    "adjective": "old young brave gentle bitter golden silent broken faithful weary strange cold bright humble proud "
    "lonely merry honest crooked green little great dark distant",
    "verb": "sees loves follows remembers forgets carries finds loses fears guards betrays praises wants hears holds "
    "leaves keeps meets breaks serves watches answers",
    "state": "sleeps waits laughs weeps sings wanders returns falls burns listens rises lies",
    "adverb": "slowly never always often gladly quietly again tonight alone forever",
    "end": ". ! ;",
}
_PATTERNS = [
    "The {adjective} {noun} {verb} the {noun}{end}",
    "{name} {verb} my {noun}, and the {noun} {state} {adverb}{end}",
    "Where is the {noun} of {name}?",
    "I have a {noun} for the {adjective} {noun}; it {state} {adverb}{end}",
    "Go to {place}, {name}, and tell the {noun} that {name} {verb} me{end}",
    "The {noun} {state} in {place} and nobody {verb} it{end}",
    "O {adjective} {noun}, who {verb} the {noun}?",
    "If the {noun} {state}, then {name} {verb} the {adjective} {noun}{end}",
    "My {noun} is {adjective}, your {noun} is {adjective}{end}",
    "{name}! the {noun} {state} {adverb}{end}",
]
_CHOICES = {kind: words.split() for kind, words in _WORDS.items()} | {"pattern": _PATTERNS}
"""Words for each blank of a pattern, and the patterns."""


class Sentences(Component):
    """Amount of synthetic text (used only with `data = "sentences"`)."""

    roles: int = Field(100, ge=1, le=100_000)
    """Speaking roles: owners of a natural partition."""
    characters: int = Field(4_000, ge=81, le=10_000_000)
    """Characters that a role speaks, on average; a role's own number is between half and twice that. All roles together
    speak at most 200 million."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        return self.product_at_most(_MOST_CHARACTERS, "roles", "characters")

    def write(self, seed: int) -> dict[str, str]:
        """The text of every role. The first n roles are the same, whatever `roles` is."""
        return {f"ROLE {role}": self._speak(stream(seed, "sentences", role)) for role in range(self.roles)}

    def _speak(self, rng: np.random.Generator) -> str:
        """One role's lines, cut at its number of characters."""
        num_characters = int(self.characters * 2 ** rng.uniform(-1, 0.82))  # the mean of 2^u is 1.00
        num_draws = 10 + num_characters // 8  # more than the lines can use
        drawn = {}
        for kind, choices in _CHOICES.items():
            preferences = rng.dirichlet(np.full(len(choices), _CONCENTRATION))
            drawn[kind] = iter(rng.choice(choices, num_draws, p=preferences).tolist())
        lines: list[str] = []
        missing = num_characters
        while missing > 0:
            lines.append(re.sub(r"{(\w+)}", lambda blank: next(drawn[blank[1]]), next(drawn["pattern"])))
            missing -= len(lines[-1]) + 1
        return "\n".join(lines)[:num_characters]
