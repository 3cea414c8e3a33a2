"""Commands of the GPU-cluster simulator: `cluster run`, `check`, `keys`, `fit`."""

from __future__ import annotations

import click

from hpctrip.base.text import printable, printable_toml
from hpctrip.cli.arguments import FILE, DefaultsToRun, input_options, out_option, overwrite_option


@click.group(cls=DefaultsToRun, invoke_without_command=True)
def cluster() -> None:
    """Simulate a GPU cluster that schedules jobs under a power or energy budget (PowerFlow).

    `hpctrip cluster FILE.toml` means `hpctrip cluster run FILE.toml`.
    """


@cluster.command()
@input_options
@out_option
@overwrite_option
def run(out: str | None, overwrite: bool, **cluster_input: tuple[str, ...]) -> None:
    """Simulate one cluster, or without FILE synthetic jobs on 128 GPUs. TOML files are merged from left to right."""
    from rich.console import Console

    from hpctrip.cluster.results import ClusterRun
    from hpctrip.cluster.run import simulate
    from hpctrip.record.show import show

    path = simulate(**cluster_input, out=out, overwrite=overwrite)
    Console(highlight=False).print(show(ClusterRun.open(path)))


@cluster.command()
@input_options
def check(**cluster_input: tuple[str, ...]) -> None:
    """Validate the input of a cluster, read its trace, and print every key with its value."""
    from hpctrip.cluster.run import read_cluster_input
    from hpctrip.config.inputs import resolved_toml

    scenario = read_cluster_input(**cluster_input).scenario
    simulator = scenario.simulator()
    click.echo(printable_toml(resolved_toml(scenario)), nl=False)
    for line in scenario.start(simulator):
        click.echo(f"# simulated time begins: {line}")


@cluster.command()
@click.argument("name", required=False)
def keys(name: str | None) -> None:
    """Describe all input keys of a cluster, or those of NAME, like `hpctrip keys`."""
    from hpctrip.cli.reference import show_keys
    from hpctrip.cluster.scenario import ClusterScenario

    show_keys(name, ClusterScenario)


@cluster.command()
@click.argument("tables", nargs=-1, type=FILE, required=True, metavar="TABLE.csv...")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="GPUs per node of the measured cluster.",
)
def fit(tables: tuple[str, ...], gpus_per_node: int) -> None:
    """Fit the model of a step's time to tables of measured throughputs, and print parameters and errors.

    A table is a model's: a row for each global batch size, a column for each number of GPUs, steps per second.
    """
    from dataclasses import asdict
    from pathlib import Path

    from hpctrip.cluster.models import read_throughputs
    from hpctrip.cluster.step_time import StepTime, fit_step_time

    names = StepTime.__annotations__
    click.echo(f"{'model':18}{'mean error':>11}{'largest':>9}" + "".join(f"{name:>12}" for name in names))
    for path in tables:
        form = fit_step_time(measured := read_throughputs(path, gpus_per_node))
        error = abs(form.ratios(measured) - 1)
        numbers = "".join(f"{value:12.5g}" for value in asdict(form).values())
        name = printable(Path(path).stem, 17)
        click.echo(f"{name:18}{error.mean():11.2%}{error.max():9.2%}{numbers}")
