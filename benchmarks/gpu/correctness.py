"""Do the engines train the same models on this device as the sequential engine does on a CPU?

Updates are compared by |found - expected| / |expected|, the largest over the sites. Rounding alone is no fault: sums
are taken in another order, and where a maximum of pooling changes its place, a whole gradient moves. One missing batch
of 20 makes 3 %.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from gpu.common import Case, deltas, relative_errors
from gpu.conductor import Setting
from gpu.rows import Report
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked

TOLERANCE = 1e-2
"""Of float32; as in benchmarks/peers."""
ROUNDED = {"tf32": 0.1, "bfloat16": 0.5}
"""10 and 7 bits of mantissa in products, over all steps of a site: only what is grossly wrong shows here. What it does
to the accuracy is another part's."""


def engines(setting: Setting, report: Report, shapes: tuple[str, ...]) -> None:
    """Each shape: sequential and stacked, its step captured in a CUDA graph or called, against sequential on a CPU."""
    for name in shapes[:1] if setting.small else shapes:
        case = ragged(Case.of(name, 4, setting))
        on_cpu = Sequential(case.task, case.work, "cpu")
        expected = deltas(on_cpu, case.params.cpu(), case.sites)
        about = report.of(shape=name, sites=len(case.sites), device=setting.device)
        captured, stepwise = (Stacked(case.task, case.work, setting.device) for _ in range(2))
        stepwise.has_graphs = False
        found = {
            "sequential": deltas(Sequential(case.task, case.work, setting.device), case.params, case.sites),
            "stacked": deltas(captured, case.params, case.sites),
            "stacked, no CUDA graph": deltas(stepwise, case.params, case.sites),
        }
        for contender, updates in found.items():
            error = float(relative_errors(updates, expected).max())
            about.at_most("relative_error", error, TOLERANCE, contender=contender, precision="float32")
        same = torch.equal(deltas(captured, case.params, case.sites), found["stacked"])
        about.row("same_bits_when_repeated", same, contender="stacked")
        same = torch.equal(found["stacked"], found["stacked, no CUDA graph"])
        about.row("same_bits_with_and_without_graph", same, contender="stacked")


def precisions(setting: Setting, report: Report, shapes: tuple[str, ...]) -> None:
    """Each shape: both engines in tf32 and bfloat16 against float32, on the device."""
    for name in shapes[:1] if setting.small else shapes:
        case = Case.of(name, 4, setting)
        expected = deltas(Sequential(case.task, case.work, setting.device), case.params, case.sites)
        about = report.of(shape=name, sites=len(case.sites), device=setting.device)
        for precision, tolerance in ROUNDED.items():
            for engine in (Sequential, Stacked):
                trained = engine(case.task, case.work, setting.device, precision)
                error = float(relative_errors(deltas(trained, case.params, case.sites), expected).max())
                about.at_most("relative_error", error, tolerance, contender=engine.name, precision=precision)


def memory(setting: Setting, report: Report, shape: str, num_sites: int) -> None:
    """The memory runs out for real: something else has filled the GPU, so that smaller blocks train."""
    case = Case.of("W1s", 5, setting) if setting.small else Case.of(shape, num_sites, setting)
    about = report.of(sites=len(case.sites), device=setting.device, contender="stacked")
    needed, expected = _unhindered(case, setting)
    about.row("peak_mb", needed / 1e6)
    for share in (0.6, 0.25):
        engine = Stacked(case.task, case.work, setting.device)
        with Scarcity(engine, share * needed, most_sites=int(share * len(case.sites))):
            most = engine.fitting(case.params, case.sites)
            blocks = [case.sites[first : first + most] for first in range(0, len(case.sites), most)]
            found = torch.cat([deltas(engine, case.params, block) for block in blocks])
        told = about.of(block=most, note=f"{share:.0%} of what it needs was free")
        told.at_most("sites_at_once", most, len(case.sites) - 1)
        errors = relative_errors(found, expected)
        told.at_most("relative_error", float(errors.max()), TOLERANCE)
        told.row("median_relative_error", float(errors.median()))


def _unhindered(case: Case, setting: Setting) -> tuple[float, torch.Tensor]:
    """With the whole GPU: the bytes that training adds at its peak (0 where there is no GPU); the updates [S, P]."""
    on_gpu = setting.device == "cuda"
    engine = Stacked(case.task, case.work, setting.device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    expected = deltas(engine, case.params, case.sites)
    needed = torch.cuda.max_memory_allocated() - before if on_gpu else 0
    return float(needed), expected


class Scarcity:
    """Within it, only so many bytes of the GPU are free. Where there is none, the error is made up: more than
    `most_sites` sites at once do not fit."""

    def __init__(self, engine: Stacked, free_bytes: float, most_sites: int):
        self.engine, self.free_bytes, self.most_sites = engine, free_bytes, most_sites
        self.ballast: torch.Tensor | None = None

    def __enter__(self) -> None:
        if self.engine.device.type == "cuda":
            torch.cuda.empty_cache()
            free, _ = torch.cuda.mem_get_info()
            self.ballast = torch.empty(int(free - self.free_bytes), dtype=torch.uint8, device="cuda")
            return
        together = self.engine._train_together

        def scarce(params: torch.Tensor, sites: list, *rest: int) -> list:
            if len(sites) > self.most_sites:
                raise torch.cuda.OutOfMemoryError("made up where there is no GPU")
            return together(params, sites, *rest)

        self.engine._train_together = scarce  # type: ignore[method-assign]

    def __exit__(self, *error: object) -> None:
        self.ballast = None
        if self.engine.device.type == "cuda":
            torch.cuda.empty_cache()  # else it stays with torch


def ragged(case: Case) -> Case:
    """The same four sites with unequal work: all of it, to the middle of a batch, half, a single sample."""
    length, batch = len(case.sites[0][0]), case.work.batch_size
    lengths = (length, length - batch // 2, length // 2, 1)
    return replace(case, sites=[[order[:n]] for (order,), n in zip(case.sites, lengths, strict=True)])
