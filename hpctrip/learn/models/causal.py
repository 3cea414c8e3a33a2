"""Causal language models as the engines train them, loaded or made here; their adapters and tokenizers.

The only file that imports `transformers` and `peft`; import it only where they are installed.
"""

from __future__ import annotations

import copy
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save
from torch import nn
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.learn.engines.stacked import mapped_forward
from hpctrip.learn.params import flatten

log = logging.getLogger(__name__)

_WEIGHTS, _UNREAD = ".safetensors", (".bin", ".pt", ".pth")
_PRETRAIN_LR, _PRETRAIN_BATCH = 3e-3, 16

# eager: on a CPU the only attention that torch.func.vmap maps without falling back to a loop over the sites; used
# throughout, so that both engines compute the same.
_ATTENTION = "eager"

transformers.utils.logging.set_verbosity_error()  # its warnings are about generation and training loops of its own
transformers.utils.logging.disable_progress_bar()


class NextToken(nn.Module):
    """Tokens [B, T] -> logits [B, T, V] of the token after each."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """No cache of keys and values: nothing is generated."""
        return self.model(input_ids=tokens, use_cache=False).logits

    def train(self, mode: bool = True) -> NextToken:
        """Always in evaluation mode: a directory's model may have dropout, whose random numbers have no name here."""
        return super().train(False)


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of logits [B, T, V] and labels [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def build(
    base: PreTrainedModel, rank: int = 0, alpha: float = 0.0, target_modules: Sequence[str] = ()
) -> NextToken:
    """A fresh model over a base, with adapters where `rank` is above 0 (as in the input's table [workload.lora]).

    Adapters draw their A from torch's global generator; B is 0, so a fresh model is the base. All models with adapters
    share the base's frozen tensors, so that a rank holds them once.
    """
    if not rank:
        return NextToken(copy.deepcopy(base)).train()
    shared = {id(tensor): tensor for tensor in (*base.parameters(), *base.buffers())}
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=list(target_modules) or "all-linear",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # peft sets it right for GPT-2
        warnings.filterwarnings("ignore", category=FutureWarning)  # of transformers, at peft's use of it
        try:
            return NextToken(get_peft_model(copy.deepcopy(base, shared), config)).train()
        except ValueError as error:
            key = f"workload.lora.target_modules = {list(target_modules)}"
            raise InputError(key, _first_line(error), "leave it empty for all") from None


def why_not_stacked(build_model: Callable[[], nn.Module]) -> str:
    """The reason why torch.func.vmap cannot map this model over sites, found by a tiny forward pass; empty where it
    can."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build_model()
        weights = {
            name: p.detach().expand(2, *p.shape) for name, p in model.named_parameters() if p.requires_grad
        }
        device = next(model.parameters()).device
        try:
            with torch.no_grad():
                mapped_forward(model, weights, torch.zeros(2, 1, 2, dtype=torch.int64, device=device))
        except Exception as error:  # whatever a model's own code or its kernels raise
            return f"torch.func.vmap cannot map this model: {_first_line(error)}"
    return ""


def tiny_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that the tiny model's weights depend on, besides the text."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"config": config, "lr": _PRETRAIN_LR, "batch": _PRETRAIN_BATCH} | versions


def decoder(config: Mapping[str, Any]) -> LlamaForCausalLM:
    """A model of these keys of LlamaConfig, with random weights from torch's global generator."""
    return LlamaForCausalLM._from_config(LlamaConfig(**config), attn_implementation=_ATTENTION)


def scratch(config: Mapping[str, Any]) -> NextToken:
    """A fresh model of random weights, as `decoder`."""
    return NextToken(decoder(config)).train()


def tiny(config: Mapping[str, Any], params: torch.Tensor | None = None) -> LlamaForCausalLM:
    """The tiny model, with these weights [num_params], else random ones: the same in every run, as a file's are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = decoder(config)
    if params is not None:
        nn.utils.vector_to_parameters(params, model.parameters())
    return model


def pretrained(config: Mapping[str, Any], blocks: np.ndarray, num_steps: int) -> np.ndarray:
    """Weights [num_params] float32 of the tiny model after so many steps of AdamW on blocks [N, block_tokens + 1].

    On the CPU and on one thread, because kernels round differently with the number of threads.
    """
    model, rng = NextToken(tiny(config)), stream(0, "llm/pretraining")
    optimizer = torch.optim.AdamW(model.parameters(), lr=_PRETRAIN_LR)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PRETRAIN_LR, total_steps=num_steps + 1)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in tqdm(range(num_steps), desc="pretraining the tiny model", leave=False, disable=None):
            batch = torch.from_numpy(blocks[rng.integers(len(blocks), size=_PRETRAIN_BATCH)])
            next_token_loss(model(batch[:, :-1]), batch[:, 1:]).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    finally:
        torch.set_num_threads(num_threads)
    return flatten(model).numpy()


def load(directory: Path, quantised: bool) -> PreTrainedModel:
    """The model of a directory, in float32 or, `quantised`, with its linear layers in 4 bits (NF4).

    Reads safetensors only and runs no code of the directory's. Raises InputError where the model is not whole.
    """
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": _ATTENTION}
    if quantised:
        # QLoRA (Dettmers et al. 2023): NF4 with quantised constants, computing in bfloat16
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
        options["device_map"] = {"": torch.cuda.current_device() if torch.cuda.is_available() else "cpu"}
        if not torch.cuda.is_available():
            log.warning('workload.adapter = "qlora": the 4-bit base is slow on a CPU')
    options |= {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
    model, about = _read(directory, AutoModelForCausalLM, **options)
    mismatched = [name for name, *_ in about["mismatched_keys"]]  # with the shapes stored and expected
    if lacking := sorted([*about["missing_keys"], *mismatched]):
        raise InputError(
            "workload.model",
            f"the weights in {directory} lack {len(lacking)} tensors of the model, e.g. {lacking[0]}",
            "copy the whole directory of a causal language model",
        )
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # else bitsandbytes packs the weights at the first evaluation, for a kernel without gradients
            module.support_avx512bf16_for_cpu = False
    return model


def check_directory(directory: Path) -> None:
    """Raise InputError where a model's directory lacks its configuration, its tokenizer or its weights."""
    hint = 'give the directory of a model as save_pretrained writes it, or set workload.model = "tiny"'
    if not directory.is_dir():
        raise InputError("workload.model", f"there is no directory {directory}", hint)
    for part, names in {
        "config.json": ("config.json",),
        # without any of these files a tokenizer is made that has no vocabulary
        "tokenizer, e.g. tokenizer.json": ("tokenizer.json", "tokenizer.model", "vocab.*", "*.tiktoken"),
        "weights as .safetensors (pickles can run code, and are not read)": (f"*{_WEIGHTS}",),
    }.items():
        if not any(path for name in names for path in directory.glob(name)):
            raise InputError("workload.model", f"{directory} has no {part}", hint)


def _read(directory: Path, auto: Any, **options: Any) -> Any:
    try:
        return auto.from_pretrained(directory, local_files_only=True, trust_remote_code=False, **options)
    # a damaged file, an architecture of its own, ...: transformers has no common base
    except Exception as error:
        raise InputError(
            "workload.model",
            f"{directory} cannot be loaded ({_first_line(error)})",
            "check the files, or copy the directory again",
        ) from None


def check_fit(base: PreTrainedModel, block_tokens: int, num_tokens: int) -> None:
    """Raise InputError where blocks are longer than the model takes, or its tokenizer has more tokens than it."""
    longest = getattr(base.config, "max_position_embeddings", None)
    if longest is not None and block_tokens > longest:
        raise InputError(
            f"workload.block_tokens = {block_tokens:,}", f"the model takes at most {longest:,}", "use fewer"
        )
    if num_tokens > base.config.vocab_size:
        raise InputError(
            "workload.model",
            f"its tokenizer gave token {num_tokens - 1:,}, but the model knows {base.config.vocab_size:,} tokens",
            "are tokenizer and model of one kind?",
        )


def tokenizer_files(directory: Path) -> list[Path]:
    """All files of the directory that hold no weights."""
    return [path for path in model_files(directory) if path.suffix != _WEIGHTS]


def model_files(directory: Path) -> list[Path]:
    """All files of the directory but weights in other formats, which are not read."""
    check_directory(directory)
    return sorted(path for path in directory.iterdir() if path.is_file() and path.suffix not in _UNREAD)


def adapter_folder(
    tensors: Mapping[str, np.ndarray],
    directory: Path | None,
    rank: int,
    alpha: float,
    target_modules: Sequence[str],
) -> dict[str, bytes]:
    """{name: content} of the folder that `PeftModel.from_pretrained` loads over the base in `directory` (None: the tiny
    model), with the trained `tensors` of a model of `build`."""
    named = {
        name.removeprefix("model.").replace(".default.", "."): tensor for name, tensor in tensors.items()
    }
    layers = {name.rpartition(".lora_")[0].rpartition(".")[2] for name in named}
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=alpha,
        target_modules=list(target_modules) or sorted(layers),
        base_model_name_or_path=directory and str(directory),
        inference_mode=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        content = Path(folder, "adapter_config.json").read_bytes()
    return {"adapter_model.safetensors": save(named, {"format": "pt"}), "adapter_config.json": content}


def model_folder(tensors: Mapping[str, np.ndarray], source: Path | Mapping[str, Any]) -> dict[str, bytes]:
    """{name: content} of the folder that `AutoModelForCausalLM.from_pretrained` loads, with the trained `tensors` of a
    model over the one in a directory, whose tokenizer it gets, or of a `decoder` of these keys, which has none."""
    named = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    if isinstance(source, Mapping):
        config, others = LlamaConfig(**source, architectures=["LlamaForCausalLM"]).to_dict(), {}
    else:
        others = {path.name: path.read_bytes() for path in tokenizer_files(source)}
        others.pop("model.safetensors.index.json", None)  # of several files
        config = json.loads(others.pop("config.json"))
    config |= {"dtype": "float32"}
    return {
        "model.safetensors": save(named, {"format": "pt"}),
        **others,
        "config.json": json.dumps(config, indent=2).encode(),
    }


def encoder(directory: Path | None) -> Callable[[str], np.ndarray]:
    """Text -> tokens [num_tokens] by the directory's tokenizer, no special tokens; None: the text's bytes."""
    if directory is None:
        return lambda text: np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    tokenizer = _read(directory, AutoTokenizer)

    def encode(text: str) -> np.ndarray:
        return np.array(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64)

    return encode


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
