"""How long each engine takes for the sites of one round, against the plain nn.Module + SGD loop, on one thread.

    python benchmarks/engines.py [--model W1] [--sites 4] [--samples 400] [--repeats 5] [--device cpu]

W1 is LEAF's CNN, W1s the light one; shapes.py has the others, and the synthetic data. The contenders take turns, and
on a CPU it is CPU time that is measured, so that a busy machine hurts less; still, read the ratios rather than the
seconds. Before any time is compared, all must have trained the same models.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rivals import PlainLoop
from shapes import SHAPES, Shape, sites_of

from hpctrip.learn.engines import engines as engine_classes
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.steps import AutogradStep
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Task


def contenders(task: Task, work: LocalWork, device: str) -> dict[str, Callable]:
    """By name: (params, sites) -> deltas. The plain loop first."""
    engines = {name: engine(task, work, device) for name, engine in engine_classes().items()}
    engines["sequential (autograd)"] = general = Sequential(task, work, device)
    general.step = AutogradStep(task.build_model().to(device), task.loss, work)

    def deltas(engine, params, sites):
        return [update.delta.clone() for update in engine.train(params, sites)]

    return {"plain": PlainLoop(task, work, device).train} | {
        name: partial(deltas, engine) for name, engine in sorted(engines.items())
    }


def measure(
    shape: Shape, num_sites: int, num_samples: int, repeats: int, device: str
) -> dict[str, list[float]]:
    """Seconds a round of each contender, `repeats` of each, after one round that warms up and checks the result."""
    draw = np.random.default_rng(0)
    task = shape.task(num_sites * num_samples, draw)
    torch.manual_seed(0)
    params = flatten(task.build_model()).to(device)
    sites = sites_of(num_sites, num_samples, draw)
    rivals = contenders(task, shape.work, device)
    results = {name: torch.stack(train(params, sites)) for name, train in rivals.items()}
    for result in results.values():
        torch.testing.assert_close(result, results["plain"], rtol=1e-2, atol=1e-4)
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
        for name, train in rivals.items():
            began = clock()
            train(params, sites)[-1].sum().item()  # .item() waits for a GPU
            seconds[name].append(clock() - began)
    return seconds


@click.command(help=__doc__)
@click.option(
    "--model", "shapes", multiple=True, type=click.Choice([*SHAPES]), default=("W1", "W1s"), show_default=True
)
@click.option("--sites", default=4, show_default=True, type=click.IntRange(1))
@click.option("--samples", default=400, show_default=True, type=click.IntRange(1), help="Samples per site.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True)
def main(shapes: tuple[str, ...], sites: int, samples: int, repeats: int, device: str) -> None:
    """Measure and print the table."""
    torch.set_num_threads(1)
    title = f"{sites} sites x {samples} synthetic samples, {device}, one thread, n = {repeats}"
    table = Table("model", "engine", "median s", "min s", "median of plain", "min of plain", title=title)
    for shape in shapes:
        seconds = measure(SHAPES[shape], sites, samples, repeats, device)
        plain = seconds["plain"]
        for name, times in seconds.items():
            median, least = statistics.median(times), min(times)
            ratios = f"{median / statistics.median(plain):.2f}", f"{least / min(plain):.2f}"
            table.add_row(shape, name, f"{median:.3f}", f"{least:.3f}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
