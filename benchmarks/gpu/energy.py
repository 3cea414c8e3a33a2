"""What a round costs in electrical energy, where the driver tells (NVML)."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gpu.common import Case
from gpu.conductor import Setting
from gpu.rows import Report
from gpu.speed import plain_round
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked

MEASURED_S = 4.0
"""Of work for each number: NVML's counter advances some ten times a second."""


def counter(setting: Setting) -> Callable[[], float]:
    """Joules that the GPU has used since the driver was loaded. A dry run counts seconds instead, as if of 1 W."""
    if setting.device != "cuda":
        return time.perf_counter
    import pynvml

    pynvml.nvmlInit()
    uuid = str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-")
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


def rounds(setting: Setting, report: Report, shapes: tuple[str, ...], num_sites: int, block: int) -> None:
    """Each shape: joules of a round, samples a joule, mean watts, of the plain loop and both engines; idle first."""
    joules = counter(setting)
    measured_s = 0.0 if setting.small else MEASURED_S
    began, used = time.perf_counter(), joules()
    time.sleep(measured_s / 2 or 0.01)
    idle_w = (joules() - used) / (time.perf_counter() - began)
    report.row("watts", idle_w, contender="idle", device=setting.device)
    for name in shapes[:1] if setting.small else shapes:
        case = Case.of(name, 3 if setting.small else num_sites, setting)
        contenders = {
            "plain": (1, lambda case=case: plain_round(case, setting.device)),
            "sequential": (1, lambda case=case: _round(Sequential, case, setting, 1)),
            "stacked": (block, lambda case=case: _round(Stacked, case, setting, block)),
        }
        for contender, (size, build) in contenders.items():
            train = build()
            train()
            num_rounds, began, used = 0, time.perf_counter(), joules()
            while num_rounds == 0 or time.perf_counter() - began < measured_s:
                train()
                num_rounds += 1
            used, seconds = joules() - used, time.perf_counter() - began
            about = report.of(shape=name, sites=len(case.sites), device=setting.device, contender=contender)
            about = about.of(block=size, n=num_rounds)
            about.row("round_j", used / num_rounds)
            about.row("samples_per_j", num_rounds * case.num_samples / max(used, 1e-9))
            about.row("watts", used / seconds)


def _round(engine: type, case: Case, setting: Setting, block: int) -> Callable[[], float]:
    return case.round(engine(case.task, case.work, setting.device), block)
