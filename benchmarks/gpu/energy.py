"""What a round costs in electrical energy, where the driver tells (NVML): by engine, by precision, under power caps."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpu.common import Case
from gpu.conductor import Setting
from gpu.rows import Report
from gpu.speed import plain_round
from hpctrip.device.counters import MICRO
from hpctrip.device.nvml import Gpu
from hpctrip.device.settings import GpuSettings, HeldSettings
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked

MEASURED_S = 4.0
"""Of work for each number: NVML's counter advances some ten times a second."""
PRECISIONS = ("float32", "tf32", "bfloat16")
NUM_CAPS = 3
"""The lowest that the GPU takes, the highest, and the one between."""


def rounds(setting: Setting, report: Report, shapes: tuple[str, ...], num_sites: int, block: int) -> None:
    """Each shape: joules of a round, samples a joule, mean watts, of the plain loop, of both engines, and of the
    stacked one in every precision; idle first."""
    joules = counter(setting)
    measured_s = 0.0 if setting.small else MEASURED_S
    began, used = time.perf_counter(), joules()
    time.sleep(measured_s / 2 or 0.01)
    idle_w = (joules() - used) / (time.perf_counter() - began)
    report.row("watts", idle_w, contender="idle", device=setting.device)
    for name in shapes[:1] if setting.small else shapes:
        case = Case.of(name, 3 if setting.small else num_sites, setting)
        about = partial(report.of(shape=name, sites=len(case.sites), device=setting.device).of, block=1)
        plain, sequential = about(contender="plain"), about(contender="sequential", precision="float32")
        measure(plain, setting, case, plain_round(case, setting.device))
        measure(sequential, setting, case, case.round(Sequential(case.task, case.work, setting.device), 1))
        for precision in PRECISIONS:
            stacked(about(), setting, case, block, precision)


def caps(setting: Setting, report: Report, shape: str, num_sites: int, block: int) -> None:
    """The stacked engine in float32 and bfloat16 under three power caps, if permission allows. A dry run has none."""
    case = Case.of(shape, 3 if setting.small else num_sites, setting)
    about = report.of(shape=shape, sites=len(case.sites), device=setting.device)

    def under(cap: Report) -> None:
        for precision in ("float32", "bfloat16"):
            stacked(cap, setting, case, block, precision)

    if setting.device == "cuda":
        under_caps(about, gpu().uuid, under)
    else:
        under(about)


def under_caps(report: Report, uuid: str, under: Callable[[Report], None]) -> None:
    """Call `under` with each of the caps set; they are put back even if this process is killed."""
    low_mw, high_mw = Gpu.of(uuid).cap_range_mw
    with HeldSettings([uuid]) as held:
        for cap_w in np.linspace(low_mw, high_mw, NUM_CAPS) / 1000:
            refused = held.apply(GpuSettings(power_cap_w=cap_w)).refused
            report.row("cap_refused", bool(refused), cap_w=f"{cap_w:g}", note="; ".join(refused))
            if refused:
                return
            under(report.of(cap_w=f"{cap_w:g}"))


def stacked(report: Report, setting: Setting, case: Case, block: int, precision: str) -> None:
    """The stacked engine in one precision."""
    engine = Stacked(case.task, case.work, setting.device, precision)
    about = report.of(contender="stacked", block=block, precision=precision)
    measure(about, setting, case, case.round(engine, block))


def measure(report: Report, setting: Setting, case: Case, train: Callable[[], object]) -> None:
    """Joules of a round, samples a joule and mean watts of whatever `train` does, after it has warmed up."""
    joules = counter(setting)
    measured_s = 0.0 if setting.small else MEASURED_S
    train()
    num_rounds, began, used = 0, time.perf_counter(), joules()
    while num_rounds == 0 or time.perf_counter() - began < measured_s:
        train()
        num_rounds += 1
    used, seconds = joules() - used, time.perf_counter() - began
    about = report.of(n=num_rounds)
    about.row("round_j", used / num_rounds)
    about.row("samples_per_j", num_rounds * case.num_samples / max(used, 1e-9))
    about.row("watts", used / seconds)


def gpu() -> Gpu:
    """The one that torch uses. Raises Unavailable where NVML does not know it."""
    return Gpu.of(str(torch.cuda.get_device_properties(0).uuid))


def counter(setting: Setting) -> Callable[[], float]:
    """Joules that the GPU has used since the driver was loaded. A dry run counts seconds instead, as if of 1 W."""
    if setting.device != "cuda":
        return time.perf_counter
    device = gpu()
    return lambda: device.read_uj() / MICRO


def tuned(setting: Setting, report: Report) -> None:
    """`hpctrip tune` on W1s with glyphs: what its best settings gain over the input as it is. Its files stay in the
    results."""
    from hpctrip.ranks.base import device_name
    from hpctrip.tune import report as files
    from hpctrip.tune.trial import TrialRunner
    from hpctrip.tune.tuner import tune

    num_sites, num_samples, num_rounds = (2, 40, 1) if setting.small else (100, 100, 4)
    lines = (
        f"sites.num_sites={num_sites}",
        "workload.kind=emnist",
        f"workload.train_samples={num_sites * num_samples}",
        f"workload.test_samples={100 if setting.small else 2000}",
        "policy.kind=all",
        "engine.name=stacked",
        f"ranks.device={setting.device}",
        *(["meter.assumed_w=1"] if setting.device != "cuda" else []),
    )
    runner = TrialRunner(
        (), lines, (), num_rounds, error=0.05, max_rounds=2 if setting.small else 10 * num_rounds
    )
    precisions = [{}, *({"engine.precision": name} for name in PRECISIONS[1:])]
    blocks = [{}, {"engine.sites_per_block": num_sites}]
    spaces = [precisions[::2]] if setting.small else [precisions, blocks]
    result = tune(runner, 0.02, 0.5, spaces, knobs=True, report=print)
    about = report.of(shape="W1s", sites=num_sites, device=setting.device)
    before = result.trials[0]
    for name, trial in result.best.items():
        best = about.of(contender=f"best by {name}", n=trial.num_rounds, note=trial.setting_text)
        best.row("train_samples_per_s", 1 / trial.sample_s)
        best.row("gain_in_samples_per_s", before.sample_s / trial.sample_s)
        best.row("samples_per_j", 1 / trial.sample_j)
        best.row("gain_in_samples_per_j", before.sample_j / trial.sample_j)
    files.write(result, Path(setting.out) / "tuned", device_name(runner.device), overwrite=True)
