"""How long each engine takes for the sites of one round, against the plain nn.Module + SGD loop, on one thread.

    python benchmarks/engines.py [--model W1] [--sites 4] [--samples 400] [--repeats 5] [--device cpu] [--trials]

W1 is LEAF's CNN, W1s the light one; shapes.py has the others, and the synthetic data. The contenders take turns, and
on a CPU it is CPU time that is measured, so that a busy machine hurts less; still, read the ratios rather than the
seconds. Before any time is compared, all but bfloat16 must have trained the same models.

The last column is the rate of floating-point operations as a share of a large matrix product's, which takes turns with
them: on a CPU that of the faster of two libraries (ceilings.py), in CPU seconds, too. Its rate is below the table.
`--trials` adds what a model without a hand-written step might gain from: `torch.compile` (needs a C++ compiler) and
bfloat16 (fast where the processor has AVX512-BF16 or AMX).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np
import pandas as pd
import torch
from ceilings import gemm_flops
from rich.console import Console
from rich.table import Table
from rivals import PlainLoop
from shapes import SHAPES, Shape, sites_of
from torch.utils.flop_counter import FlopCounterMode

from hpctrip.learn.engines import engines as engine_classes
from hpctrip.learn.engines.base import Precision
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.steps import AutogradStep
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Task

GEMM = "a large matrix product"


def contenders(task: Task, work: LocalWork, device: str, trials: bool) -> dict[str, Callable]:
    """By name: (params, sites) -> deltas. The plain loop first."""
    engines = {name: engine(task, work, device) for name, engine in engine_classes().items()}
    engines["sequential (autograd)"] = by_autograd(task, work, device)
    if trials:
        engines["sequential (compiled)"] = compiled = by_autograd(task, work, device)
        compiled.step.model.compile()
        engines["sequential (bfloat16)"] = by_autograd(task, work, device, "bfloat16")

    def deltas(engine, params, sites):
        return [update.delta.clone() for update in engine.train(params, sites)]

    return {"plain": PlainLoop(task, work, device).train} | {
        name: partial(deltas, engine) for name, engine in sorted(engines.items())
    }


def by_autograd(task: Task, work: LocalWork, device: str, precision: Precision = "float32") -> Sequential:
    """The sequential engine as it trains a user's own model."""
    engine = Sequential(task, work, device, precision)
    engine.step = AutogradStep(task.build_model().to(device), task.loss, work, precision)
    return engine


def measure(
    shape: Shape, num_sites: int, num_samples: int, repeats: int, device: str, trials: bool
) -> pd.DataFrame:
    """Seconds and share of a matrix product's rate, one row a round of each contender, `repeats` of each, after one
    round that warms up and checks the result; in the rows of GEMM, that rate."""
    draw = np.random.default_rng(0)
    task = shape.task(num_sites * num_samples, draw)
    torch.manual_seed(0)
    params = flatten(task.build_model()).to(device)
    sites = sites_of(num_sites, num_samples, draw)
    rivals = contenders(task, shape.work, device, trials)
    with FlopCounterMode(display=False) as counter:
        plain = torch.stack(rivals["plain"](params, sites))
    for name, train in rivals.items():
        deltas = torch.stack(train(params, sites))
        if "bfloat16" not in name:
            torch.testing.assert_close(deltas, plain, rtol=1e-2, atol=1e-4)
    clock = time.process_time if device == "cpu" else time.perf_counter
    rows = []
    for _ in range(repeats):
        gemm = gemm_flops(device)
        rows.append((GEMM, 0.0, gemm))
        for name, train in rivals.items():
            began = clock()
            train(params, sites)[-1].sum().item()  # .item() waits for a GPU
            seconds = clock() - began
            rows.append((name, seconds, counter.get_total_flops() / seconds / gemm))
    return pd.DataFrame(rows, columns=["engine", "seconds", "share"])


@click.command(help=__doc__)
@click.option(
    "--model", "shapes", multiple=True, type=click.Choice([*SHAPES]), default=("W1", "W1s"), show_default=True
)
@click.option("--sites", default=4, show_default=True, type=click.IntRange(1))
@click.option("--samples", default=400, show_default=True, type=click.IntRange(1), help="Samples per site.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True)
@click.option("--trials", is_flag=True, help="Also compiled, and in bfloat16.")
def main(shapes: tuple[str, ...], sites: int, samples: int, repeats: int, device: str, trials: bool) -> None:
    """Measure and print the table."""
    torch.set_num_threads(1)
    title = f"{sites} sites x {samples} synthetic samples, {device}, one thread, n = {repeats}"
    table = Table("model", "engine", "median s", "min s", "median of plain", "share of gemm", title=title)
    for shape in shapes:
        rounds = measure(SHAPES[shape], sites, samples, repeats, device, trials)
        medians = rounds.groupby("engine", sort=False).median()
        least = rounds.groupby("engine", sort=False)["seconds"].min()
        table.caption = f"a large matrix product: {medians.loc[GEMM, 'share'] / 1e9:.0f} GFLOP/s"
        for name, (median, share) in medians.drop(GEMM).iterrows():
            ratio = median / medians.loc["plain", "seconds"]
            table.add_row(shape, name, f"{median:.3f}", f"{least[name]:.3f}", f"{ratio:.2f}", f"{share:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
