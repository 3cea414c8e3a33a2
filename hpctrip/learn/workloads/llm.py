"""The llm workload: the next token of texts, by a causal language model with LoRA adapters (the extra `[llm]`).

The model comes from a local directory as `transformers` writes it, or is `tiny`: made from a configuration here and
pretrained on a part of the texts that no site sees, so that there is something to adapt without a download. With
adapters, the base model is frozen and the same everywhere: only the adapters are trained, averaged and sent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from hpctrip.base.component import Component
from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.learn.params import digest
from hpctrip.learn.workloads import cached, roles
from hpctrip.learn.workloads.base import WORKLOADS, Dataset, Task, Workload
from hpctrip.learn.workloads.files import fingerprints, json_object, read_text
from hpctrip.learn.workloads.sentences import VERSION, Sentences

PARTS = ("base", "train", "test")
BASE_FRACTION = TEST_FRACTION = 0.1
"""Of the blocks of every text: the first tenth is the base model's, where that is pretrained here; the last is held
out."""
INSTALL = "pip install -c constraints.txt -e '.[llm]'"


class Lora(Component):
    """Low-rank adapters (Hu et al. 2022): W x + alpha / rank B A x, with W frozen, B = 0 at the start, no dropout."""

    rank: int = Field(8, ge=1, le=65_536)
    """Of A [rank, in] and B [out, rank]."""
    alpha: float = Field(16.0, gt=0)
    """Scale of the adapters, divided by the rank."""
    target_modules: list[str] = []
    """Names of the layers that get adapters, e.g. ["q_proj", "v_proj"]; empty: every linear layer but the output."""


@WORKLOADS.add
class Llm(Workload):
    """Next token of texts by owner (files, or synthetic sentences), by a causal language model with LoRA adapters."""

    kind: ClassVar[str] = "llm"
    lr: ClassVar[float] = 1e-3
    batch_size: ClassVar[int] = 8
    local_epochs: ClassVar[int] = 1
    optimizer: ClassVar[Literal["sgd", "adamw"]] = "adamw"

    model: str = Field("tiny", min_length=1)
    """`"tiny"`: 0.36 M parameters of the Llama architecture over bytes, pretrained here, no download; else the
    directory of a model: config.json, weights as safetensors, and its tokenizer. Nothing is downloaded and none of
    its code is run. With a large vocabulary lower `evaluate.batch_size`: the logits have one number per token of it."""
    pretrain_steps: int = Field(300, ge=0, le=1_000_000)
    """Steps of 16 blocks that pretrain `tiny`, once per machine and setting (its cache keeps it), on the first tenth of
    every text, which no site gets. 0: its weights are random. Ignored with a model from a directory."""
    adapter: Literal["lora", "qlora", "full"] = "lora"
    """What is trained and travels. `lora`: adapters; `qlora`: adapters over a base in 4 bits (needs bitsandbytes and a
    GPU at every rank); `full`: all parameters."""
    lora: Lora = Lora()
    """The adapters; ignored with `full`."""
    data: str = Field("sentences", min_length=1)
    """`"sentences"`: synthetic text by made-up roles, no download; else a file or a folder of .txt and .json files. A
    text file is one owner's, a JSON object {"owner": "text"} holds many. Each gzipped or not."""
    block_tokens: int = Field(128, ge=1, le=1_000_000)
    """Tokens of a sample: texts are cut into blocks, and each of their tokens predicts the next. What is left at a
    text's end is left out."""
    sentences: Sentences = Sentences()
    """How much synthetic text there is; ignored with data from files."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.adapter == "qlora" and self.model == "tiny":
            raise ValueError(
                'adapter = "qlora" is for a model from a directory; "tiny" fits any memory as it is'
            )
        return self

    def prepare_data(self, seed: int) -> None:
        """Cut the texts into blocks and pretrain `tiny`, in the cache, once per node. Raises InputError naming what is
        missing or damaged."""
        self._require()
        folder = self._folder()
        if self.model == "tiny":
            self._base_folder(folder)

    def task(self, seed: int) -> Task:
        """The memory-mapped blocks and the model; prepares them first where nobody has."""
        self._require()
        from hpctrip.learn.workloads import causal

        folder = self._folder()
        train, test = (self._dataset(folder, part) for part in ("train", "test"))
        if self.model == "tiny":
            params = torch.tensor(cached.load(self._base_folder(folder), "params"))
            base = causal.tiny(params)
            made = (
                f"pretrained here for {self.pretrain_steps} steps"
                if self._pretrains()
                else "of random weights"
            )
            model = f"tiny model {made}, digest {digest(params)}"
        else:
            base = causal.load(self._directory(), quantised=self.adapter == "qlora")
            model = f"model from {self._directory()}"
        causal.check_fit(base, self.block_tokens, int(cached.load(folder, "num_tokens")))
        build_model = causal.Builder(base, None if self.adapter == "full" else self.lora)
        synthetic = self.data == "sentences"
        texts = "sentences (synthetic text)" if synthetic else f"texts from {self._path()}"
        return Task(
            train=train,
            test=test,
            num_classes=base.config.vocab_size,
            build_model=build_model,
            prepare=torch.Tensor.long,
            loss=causal.next_token_loss,
            source=f"{texts}: {len(train):,} training and {len(test):,} test blocks of {self.block_tokens} tokens; "
            f"{model} ({base.num_parameters():,} parameters), {self.adapter}",
            synthetic=synthetic,
            loop_only=causal.why_not_stacked(build_model),
        )

    def _require(self) -> None:
        """Raise InputError, with the way out, where what this workload needs is not installed."""
        missing = [name for name in ("transformers", "peft") if importlib.util.find_spec(name) is None]
        if missing:
            raise InputError('workload.kind = "llm"', f"{' and '.join(missing)} not installed", INSTALL)
        if self.adapter == "qlora":
            place, way_out = 'workload.adapter = "qlora"', 'or use adapter = "lora"'
            if not torch.cuda.is_available():
                raise InputError(place, "its 4-bit base needs a GPU, and torch sees none", way_out)
            if importlib.util.find_spec("bitsandbytes") is None:
                raise InputError(
                    place, "bitsandbytes is not installed", f"pip install bitsandbytes, {way_out}"
                )

    def _path(self) -> Path:
        return Path(self.data).expanduser().resolve()

    def _directory(self) -> Path:
        return Path(self.model).expanduser().resolve()

    def _dataset(self, folder: Path, part: str) -> Dataset:
        blocks = cached.load(folder, f"{part}_blocks")
        return Dataset(blocks[:, :-1], blocks[:, 1:], cached.load(folder, f"{part}_groups"))

    def _folder(self) -> Path:
        """The folder of the prepared blocks. The run's seed is nowhere in it, as in files of texts."""
        from hpctrip.learn.workloads import causal

        settings: dict[str, Any] = {"block_tokens": self.block_tokens, "base": self._pretrains()}
        if self.model == "tiny":
            settings["tokens"] = "bytes"
            encode = causal.encode_bytes
        else:
            settings["tokenizer"] = fingerprints(causal.tokenizer_files(self._directory()))
            encode = causal.encoder(self._directory())
        if self.data == "sentences":
            settings |= {"sentences (synthetic)": self.sentences.model_dump(), "version": VERSION}
            return cached.prepared(
                "llm", settings, lambda: self._arrays(self.sentences.write(seed=0), encode)
            )
        files = text_files(self._path())
        settings["files"] = fingerprints(files)
        return cached.prepared("llm", settings, lambda: self._arrays(read_texts(files), encode))

    def _pretrains(self) -> bool:
        return self.model == "tiny" and self.pretrain_steps > 0

    def _base_folder(self, blocks_folder: Path) -> Path:
        """The folder of `tiny`'s weights."""
        from hpctrip.learn.workloads import causal

        settings = causal.tiny_settings() | {"steps": self.pretrain_steps}
        if self._pretrains():
            settings["blocks"] = blocks_folder.name
        return cached.prepared(
            "llm_base",
            settings,
            lambda: {
                "params": causal.pretrained(cached.load(blocks_folder, "base_blocks"), self.pretrain_steps)
            },
        )

    def _arrays(self, texts: dict[str, str], encode: Any) -> dict[str, np.ndarray]:
        """See `pack`; and `num_tokens`: one more than the largest token."""
        arrays = pack(map(encode, texts.values()), self.block_tokens, self._pretrains())
        needed = PARTS if self._pretrains() else PARTS[1:]
        lacking = [part for part in needed if not len(arrays[f"{part}_blocks"])]
        if lacking:
            raise InputError(
                "workload.data",
                f"the {len(texts):,} text(s) with {sum(map(len, texts.values())):,} characters give no block of "
                f"{self.block_tokens} tokens for {' and '.join(lacking)}",
                f"a text gives some from {10 * self.block_tokens + 1:,} tokens on: give longer texts, or lower "
                "workload.block_tokens",
            )
        arrays["num_tokens"] = np.array(1 + max(arrays[f"{part}_blocks"].max() for part in needed))
        return arrays


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
            roles.from_json(path, json_object(path, content))
            if ".json" in path.suffixes
            else {path.name: content}
        )
        for owner, text in by_owner.items():
            if not text.strip():
                raise InputError(str(path), f"the text of {owner!r} is empty", "leave it out")
            texts[owner] = texts.get(owner, "") + text
    return texts


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
