"""The llm workload: the next token of texts, by a causal language model with LoRA adapters (the extra `[llm]`).

The model comes from a local directory as `transformers` writes it, or is a decoder over bytes that is made here: `tiny`
is pretrained on a part of the texts that no site sees, so that there is something to adapt without a download;
`scratch` has random weights, to be trained from the start. With adapters, the base model is frozen and the same
everywhere: only the adapters are trained, averaged and sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError, require
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.config.component import Component
from hpctrip.config.identity import Added
from hpctrip.config.sources import Reads
from hpctrip.learn.data import cached, files
from hpctrip.learn.data.texts import VERSION, Sentences, read_texts
from hpctrip.learn.params import digest
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, PreparedWorkload

PARTS = ("base", "train", "test")
BASE_FRACTION = TEST_FRACTION = 0.1
"""Fractions of the blocks of every text: the first tenth is the base model's, where that is pretrained here; the last
tenth is held out."""


class Lora(Component):
    """Low-rank adapters (Hu et al. 2022): W x + alpha / rank B A x, with W frozen, B = 0 at the start, no dropout."""

    rank: int = Field(8, ge=1, le=4096)
    """Rank of A [rank, in] and B [out, rank]."""
    alpha: float = Field(16.0, gt=0)
    """Scale of the adapters, divided by the rank."""
    target_modules: list[str] = []
    """Names of the layers that get adapters, e.g. ["q_proj", "v_proj"]; empty: every linear layer but the output."""


class Decoder(Component):
    """Sizes of the decoder that is made here, of the Llama architecture with tied embeddings; its context is
    `workload.block_tokens`."""

    layers: int = Field(3, ge=1, le=256)
    """Blocks of attention and feed-forward."""
    heads: int = Field(3, ge=1, le=256)
    """Attention heads of a block, each of an even part of the width."""
    width: int = Field(96, ge=2, le=16_384)
    """Size of a token's vector."""
    feed_forward: int = Field(256, ge=1, le=65_536)
    """Size of a block's hidden layer."""
    vocabulary: int = Field(256, ge=256, le=1_000_000)
    """Tokens that the model knows. Bytes are 256 of them; the others never come, and cost what those of words do."""

    @model_validator(mode="after")
    def _splits(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width = {self.width} is no multiple of twice the heads = {self.heads}")
        return self

    @property
    def config(self) -> dict[str, Any]:
        """The keys of LlamaConfig."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": 1_000_000,  # rotary: no table of this length
            "tie_word_embeddings": True,
        }


MADE_HERE = ("tiny", "scratch")
"""Values of `model` that stand for a decoder of the sizes in [workload.decoder]."""


def _text_files(data: str) -> list[Path]:
    """The file at this path, or the texts of the folder."""
    hint = 'give a text file or a folder of them, or set workload.data = "sentences"'
    return files.in_folder(Path(data).resolve(), (".txt", ".json"), hint)


@WORKLOADS.add
class Llm(PreparedWorkload):
    """Next token of texts by owner (files, or synthetic sentences), by a causal language model with LoRA adapters."""

    kind: ClassVar[str] = "llm"
    embedded: ClassVar[str] = "sentences"
    origins: ClassVar[tuple[str, str]] = ("sentences (synthetic text)", "texts")
    lr: ClassVar[float] = 1e-3
    batch_size: ClassVar[int] = 8
    optimizer: ClassVar[Literal["sgd", "adamw"]] = "adamw"

    model: Annotated[PathName, Reads(unless=MADE_HERE)] = Field("tiny", min_length=1)
    """`"tiny"`: a decoder over bytes (0.36 M parameters, unless `decoder` says otherwise), pretrained here, no
    download; `"scratch"`: the same with random weights by the run's seed; otherwise the directory of a model:
    config.json, weights as safetensors, and its tokenizer. Nothing is downloaded and none of its code is run. With a
    large vocabulary, lower `evaluate.batch_size`: the logits have one number per token of the vocabulary."""
    decoder: Added[Decoder] = Decoder()
    """Sizes of `tiny` and `scratch`; ignored with a model from a directory."""
    pretrain_steps: int = Field(300, ge=0, le=1_000_000)
    """Pretraining steps of `tiny`, of 16 blocks each, once per machine and setting (then cached), on the first tenth
    of every text, which no site gets. 0: random weights. Ignored with a model from a directory."""
    adapter: Literal["lora", "qlora", "full"] = "lora"
    """Parameters that are trained and sent. `lora`: adapters; `qlora`: adapters over a base in 4 bits (the extra
    `[qlora]`; slow on a CPU); `full`: all parameters."""
    lora: Lora = Lora()
    """The adapters; ignored with `full`."""
    data: Annotated[PathName, Reads(unless=("sentences",), find=_text_files)] = Field(
        "sentences", min_length=1
    )
    """`"sentences"`: synthetic text by invented roles, no download; otherwise a file or a folder of .txt and .json
    files, gzipped or not. A text file has one owner; a JSON object {"owner": "text"} has many."""
    block_tokens: int = Field(128, ge=1, le=32_768)
    """Tokens per sample: texts are cut into blocks, and each token predicts the next. An incomplete block at a text's
    end is omitted."""
    sentences: Sentences = Sentences()
    """Amount of synthetic text; ignored with data from files."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.adapter == "qlora" and self.model == "tiny":
            raise ValueError(
                'adapter = "qlora" is for a model from a directory; "tiny" fits any memory as it is'
            )
        if self.adapter != "full" and self.model == "scratch":
            raise ValueError(
                'model = "scratch" has nothing to adapt: set adapter = "full", or model = "tiny"'
            )
        return self

    def check_data(self) -> None:
        """The packages; the texts and the model's directory, where they are named."""
        _require(self.adapter)
        super().check_data()
        if not self.is_made_here:
            from hpctrip.learn.models import causal

            causal.check_directory(self._directory)

    def prepare_data(self, seed: int) -> None:
        """Cut the texts into blocks and pretrain `tiny`, in the cache, once per node. Raises InputError naming what is
        missing or damaged."""
        folder = self.folder(seed)
        if self.model == "tiny":
            self._tiny_base(folder)
        elif not self.is_made_here:
            self._model_digest()

    def task(self, seed: int) -> Task:
        """The memory-mapped blocks and the model; prepares them first where the cache lacks them."""
        folder = self.folder(seed)
        import torch

        from hpctrip.learn.models import causal

        blocks = {part: cached.load(folder, f"{part}_blocks") for part in PARTS[1:]}
        train, test = (
            Dataset(tokens[:, :-1], tokens[:, 1:], cached.load(folder, f"{part}_groups"))
            for part, tokens in blocks.items()
        )
        digests, config = {"data": cached.digest_of(folder)}, self.decoder.config
        if self.model == "scratch":
            base, model = causal.decoder(config), "model of random weights"
        elif self.model == "tiny":
            params = torch.tensor(cached.load(self._tiny_base(folder), "params"))
            base, model_digest = causal.tiny(config, params), digest(params)
            steps = (
                f"pretrained here for {self.pretrain_steps} steps" if self._pretrains else "of random weights"
            )
            model, digests["model"] = f"tiny model {steps}, digest {model_digest}", model_digest
        else:
            base = causal.load(self._directory, quantised=self.adapter == "qlora")
            model, digests["model"] = f"model from {self._directory}", self._model_digest()
        causal.check_fit(base, self.block_tokens, int(cached.load(folder, "num_tokens")))
        adapters = {} if self.adapter == "full" else self.lora.model_dump()
        build_model = partial(causal.build, base, **adapters)
        if self.model == "scratch":
            build_model = partial(causal.scratch, config)
        return Task(
            train=train,
            test=test,
            num_classes=base.config.vocab_size,
            build_model=build_model,
            prepare=torch.Tensor.long,
            loss=causal.next_token_loss,
            source=f"{self.origin}: {len(train):,} training and {len(test):,} test blocks of {self.block_tokens} "
            f"tokens; {model} ({base.num_parameters():,} parameters), {self.adapter}",
            synthetic=self.synthetic,
            sequential_only="4-bit layers cannot be mapped over sites"
            if self.adapter == "qlora"
            else causal.why_not_stacked(build_model),
            digests=digests,
        )

    def model_files(self, tensors: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        """A model as `save_pretrained` of transformers writes it, or adapters as that of peft does."""
        _require(self.adapter)
        from hpctrip.learn.models import causal

        directory = None if self.is_made_here else self._directory
        if self.adapter == "full":
            return causal.model_folder(tensors, directory or self.decoder.config)
        return causal.adapter_folder(tensors, directory, **self.lora.model_dump())

    def folder(self, seed: int) -> Path:
        """The folder of the prepared blocks. They do not depend on the run's seed, as those of files do not."""
        _require(self.adapter)
        from hpctrip.learn.models import causal

        settings: dict[str, Any] = {"block_tokens": self.block_tokens, "base": self._pretrains}
        if self.is_made_here:
            settings["tokens"] = "bytes"
        else:
            settings["tokenizer"] = cached.content_of(causal.tokenizer_files(self._directory))
        if self.synthetic:
            settings |= {"sentences (synthetic)": self.sentences.model_dump(), "version": VERSION}
        else:
            settings["files"] = cached.content_of(_text_files(self.data))
        return cached.prepared("llm", settings, self._blocks)

    def _blocks(self) -> dict[str, np.ndarray]:
        """See `pack`; and `num_tokens`, one more than the largest token. InputError where a part gets no block."""
        from hpctrip.learn.models import causal

        texts = self.sentences.write(seed=0) if self.synthetic else read_texts(_text_files(self.data))
        encode = causal.encoder(None if self.is_made_here else self._directory)
        arrays = pack(map(encode, texts.values()), self.block_tokens, self._pretrains)
        needed = PARTS if self._pretrains else PARTS[1:]
        if lacking := [part for part in needed if not len(arrays[f"{part}_blocks"])]:
            raise InputError(
                "workload.data",
                f"the {len(texts):,} text(s) with {sum(map(len, texts.values())):,} characters give no block of "
                f"{self.block_tokens} tokens for {' and '.join(lacking)}",
                f"a text gives some from {10 * self.block_tokens + 1:,} tokens on: give longer texts, or lower "
                "workload.block_tokens",
            )
        return arrays | {"num_tokens": np.array(1 + max(arrays[f"{part}_blocks"].max() for part in needed))}

    @property
    def is_made_here(self) -> bool:
        """Whether the model is no directory's."""
        return self.model in MADE_HERE

    @property
    def _directory(self) -> Path:
        return Path(self.model).resolve()

    @property
    def _pretrains(self) -> bool:
        return self.model == "tiny" and self.pretrain_steps > 0

    def _tiny_base(self, blocks_folder: Path) -> Path:
        """The folder of `tiny`'s weights, pretrained on the blocks of the base."""
        from hpctrip.learn.models import causal

        config, num_steps = self.decoder.config, self.pretrain_steps
        settings = causal.tiny_settings(config) | {"steps": num_steps}
        if num_steps:
            settings["blocks"] = blocks_folder.name

        def weights() -> dict[str, np.ndarray]:
            return {"params": causal.pretrained(config, cached.load(blocks_folder, "base_blocks"), num_steps)}

        return cached.prepared("llm_base", settings, weights)

    def _model_digest(self) -> str:
        """The digest of the files of the model's directory."""
        from hpctrip.learn.models import causal

        return cached.content_of(causal.model_files(self._directory))


def _require(adapter: str) -> None:
    """Raise InputError, with the way out, where what training with this adapter needs is not installed."""
    require('workload.kind = "llm"', "llm", "transformers", "peft")
    if adapter == "qlora":
        require('workload.adapter = "qlora"', "qlora", "bitsandbytes")


def pack(texts: Iterable[np.ndarray], block_tokens: int, with_base: bool) -> dict[str, np.ndarray]:
    """Texts as tokens [num_tokens] -> of every part `<part>_blocks` [N, block_tokens + 1] int64 and `<part>_groups`
    [N] int64, the number of the text.

    A block is its inputs and one token more: block[:-1] predicts block[1:]. Held-out blocks are shuffled.
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
