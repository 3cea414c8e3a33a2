"""Texts by owner: read from files, and cut into blocks of tokens to train on, to test on and to pretrain with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.text import shown
from hpctrip.learn.data.files import json_object, read_text
from hpctrip.learn.data.play_text import roles_from_json

PARTS = ("base", "train", "test")
BASE_FRACTION = TEST_FRACTION = 0.1
"""Fractions of the blocks of every text: the first tenth is the base model's, where that is pretrained here; the last
tenth is held out."""


def text_files(path: Path) -> list[Path]:
    """The file itself, or a folder's texts, sorted. Raises InputError where there are none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(
            "workload.data",
            f"there is no file or folder {path}",
            'give texts, or set workload.data = "sentences"',
        )
    files = sorted(f for f in path.iterdir() if {".txt", ".json"} & set(f.suffixes))
    if not files:
        raise InputError(
            "workload.data", f"{path} holds no .txt or .json file", "name a folder of texts, or a file"
        )
    return files


def read_texts(files: list[Path]) -> dict[str, str]:
    """{owner: text}; what several files hold of an owner is put together.

    Raises InputError that names the file and what is wrong with it.
    """
    texts: dict[str, str] = {}
    for path in files:
        content = read_text(path)
        by_owner = (
            roles_from_json(path, json_object(path, content))
            if ".json" in path.suffixes
            else {path.name: content}
        )
        for owner, text in by_owner.items():
            if not text.strip():
                raise InputError(str(path), f"the text of {shown(owner)} is empty", "leave it out")
            texts[owner] = texts.get(owner, "") + text
    return texts


def blocks_of(
    texts: dict[str, str], encode: Callable[[str], np.ndarray], block_tokens: int, with_base: bool
) -> dict[str, np.ndarray]:
    """See `pack`; and `num_tokens`: one more than the largest token. Raises InputError where a part gets no block."""
    arrays = pack(map(encode, texts.values()), block_tokens, with_base)
    needed = PARTS if with_base else PARTS[1:]
    lacking = [part for part in needed if not len(arrays[f"{part}_blocks"])]
    if lacking:
        raise InputError(
            "workload.data",
            f"the {len(texts):,} text(s) with {sum(map(len, texts.values())):,} characters give no block of "
            f"{block_tokens} tokens for {' and '.join(lacking)}",
            f"a text gives some from {10 * block_tokens + 1:,} tokens on: give longer texts, or lower "
            "workload.block_tokens",
        )
    arrays["num_tokens"] = np.array(1 + max(arrays[f"{part}_blocks"].max() for part in needed))
    return arrays


def pack(texts: Iterable[np.ndarray], block_tokens: int, with_base: bool) -> dict[str, np.ndarray]:
    """Texts as tokens [num_tokens] -> of every part `<part>_blocks` [N, block_tokens + 1] int64 and `<part>_groups`
    [N] int64, the number of the text.

    A block is its inputs and one token more: block[:-1] predicts block[1:]. Held-out blocks are shuffled, so that any
    first few are a sample of all texts.
    """
    blocks: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    groups: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for number, tokens in enumerate(texts):
        num_blocks = max(0, (len(tokens) - 1) // block_tokens)
        index = np.arange(num_blocks)[:, None] * block_tokens + np.arange(block_tokens + 1)
        bounds = [
            int(num_blocks * BASE_FRACTION) if with_base else 0,
            num_blocks - int(num_blocks * TEST_FRACTION),
        ]
        for part, chosen in zip(PARTS, np.split(index, bounds), strict=True):
            blocks[part].append(tokens[chosen].astype(np.int64))
            groups[part].append(np.full(len(chosen), number))
    arrays = {}
    for part in PARTS:
        all_blocks, all_groups = np.concatenate(blocks[part]), np.concatenate(groups[part])
        if part == "test":
            order = stream(0, "llm/held-out order").permutation(len(all_blocks))
            all_blocks, all_groups = all_blocks[order], all_groups[order]
        arrays |= {f"{part}_blocks": all_blocks, f"{part}_groups": all_groups}
    return arrays


def encode_bytes(text: str) -> np.ndarray:
    """The tiny model's tokens: the text's bytes, [num_tokens] uint8."""
    return np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
