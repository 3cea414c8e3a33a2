"""`run`, `resume`, `retime`, `check`, `plan`, `prepare`: what is done with an input."""

from __future__ import annotations

from typing import Literal

import click

from hpctrip.base.text import printable, printable_toml
from hpctrip.base.units import GB
from hpctrip.cli.arguments import FILE, a_store, an_input, format_option, overwrite_option, planning
from hpctrip.ranks.watchdog.guardian import Guardian

Given = tuple[str, ...]


@click.command()
@an_input
@click.option("--out", type=FILE, metavar="FILE.h5", help="Results file (default: results/NAME-TIME.h5).")
@overwrite_option
@click.option("--resume", is_flag=True, help="Go on from the checkpoint beside --out, if there is one.")
@a_store
def run(out: str | None, overwrite: bool, resume: bool, **given: Given) -> None:
    """Train one scenario: TOML files merged left to right; none: a demonstration on embedded data.

    Under mpirun or srun rank 0 is the aggregator and every other rank hosts a share of the sites.
    """
    with Guardian() as guardian:
        from hpctrip.runner.resume import start_new, start_or_resume
        from hpctrip.runner.session import launch

        if resume:
            launch(lambda: start_or_resume(out=out, **given), guardian)
        else:
            launch(lambda: start_new(out=out, overwrite=overwrite, **given), guardian)


@click.command()
@click.argument("source", type=FILE, metavar="FILE.h5")
@an_input
@click.option(
    "--out", type=FILE, metavar="FILE.h5", help="Write another results file (default: go on with FILE.h5)."
)
def resume(source: str, out: str | None, **given: Given) -> None:
    """Go on with a run that ended early, on any number of ranks, or one whose stop rules change.

    FILE.h5 is its results file, or one of the two checkpoints beside it (FILE.h5.ckpt0, FILE.h5.ckpt1). Plug-ins are
    never run because such a file names them: give them again.
    """
    with Guardian() as guardian:
        from hpctrip.runner.resume import start_resumed
        from hpctrip.runner.session import launch

        launch(lambda: start_resumed(source, out=out, **given), guardian)


@click.command()
@click.argument("source", type=FILE, metavar="FILE.h5")
@an_input
@click.option("--out", type=FILE, metavar="NEW.h5", help="Results file (default: results/NAME-TIME.h5).")
@click.option("--overwrite", is_flag=True, help="Replace the results file if it exists.")
@a_store
def retime(source: str, out: str | None, overwrite: bool, **given: Given) -> None:
    """Say what a run would have taken under another clock, network, power or policy.

    The input is the one stored in FILE.h5, with files and -o lines laid over it. Where the same sites train in every
    round, nothing is trained and it takes seconds; where other sites do, the run is trained, from where a store's
    rounds end. What training itself sees may not change. Plug-ins are given again.
    """
    with Guardian() as guardian:
        from hpctrip.record.reader import open_run
        from hpctrip.runner.retime import comparison, start_retimed
        from hpctrip.runner.session import launch

        path = launch(lambda: start_retimed(source, out=out, overwrite=overwrite, **given), guardian)
    if path:
        for line in comparison(open_run(source), open_run(path)):
            click.echo(printable(line, 1000))


@click.command()
@an_input
def check(**given: Given) -> None:
    """Validate an input and print every key with the value in force.

    What it names is looked at as far as that costs no computing: sites, outages and traces are read, data and packages
    must be there.
    """
    from hpctrip.runner.experiment import read_input
    from hpctrip.sim.step import State

    checked = read_input(**given)
    checked.experiment.check().begin(State())
    for warning in checked.experiment.network.warnings():
        click.echo(f"warning: {warning}", err=True)
    click.echo(printable_toml(checked.resolved_toml), nl=False)


@click.command()
@an_input
@planning
@format_option
def plan(
    num_ranks: int,
    rounds: int,
    device: Literal["auto", "cpu", "gpu"],
    memory_gb: float | None,
    samples_per_second: float | None,
    gbit_per_second: float,
    as_json: bool,
    **given: Given,
) -> None:
    """Say what a run would do and cost on so many ranks, and what is wrong with it, without running it."""
    from rich.console import Console

    from hpctrip.base.io import json_text
    from hpctrip.plan import forecast
    from hpctrip.plan.report import report
    from hpctrip.runner.experiment import read_input

    experiment = read_input(**given).experiment
    speeds = samples_per_second, gbit_per_second * 1e9
    planned = forecast(experiment, num_ranks, rounds, *speeds, device, memory_gb and memory_gb * GB)
    if as_json:
        click.echo(json_text(planned.values()))
    else:
        Console(highlight=False).print(report(planned))


@click.command()
@an_input
def prepare(**given: Given) -> None:
    """Prepare the data of an input once, ahead of its runs, e.g. on a login node that shares $HPCTRIP_CACHE."""
    from hpctrip.learn.data.cached import cache_dir
    from hpctrip.runner.experiment import read_input

    experiment = read_input(**given).experiment
    experiment.workload.prepare_data(experiment.seed)
    click.echo(printable(experiment.workload.checked_task(experiment.seed).source, 1000))
    click.echo(f"prepared in {cache_dir()}")
