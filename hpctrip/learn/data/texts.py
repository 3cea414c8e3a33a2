"""Texts by owner: plays by speaking role and other texts, read from files, and synthetic sentences.

Roles are read from JSON of the form {"play/ROLE": text}, or from plain text in blocks that a role's name heads:

First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.

Sentences are a synthetic stand-in, made from a small grammar. No download needed. Every role draws its words from the
same lists but with its own preferences, so that roles differ as speakers do: what one says often another says rarely.
Spelling, word order and punctuation can be learned, the choice of words only as far as a role's preferences go, so a
model's accuracy says how learning proceeds and must not be compared with accuracies on Shakespeare's text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.text import shown
from hpctrip.config.component import Component
from hpctrip.learn.data.files import json_object, read_text

_HEADING = re.compile(r"([^\n:]{1,60}):[ \t]*(?:\n|$)")


def read_texts(files: list[Path]) -> dict[str, str]:
    """{owner: text}; the texts of one owner in several files are joined.

    Raises InputError that names the file and what is wrong with it.
    """
    texts: dict[str, str] = {}
    for path in files:
        content = read_text(path)
        is_json = ".json" in path.suffixes
        by_owner = roles_from_json(path, json_object(path, content)) if is_json else {path.name: content}
        for owner, text in by_owner.items():
            if not text.strip():
                raise InputError(str(path), f"the text of {shown(owner)} is empty", "leave it out")
            texts[owner] = texts.get(owner, "") + text
    return texts


def roles_from_json(path: Path, content: dict[str, Any]) -> dict[str, str]:
    """The texts of a by-role JSON object. Raises InputError that names the file and the role that has none."""
    for role, text in content.items():
        if not isinstance(text, str):
            raise InputError(
                str(path),
                f"{shown(role)} holds a {type(text).__name__}, expected a text",
                'a file of roles is {"play/ROLE": text}, one of LEAF has users, num_samples, user_data',
            )
    if not content:
        raise InputError(str(path), "no roles in it", 'a file of roles is {"play/ROLE": text}')
    return content


def roles_from_text(path: Path, text: str) -> dict[str, str]:
    """Each role's speeches, joined by line ends. A block without a heading goes on with the speech before it."""
    speeches: dict[str, list[str]] = {}
    role = None
    for block in re.split(r"\n[ \t]*\n\s*", text.strip()):
        heading = _HEADING.match(block)
        if heading:
            role, block = heading[1].strip(), block[heading.end() :]
        if role is None:
            break
        speeches.setdefault(role, []).append(block)
    if not speeches:
        raise InputError(
            str(path),
            "it does not begin with a speaking role",
            "write each speech as a block: ROLE:, then its lines",
        )
    return {role: "\n".join(filter(None, blocks)) for role, blocks in speeches.items()}


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
    """Mean number of characters per role; each role has half to twice that. At most 200 million in all."""

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
