"""What the nccl transport asks of NCCL, without MPI: one process a GPU adds up int64 sums; over gloo on CPUs."""

from __future__ import annotations

import torch
import torch.distributed as dist

from gpu.common import Case
from gpu.conductor import Setting
from gpu.rows import Report
from hpctrip.learn.aggregate import PartialSum
from hpctrip.learn.engines.sequential import Sequential


def exchange(setting: Setting, report: Report) -> None:
    """With one member, and with one on each GPU where there are several: the sum is that of one process, to the bit."""
    backend = "nccl" if setting.device == "cuda" else "gloo"
    num_gpus = torch.cuda.device_count() if setting.device == "cuda" else 1
    for size in sorted({1, num_gpus}):
        arguments = size, f"file://{setting.folder}/meeting-{size}", backend, setting
        if size == 1:
            member(0, *arguments)
        else:
            torch.multiprocessing.spawn(member, arguments, size)
        report.row("same_bits", 1, contender=f"{backend}, {size} member(s)", device=setting.device)


def member(rank: int, num_members: int, address: str, backend: str, setting: Setting) -> None:
    """One of them trains every so manieth site, and all add up. Raises AssertionError where the sum is another."""
    if setting.device == "cuda":
        torch.cuda.set_device(rank)
    case = Case.of("W1s", 4, setting)
    mine, everyone = (PartialSum(len(case.params), 0, case.params.device) for _ in range(2))
    engine = Sequential(case.task, case.work, setting.device)
    for site, update in enumerate(engine.train(case.params, case.sites)):
        everyone.add(update.delta, 0.25)
        if site % num_members == rank:
            mine.add(update.delta, 0.25)
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=num_members)
    dist.all_reduce(mine.vector)
    assert torch.equal(mine.vector, everyone.vector), "the sum over the members is not that of one process"
    dist.destroy_process_group()
