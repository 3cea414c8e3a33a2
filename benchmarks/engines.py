"""How long each engine takes for the sites of one round, against the plain nn.Module + SGD loop, on one thread.

    python benchmarks/engines.py [--model W1] [--sites 4] [--samples 400] [--repeats 5] [--device cpu]

W1 is LEAF's CNN, W1s the light one, W2 LEAF's LSTM, which predicts every character. The data are synthetic (random
pixels or characters, and labels). The contenders take turns, and on a CPU it is CPU time that is measured, so that a
busy machine hurts less; still, read the ratios rather than the seconds. Before any time is compared, all must have
trained the same models.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from hpctrip.learn.engines import ENGINES
from hpctrip.learn.engines.base import SiteWork
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.steps import AutogradStep
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.models.lstm import CharLSTM, next_character_loss
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.emnist import normalise

MODELS = {"W1": partial(CNN, 5, (32, 64), 512), "W1s": partial(CNN, 3, (16, 32), 128)}
SHAPES = (*MODELS, "W2")
WORK = LocalWork(lr=0.01, batch_size=20, optimizer="sgd")


class PlainLoop:
    """What a reader of the tutorials writes: a fresh model and optimizer per site, one sample order, no tricks."""

    def __init__(self, task: Task, device: str):
        self.task, self.device = task, device
        self.model = task.build_model().to(device)
        self.inputs = torch.from_numpy(task.train.inputs).to(device)
        self.labels = torch.from_numpy(task.train.labels).to(device)

    def train(self, params: torch.Tensor, sites: list[SiteWork]) -> list[torch.Tensor]:
        """The deltas [num_params] of the sites."""
        deltas = []
        for site in sites:
            trained = [p for p in self.model.parameters() if p.requires_grad]
            torch.nn.utils.vector_to_parameters(params.clone(), trained)
            optimizer = torch.optim.SGD(trained, lr=WORK.lr)
            for batch in torch.from_numpy(site.order).to(self.device).split(WORK.batch_size):
                optimizer.zero_grad()
                outputs = self.model(self.task.prepare(self.inputs[batch]))
                self.task.loss(outputs, self.labels[batch]).backward()
                optimizer.step()
            deltas.append(flatten(self.model) - params)
        return deltas


def contenders(task: Task, device: str) -> dict[str, Callable]:
    """By name: (params, sites) -> deltas. The plain loop first."""
    engines = {name: engine(task, WORK, device) for name, engine in ENGINES.items()}
    engines["sequential (autograd)"] = general = Sequential(task, WORK, device)
    general.step = AutogradStep(task.build_model().to(device), task.loss, WORK)

    def deltas(engine, params, sites):
        return [update.delta.clone() for update in engine.train(params, sites)]

    return {"plain": PlainLoop(task, device).train} | {
        name: partial(deltas, engine) for name, engine in sorted(engines.items())
    }


def random_task(shape: str, total: int, draw: np.random.Generator) -> Task:
    """As many random samples as all sites visit, and the model."""
    if shape == "W2":
        data = Dataset(*(draw.integers(80, size=(total, 80)).astype(kind) for kind in (np.uint8, np.int64)))
        build, prepare, loss, num_classes = (
            partial(CharLSTM, 80, True),
            torch.Tensor.long,
            next_character_loss,
            80,
        )
    else:
        images = (draw.random((total, 28, 28)) ** 4 * 255).astype(np.uint8)
        data = Dataset(images, draw.integers(62, size=total))
        build, prepare, loss, num_classes = MODELS[shape], normalise, F.cross_entropy, 62
    return Task(data, data, num_classes, build, prepare, loss, "random samples", synthetic=True)


def measure(
    shape: str, num_sites: int, num_samples: int, repeats: int, device: str
) -> dict[str, list[float]]:
    """Seconds a round of each contender, `repeats` of each, after one round that warms up and checks the result."""
    draw = np.random.default_rng(0)
    total = num_sites * num_samples
    task = random_task(shape, total, draw)
    torch.manual_seed(0)
    params = flatten(task.build_model()).to(device)
    sites = [
        SiteWork(site, order) for site, order in enumerate(draw.permutation(total).reshape(num_sites, -1))
    ]
    rivals = contenders(task, device)
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
    "--model", "shapes", multiple=True, type=click.Choice(SHAPES), default=tuple(MODELS), show_default=True
)
@click.option("--sites", default=4, show_default=True, type=click.IntRange(1))
@click.option("--samples", default=400, show_default=True, type=click.IntRange(1), help="Samples per site.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True)
def main(shapes: tuple[str, ...], sites: int, samples: int, repeats: int, device: str) -> None:
    """Measure and print the table."""
    torch.set_num_threads(1)
    title = f"{sites} sites x {samples} synthetic samples, batch {WORK.batch_size}, {device}, one thread, n = {repeats}"
    table = Table("model", "engine", "median s", "min s", "median of plain", "min of plain", title=title)
    for shape in shapes:
        seconds = measure(shape, sites, samples, repeats, device)
        plain = seconds["plain"]
        for name, times in seconds.items():
            median, least = statistics.median(times), min(times)
            ratios = f"{median / statistics.median(plain):.2f}", f"{least / min(plain):.2f}"
            table.add_row(shape, name, f"{median:.3f}", f"{least:.3f}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
