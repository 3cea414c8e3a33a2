"""The llm workload: the next token of texts, by a causal language model with LoRA adapters (the extra `[llm]`).

The model comes from a local directory as `transformers` writes it, or is `tiny`: made from a configuration here and
pretrained on a part of the texts that no site sees, so that there is something to adapt without a download. With
adapters, the base model is frozen and the same everywhere: only the adapters are trained, averaged and sent.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError, require
from hpctrip.base.io import PathName
from hpctrip.config.component import Component
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached
from hpctrip.learn.data.cached import fingerprints
from hpctrip.learn.data.sentences import VERSION, Sentences
from hpctrip.learn.data.texts import blocks_of, encode_bytes, read_texts, text_files
from hpctrip.learn.params import digest
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, Workload


class Lora(Component):
    """Low-rank adapters (Hu et al. 2022): W x + alpha / rank B A x, with W frozen, B = 0 at the start, no dropout."""

    rank: int = Field(8, ge=1, le=4096)
    """Rank of A [rank, in] and B [out, rank]."""
    alpha: float = Field(16.0, gt=0)
    """Scale of the adapters, divided by the rank."""
    target_modules: list[str] = []
    """Names of the layers that get adapters, e.g. ["q_proj", "v_proj"]; empty: every linear layer but the output."""


def _all_texts(data: str) -> list[Path]:
    """The files of a path."""
    return text_files(Path(data).expanduser())


@WORKLOADS.add
class Llm(Workload):
    """Next token of texts by owner (files, or synthetic sentences), by a causal language model with LoRA adapters."""

    kind: ClassVar[str] = "llm"
    lr: ClassVar[float] = 1e-3
    batch_size: ClassVar[int] = 8
    local_epochs: ClassVar[int] = 1
    optimizer: ClassVar[Literal["sgd", "adamw"]] = "adamw"

    model: Annotated[PathName, Reads(unless="tiny")] = Field("tiny", min_length=1)
    """`"tiny"`: 0.36 M parameters of the Llama architecture over bytes, pretrained here, no download; else the
    directory of a model: config.json, weights as safetensors, and its tokenizer. Nothing is downloaded and none of
    its code is run. With a large vocabulary lower `evaluate.batch_size`: the logits have one number per token of it."""
    pretrain_steps: int = Field(300, ge=0, le=1_000_000)
    """Steps of 16 blocks that pretrain `tiny`, once per machine and setting (its cache keeps it), on the first tenth of
    every text, which no site gets. 0: its weights are random. Ignored with a model from a directory."""
    adapter: Literal["lora", "qlora", "full"] = "lora"
    """The parameters that are trained and sent. `lora`: adapters; `qlora`: adapters over a base in 4 bits (needs
    bitsandbytes and a GPU at every rank); `full`: all parameters."""
    lora: Lora = Lora()
    """The adapters; ignored with `full`."""
    data: Annotated[PathName, Reads(unless="sentences", find=_all_texts)] = Field("sentences", min_length=1)
    """`"sentences"`: synthetic text by made-up roles, no download; else a file or a folder of .txt and .json files. A
    text file is one owner's, a JSON object {"owner": "text"} holds many. Each gzipped or not."""
    block_tokens: int = Field(128, ge=1, le=32_768)
    """Tokens of a sample: texts are cut into blocks, and each of their tokens predicts the next. What is left at a
    text's end is left out."""
    sentences: Sentences = Sentences()
    """Amount of synthetic text; ignored with data from files."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.adapter == "qlora" and self.model == "tiny":
            raise ValueError(
                'adapter = "qlora" is for a model from a directory; "tiny" fits any memory as it is'
            )
        return self

    def check_data(self) -> None:
        """The packages; the texts and the model's directory, where they are named."""
        _require(self.adapter)
        if self.data != "sentences":
            text_files(self._path())
        if self.model != "tiny":
            from hpctrip.learn.models import causal

            causal.check_directory(self._directory())

    def prepare_data(self, seed: int) -> None:
        """Cut the texts into blocks and pretrain `tiny`, in the cache, once per node. Raises InputError naming what is
        missing or damaged."""
        _require(self.adapter)
        from hpctrip.learn.models import causal

        folder = self._folder()
        if self.model == "tiny":
            self._base_folder(folder)
        else:
            cached.digest_of_large(causal.model_files(self._directory()))

    def task(self, seed: int) -> Task:
        """The memory-mapped blocks and the model; prepares them first where nobody has."""
        _require(self.adapter)
        from hpctrip.learn.models import causal

        folder = self._folder()
        train, test = (self._dataset(folder, part) for part in ("train", "test"))
        if self.model == "tiny":
            params = torch.tensor(cached.load(self._base_folder(folder), "params"))
            base, model_digest = causal.tiny(params), digest(params)
            made = (
                f"pretrained here for {self.pretrain_steps} steps"
                if self._pretrains()
                else "of random weights"
            )
            model = f"tiny model {made}, digest {model_digest}"
        else:
            base = causal.load(self._directory(), quantised=self.adapter == "qlora")
            model_digest = cached.digest_of_large(causal.model_files(self._directory()))
            model = f"model from {self._directory()}"
        causal.check_fit(base, self.block_tokens, int(cached.load(folder, "num_tokens")))
        adapters = {} if self.adapter == "full" else self.lora.model_dump()
        build_model = causal.Builder(base, **adapters)
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
            sequential_only=causal.why_not_stacked(build_model),
            digests={"data": cached.digest_of(folder), "model": model_digest},
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
        from hpctrip.learn.models import causal

        settings: dict[str, Any] = {"block_tokens": self.block_tokens, "base": self._pretrains()}
        if self.model == "tiny":
            settings["tokens"] = "bytes"
            encode = encode_bytes
        else:
            settings["tokenizer"] = fingerprints(causal.tokenizer_files(self._directory()))
            encode = causal.encoder(self._directory())
        if self.data == "sentences":
            settings |= {"sentences (synthetic)": self.sentences.model_dump(), "version": VERSION}
            texts = partial(self.sentences.write, seed=0)
        else:
            files = text_files(self._path())
            settings["files"] = fingerprints(files)
            texts = partial(read_texts, files)
        cut = partial(blocks_of, encode=encode, block_tokens=self.block_tokens, with_base=self._pretrains())
        return cached.prepared("llm", settings, lambda: cut(texts()))

    def _pretrains(self) -> bool:
        return self.model == "tiny" and self.pretrain_steps > 0

    def _base_folder(self, blocks_folder: Path) -> Path:
        """The folder of `tiny`'s weights."""
        from hpctrip.learn.models import causal

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


def _require(adapter: str) -> None:
    """Raise InputError, with the way out, where what training with this adapter needs is not installed."""
    require('workload.kind = "llm"', "llm", "transformers", "peft")
    if adapter == "qlora":
        place, way_out = 'workload.adapter = "qlora"', 'or use adapter = "lora"'
        if not torch.cuda.is_available():
            raise InputError(place, "its 4-bit base needs a GPU, and torch sees none", way_out)
        if importlib.util.find_spec("bitsandbytes") is None:
            raise InputError(place, "bitsandbytes is not installed", f"pip install bitsandbytes, {way_out}")
