"""Texts by speaking role: JSON of the form {"play/ROLE": text}, and plain text in blocks that a role's name heads.

First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.base.text import shown

_HEADING = re.compile(r"([^\n:]{1,60}):[ \t]*(?:\n|$)")


def from_json(path: Path, content: dict[str, Any]) -> dict[str, str]:
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


def from_text(path: Path, text: str) -> dict[str, str]:
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
