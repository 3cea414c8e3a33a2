"""Where a round of the stacked engine goes: how much of it the GPU computes, at what share of its peak, and what else.

Work is counted, not estimated: multiply-adds by torch's own counter over one step, launches and kernels by the
profiler, waits of the host by CUDA's debug mode.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from ceilings import gemm_flops
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from gpu.common import Case, median, seconds_of
from gpu.conductor import Setting
from gpu.rows import Report
from hpctrip.learn.engines.stacked import Stack, Stacked, schedule

KINDS = {
    "products": ("gemm", "cutlass", "cublas", "sgemm", "mm", "conv", "xmma", "cudnn"),
    "pooling": ("pool",),
    "gathers": ("index", "gather", "scatter", "unfold", "im2col", "embedding"),
    "copies": ("memcpy", "memset", "copy", "cat", "fill", "pad"),
    "reductions": ("reduce", "softmax", "sum", "norm"),
}
"""Parts of kernels' names, in the order in which they are looked for; what has none of them is "elementwise"."""
CALLS = {
    "kernel_launches": ("cudaLaunchKernel", "cuLaunchKernel"),
    "graph_launches": ("cudaGraphLaunch",),
    "memory_copies": ("cudaMemcpy",),
    "waiting_calls": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
}
"""What the host asks of the driver, by how the names of the calls begin."""


def round_of(setting: Setting, report: Report, shape: str, num_sites: int, block: int) -> None:
    """Profile one warm round; the whole table goes to profiles.txt."""
    case = Case.of(shape, 3 if setting.small else num_sites, setting)
    engine = Stacked(case.task, case.work, setting.device)
    train = case.round(engine, block)
    about = report.of(
        shape=shape, sites=len(case.sites), device=setting.device, contender="stacked", block=block
    )
    round_s = median(seconds_of(train, 1 if setting.small else 5))
    about.row("round_s", round_s)
    peak = gemm_flops(setting.device, 128 if setting.small else 8192)
    flop = flop_per_sample(case, engine) * case.num_samples
    about.row("tflop", flop / 1e12, precision="float32", note="products and convolutions of a round")
    about.row("share_of_peak", flop / round_s / peak, note=f"of {peak / 1e12:.3g} TFLOP/s in a product")
    about.row("host_waits", host_waits(train), note="by CUDA's debug mode, in a round")
    events = profiled(train, setting)
    _told(about, events, round_s)
    _write(Path(setting.out) / "profiles.txt", shape, events)


def flop_per_sample(case: Case, engine: Stacked) -> float:
    """Floating-point operations of products and convolutions, forward and backward, that one sample costs."""
    sites, batch = case.sites[:1], case.work.batch_size
    brief = [[order[:batch]] for (order,) in sites]
    engine.has_graphs, has_graphs = False, engine.has_graphs
    stack = Stack(engine, 1)
    engine.has_graphs = has_graphs
    with FlopCounterMode(display=False) as counter:
        stack.train(case.params, *schedule(brief, 1, batch, engine.device))
    return counter.get_total_flops() / len(brief[0][0])


def host_waits(train: Callable[[], object]) -> float:
    """How often the host waits for the GPU in a round; 0 where there is none."""
    if not torch.cuda.is_available():
        train()
        return 0.0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            train()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return float(sum("synchroniz" in str(warning.message) for warning in told))


def profiled(train: Callable[[], object], setting: Setting) -> profile:
    """One round under torch's profiler."""
    activities = [ProfilerActivity.CPU]
    if setting.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as events:
        train()
    return events


def _told(about: Report, events: profile, round_s: float) -> None:
    """What the GPU was busy with, and what the host asked of it."""
    on_gpu = [event for event in events.events() if event.device_type == DeviceType.CUDA]
    busy: Counter[str] = Counter()
    for event in on_gpu:
        busy[kind_of(event.name)] += event.time_range.elapsed_us() / 1e6
    about.row("gpu_busy_share", sum(busy.values()) / round_s, note="kernels' time, of the round unprofiled")
    about.row("kernels", len(on_gpu))
    for kind, seconds in busy.most_common():
        about.row(f"{kind}_share", seconds / round_s)
    names = [event.name for event in events.events()]
    for call, beginnings in CALLS.items():
        about.row(call, sum(name.startswith(beginnings) for name in names))


def kind_of(kernel: str) -> str:
    """What a kernel does, by its name."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(p in name for p in parts)), "elementwise")


def _write(path: Path, shape: str, events: profile) -> None:
    by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    table = events.key_averages().table(sort_by=by, row_limit=40)
    with open(path, "a") as file:
        file.write(f"== {shape}\n{table}\n")
