"""Whole runs of the program on this device: rounds as users see them, checkpoints, precisions, NCCL, QLoRA."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from click import ClickException
from peers.cases import write_case
from peers.common import SHAPES, Shape
from peers.contest import check_equal, contenders, run_once

import hpctrip
from gpu.common import median
from gpu.conductor import Setting
from gpu.rows import Report
from hpctrip.library import Run
from hpctrip.record.checkpoint import newest

PLUGIN = Path(__file__).parents[1] / "peers" / "plugin.py"
TOLERANCE = 1e-2
"""Of what a run changes in the model, between devices."""
PFL = ("pfl", "dp_accounting", "prv_accountant", "multiprocess", "scipy")
"""What pfl-research imports."""
ACCURACY_TOLERANCE = 0.02


def devices(setting: Setting, report: Report) -> None:
    """A checkpoint written on one device goes on on the other; clock and cohorts are the same to the bit."""
    folder = Path(setting.folder)
    num_rounds = 2 if setting.small else 6
    write_case(folder, "devices", Shape(8, 8, 60, SHAPES["W1s"].cnn, test_samples=200), num_rounds)
    here, other = setting.device, "cpu"
    whole = _run(folder, "whole", here, num_rounds)
    first = np.load(folder / "params.npy")
    change = np.linalg.norm(_params(whole) - first)
    for number, (before, after) in enumerate(dict.fromkeys([(here, here), (here, other), (other, here)])):
        half = _run(folder, f"half-{number}", before, num_rounds // 2)
        changed = {"stop.max_rounds": num_rounds, "ranks.device": after}
        resumed = hpctrip.resume(half.path, overrides=changed, plugins=[PLUGIN], quiet=True)
        about = report.of(contender=f"{before}, then {after}", device=setting.device)
        if before == after:
            same = resumed.meta["params_digest"] == whole.meta["params_digest"]
            about.at_least("same_bits", same, 1, note="of the model, as without the interruption")
        error = np.linalg.norm(_params(resumed) - _params(whole)) / change
        about.at_most("relative_error", error, TOLERANCE, note="of what the run has changed in the model")
        same = all(resumed.rounds[name].equals(whole.rounds[name]) for name in ("clock_s", "num_sites"))
        about.at_least("same_clock_and_cohorts", same, 1)


def accuracies(setting: Setting, report: Report) -> None:
    """Ten rounds on synthetic glyphs in float32, tf32 and bfloat16."""
    num_sites, samples, num_rounds = (2, 40, 2) if setting.small else (20, 200, 10)
    tables: dict[str, Any] = {
        "sites.num_sites": num_sites,
        "workload.kind": "emnist",
        "workload.train_samples": num_sites * samples,
        "workload.test_samples": 100 if setting.small else 2000,
        "partition.kind": "iid",
        "policy.kind": "all",
        "train.lr": 0.1,
        "stop.max_rounds": num_rounds,
        "engine.name": "stacked",
        "ranks.device": setting.device,
    }
    found: dict[str, float] = {}
    for precision in ("float32", "tf32", "bfloat16"):
        out = Path(setting.folder) / f"{precision}.h5"
        run = hpctrip.run((), tables | {"engine.precision": precision}, out=out, quiet=True)
        found[precision] = float(run.rounds["accuracy"].iloc[-1])
        about = report.of(shape="W1s", sites=num_sites, contender="stacked", device=setting.device)
        about.row(
            "accuracy", found[precision], precision=precision, note=f"after {num_rounds} rounds, glyphs"
        )
        apart = abs(found[precision] - found["float32"])
        about.at_most("accuracy_from_float32", apart, ACCURACY_TOLERANCE, precision=precision)


def rounds(setting: Setting, report: Report, shape: str, num_sites: int | None = None) -> None:
    """Whole rounds (train, aggregate, evaluate, record) beside the plain loop and, where it is carried, pfl."""
    case, given = Path(setting.folder) / "case", SHAPES[shape]
    if num_sites:
        given = replace(given, num_sites=num_sites, cohort=num_sites)
    if setting.small:
        given = replace(given, num_sites=4, cohort=2, samples=20, test_samples=100)
    num_rounds = 3 if setting.small else 6
    write_case(case, shape, given, num_rounds)
    peers = {"pfl": sys.executable} if all(map(find_spec, PFL)) else {}
    commands = contenders(peers, case, given.cohort, num_rounds, 1, setting.device)
    # ours first; the training of the sequential engine is in speed-*
    names = [name for name in ("hpctrip stacked", "pfl", "plain loop") if name in commands]
    about = report.of(shape=shape, sites=given.cohort, device=setting.device)
    reports = {name: case / name.replace(" ", "-") for name in names}
    ours_s = 0.0
    for name in names:
        told = about.of(contender=name)
        try:
            seconds, _ = run_once(commands[name], reports[name])
        except ClickException as error:  # the others are worth as much without it
            told.row("failed", 1, note=str(error))
            del reports[name]
            continue
        told = told.of(n=len(seconds), note="a whole round")
        if name == "hpctrip stacked":
            ours_s = median(seconds)
            told.row("round_s", ours_s)
            _shares(told, hpctrip.open(reports[name].with_suffix(".h5")))
        else:
            told.row("round_s", median(seconds))
            told.row("times_ours", median(seconds) / ours_s if ours_s else math.nan)
    check_equal(reports, np.load(case / "params.npy"))


def _shares(about: Report, run: Run) -> None:
    """Where the wall time of the rounds after the first went."""
    warm = run.rounds[1:]
    for phase in ("train", "exchange", "evaluate", "record"):
        share = (warm[f"{phase}_wall_s"] / warm["wall_s"]).median()
        about.row(f"{phase}_share", share, n=len(warm), note="of a whole round")


def nccl_by_mpi(setting: Setting, report: Report) -> None:
    """The program itself under mpirun, one host a GPU, its parameters exchanged by NCCL: the bits of one process."""
    folder = Path(setting.folder)
    write_case(folder, "nccl", Shape(4, 4, 40, SHAPES["W1s"].cnn, test_samples=100), 2)
    alone = _run(folder, "alone", setting.device, 2)
    hosts = torch.cuda.device_count() if setting.device == "cuda" else 1
    out = folder / "nccl.h5"
    command = ["mpirun", "-n", str(hosts + 1), sys.executable, "-m", "hpctrip", str(folder / "hpctrip.toml")]
    command += ["--out", str(out), "-o", "ranks.transport=nccl", "-o", f"ranks.device={setting.device}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment)
    same = hpctrip.open(out).meta["params_digest"] == alone.meta["params_digest"]
    report.at_least("same_bits", same, 1, contender=f"{hosts} host(s) and rank 0", device=setting.device)


def qlora(setting: Setting, report: Report) -> None:
    """A small Llama from a directory, trained by QLoRA and by LoRA: both learn, and nearly as well."""
    folder = Path(setting.folder)
    _write_llama(folder / "model")
    tables: dict[str, Any] = {
        "sites.num_sites": 2,
        "workload.kind": "llm",
        "workload.model": str(folder / "model"),
        "workload.block_tokens": 16,
        "workload.sentences": {"roles": 4, "characters": 800},
        "partition.kind": "natural",
        "policy.kind": "all",
        "train.local_steps": 2,
        "stop.max_rounds": 2 if setting.small else 10,
        "ranks.device": setting.device,
    }
    losses: dict[str, float] = {}
    for adapter in ("lora", "qlora"):
        run = hpctrip.run(
            (), tables | {"workload.adapter": adapter}, out=folder / f"{adapter}.h5", quiet=True
        )
        losses[adapter] = float(run.rounds["eval_loss"].iloc[-1])
        about = report.of(shape="Llama", sites=2, contender=adapter, device=setting.device)
        about.row("eval_loss", losses[adapter], note=f"after {len(run.rounds)} rounds")
        about.at_most("loss_from_lora", abs(losses[adapter] - losses["lora"]), 0.1)


def _write_llama(path: Path) -> None:
    """A directory as save_pretrained writes it: a Llama of random weights, and a tokenizer of single characters."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    symbols = [*map(chr, range(32, 127)), "\n", "?\u00bf"]
    tokenizer = Tokenizer(models.WordLevel({s: n for n, s in enumerate(symbols)}, unk_token=symbols[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(symbols), **sizes)).save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=symbols[-1]).save_pretrained(path)


def _run(folder: Path, name: str, device: str, num_rounds: int) -> Run:
    """The case of that folder on a device, with its checkpoint."""
    changed = {"stop.max_rounds": num_rounds, "ranks.device": device}
    return hpctrip.run(folder / "hpctrip.toml", changed, out=folder / f"{name}.h5", quiet=True)


def _params(run: Run) -> np.ndarray:
    """The last global model [P]."""
    checkpoint, _, _ = newest(run.path)
    assert checkpoint is not None
    return checkpoint.model.params
