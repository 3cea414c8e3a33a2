"""How fast a round is trained and summed: the plain loop, the sequential engine, the stacked one over block sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from ceilings import copy_bytes, gemm_flops
from rivals import PlainLoop

from gpu.common import Case, median, seconds_of
from gpu.conductor import Setting
from gpu.rows import Report
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked
from hpctrip.learn.evaluate import eval_batches, evaluate

BLOCKS = (8, 16, 32, 64, 128)
REPEATS = 7


def machine(setting: Setting, report: Report) -> None:
    """What the device could do at best: products, copies, launches, waiting."""
    device, repeats = setting.device, 3 if setting.small else 20
    n, megabytes = (128, 1) if setting.small else (8192, 1024)
    about = report.of(device=device)
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name = f"{properties.name}, {properties.multi_processor_count} multiprocessors"
        about.row("memory_gb", properties.total_memory / 1e9, note=f"{name}; torch {torch.__version__}")
        about.row("gpus", torch.cuda.device_count())
    for precision in ("float32", "tf32", "bfloat16"):
        rate = gemm_flops(device, n, precision)
        about.row("product_tflop_per_s", rate / 1e12, precision=precision)
    about.row("copy_gb_per_s", copy_bytes(device, megabytes) / 1e9, note="read and written")
    small = torch.zeros(1, device=device)
    launches = 100

    def launch() -> None:
        for _ in range(launches):
            small.add_(1)
        small.item()

    about.row("launch_us", 1e6 * median(seconds_of(launch, repeats)) / launches, n=repeats)
    about.row("wait_us", 1e6 * median(seconds_of(small.item, repeats)), n=repeats)


def engines(setting: Setting, report: Report, shape: str, num_sites: int) -> None:
    """One shape: seconds of a round, samples a second, how many times as fast as the plain loop, memory."""
    case = Case.of(shape, 3 if setting.small else num_sites, setting)
    work, device = case.work, setting.device
    about = report.of(shape=shape, sites=len(case.sites), device=device, precision="float32")
    plain_s = _measured(about.of(contender="plain"), setting, case, lambda: plain_round(case, device), None)
    _measured(
        about.of(contender="sequential"),
        setting,
        case,
        lambda: case.round(Sequential(case.task, work, device), 1),
        plain_s,
    )
    for block in (2,) if setting.small else BLOCKS:
        if block < 2 * len(case.sites):  # a larger one would be the same block again
            _measured(
                about.of(contender="stacked", block=block),
                setting,
                case,
                lambda block=block: case.round(Stacked(case.task, work, device), block),
                plain_s,
            )
    _evaluation(about, setting, case)


def _measured(
    about: Report, setting: Setting, case: Case, build: Callable[[], Callable], plain_s: float | None
) -> float:
    """The median seconds of a round, which are told with what follows from them."""
    gc.collect()
    if setting.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds = seconds_of(build(), 1 if setting.small else REPEATS)
    round_s, n = median(seconds), len(seconds)
    about.row("round_s", round_s, n=n, note="training and sum")
    about.row("train_samples_per_s", case.num_samples / round_s, n=n)
    if plain_s is not None:
        about.row("times_plain", plain_s / round_s, n=n)
    if setting.device == "cuda":
        about.row("peak_mb", torch.cuda.max_memory_allocated() / 1e6)
    return round_s


def plain_round(case: Case, device: str) -> Callable[[], float]:
    """A round of the plain loop; it ends when the device is through."""
    loop = PlainLoop(case.task, case.work, device)

    def train() -> float:
        return torch.stack(loop.train(case.params, case.sites)).mean(0)[0].item()

    return train


def _evaluation(about: Report, setting: Setting, case: Case) -> None:
    """Held-out samples a second."""
    model = case.task.build_model()
    batches = eval_batches(min(len(case.task.test), 60 if setting.small else 10_000))

    def look() -> object:
        return evaluate(case.task, model, case.params, batches)

    seconds = seconds_of(look, 1 if setting.small else REPEATS)
    rate = batches[-1].stop / median(seconds)
    about.row("evaluate_samples_per_s", rate, contender="evaluation", n=len(seconds))
