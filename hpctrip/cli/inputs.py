"""Commands that take an input: `resume`, `retime`, `check`, `plan`, `prepare`. `run` is in `cli/run.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable_toml
from hpctrip.cli.arguments import (
    FILE,
    Speed,
    echo,
    format_option,
    input_options,
    out_option,
    overwrite_option,
    store_option,
)
from hpctrip.ranks.watchdog.guardian import Guardian

Texts = tuple[str, ...]


@click.command()
@click.argument("source", type=FILE, metavar="FILE.h5")
@input_options
@click.option(
    "--out", type=FILE, metavar="FILE.h5", help="Write another results file (default: continue FILE.h5)."
)
def resume(source: str, out: str | None, **run_input: Texts) -> None:
    """Resume an interrupted run, or a finished one with new stop rules, on any number of ranks.

    FILE.h5 is its results file, or one of the two checkpoints beside it (FILE.h5.ckpt0, FILE.h5.ckpt1). Plug-ins must
    be named again, because hpctrip runs no code that such a file names.
    """
    with Guardian() as guardian:
        from hpctrip.runner.resume import start_resumed
        from hpctrip.runner.session import launch

        launch(lambda: start_resumed(source, out=out, **run_input), guardian)


@click.command()
@click.argument("source", type=FILE, metavar="FILE.h5")
@input_options
@out_option
@overwrite_option
@store_option
def retime(source: str, out: str | None, overwrite: bool, **run_input: Texts) -> None:
    """Compute the time of a run under another clock, network, power or policy.

    The input is that of FILE.h5, overridden by files and -o options. If the same sites train in every round, nothing
    is trained and it takes seconds. Otherwise rounds that are not in the cache are trained. Keys that affect training
    may not change. Plug-ins must be named again.
    """
    with Guardian() as guardian:
        from hpctrip.record.reader import open_run
        from hpctrip.runner.resume import comparison, start_retimed
        from hpctrip.runner.session import launch

        path = launch(lambda: start_retimed(source, out=out, overwrite=overwrite, **run_input), guardian)
    if path:
        echo(*comparison(open_run(source), open_run(path)))


@click.command()
@input_options
def check(**run_input: Texts) -> None:
    """Validate an input and print every key with its value.

    Input files are checked without computing: sites, outages and traces are read; data and packages must exist. A model
    of your own is tried on a few samples, for which the data are prepared.
    """
    from hpctrip.config.inputs import resolved_toml
    from hpctrip.runner.experiment import read_input
    from hpctrip.sim import plausible
    from hpctrip.sim.step import State

    checked = read_input(**run_input)
    experiment = checked.experiment
    simulation = experiment.check()
    simulation.begin(State())
    if experiment.workload.has_own_model:
        from hpctrip.plan import forecast  # heavy: torch
        from hpctrip.plan.speed import stated

        forecast(experiment, 1, stated(1.0), device_kind="cpu")
    world = simulation.world
    data = experiment.workload.described_data()
    for warning in (*checked.warnings, *plausible.warnings(world, experiment.stop.max_clock_s)):
        click.echo(f"warning: {warning}", err=True)
    click.echo(printable_toml(resolved_toml(experiment)), nl=False)
    for line in world.start:
        click.echo(f"# simulated time begins: {line}")
    click.echo(f"# power: {plausible.power_at_start(world)}")
    if data:
        click.echo(f"# data: {data}")
    for line in experiment.sites.drawn():
        click.echo(f"# sites: {line}")


@click.command()
@input_options
@click.option("-n", "num_ranks", type=click.IntRange(1, 100_000), default=1, help="Ranks, rank 0 included.")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=10, help="Rounds to look ahead.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu", "cuda"]),
    default="auto",
    help="Device of the hosts; gpu works without one here. auto: as in the input, or else as on this machine.",
)
@click.option(
    "--memory-gb",
    type=Speed(),
    help="Memory of a host's GPU, or its share of a node's: checks whether the model and the updates fit.",
)
@click.option(
    "--samples-per-second", type=Speed(), help="Speed of a host (default: measured here with a few batches)."
)
@click.option(
    "--gbit-per-second",
    type=Speed(),
    default=10,
    show_default=True,
    help="Network bandwidth of a rank.",
)
@click.option(
    "--bandwidth", is_flag=True, help="Print the bandwidth that a compute utilisation needs instead."
)
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="KEY=VALUE,VALUE",
    help="With --bandwidth: rows of these values of num_params, step_s, local_steps, bits, num_sites (as in the "
    "input), fragments, overlap_steps, latency_s.",
)
@format_option
def plan(bandwidth: bool, varied: Texts, as_json: bool, **options: Any) -> None:
    """Predict the work and cost of a run on a number of ranks, and warn of problems, without running it.

    With --bandwidth: the bandwidth that a compute utilisation of 50 to 99 % needs, and the utilisation over the links
    of the input. It needs no input where --vary names all values.
    """
    from hpctrip.base.io import json_text
    from hpctrip.plan import bandwidth as bandwidths
    from hpctrip.plan import forecast, report
    from hpctrip.plan.speed import stated
    from hpctrip.runner.experiment import read_input

    if varied and not bandwidth:
        raise InputError(f"--vary {varied[0]}", "is an option of --bandwidth", "add --bandwidth")
    run_input = {name: options.pop(name) for name in ("paths", "overrides", "plugins")}
    if bandwidth:
        from hpctrip.studies.studies import axes_of

        _refuse_with_bandwidth(options)
        axes = axes_of(varied, "--vary")
        needs_input = any(run_input.values()) or not axes.keys() >= bandwidths.REQUIRED
        planned = forecast(read_input(**run_input).experiment, 1, stated(1.0)) if needs_input else None
        table = bandwidths.rows(axes, planned)
        click.echo(json_text(table) if as_json else "\n".join(bandwidths.report(table)))
        return
    planned_input, samples = read_input(**run_input), options["samples_per_second"]
    for warning in planned_input.warnings:
        click.echo(f"warning: {warning}", err=True)
    planned = forecast(
        planned_input.experiment,
        options["rounds"],
        stated(samples) if samples else None,
        options["num_ranks"],
        options["gbit_per_second"] * 1e9,
        options["device"],
        (options["memory_gb"] or math.inf) * 1e9,
    )
    click.echo(json_text(report.values(planned)) if as_json else "\n".join(report.report(planned)))


def _refuse_with_bandwidth(options: Iterable[str]) -> None:
    """InputError for the first of these options of `plan` that the command line names."""
    context = click.get_current_context()
    flags = {option.name: option.opts[-1] for option in context.command.params}
    for name in options:
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            problem = "does not change the bandwidth that a utilisation needs"
            raise InputError(f"{flags[name]} {context.params[name]}", problem, "leave it out")


@click.command()
@input_options
def prepare(**run_input: Texts) -> None:
    """Prepare the data of an input in advance, e.g. on a login node that shares $HPCTRIP_CACHE."""
    from hpctrip.learn.data.cached import cache_dir
    from hpctrip.runner.experiment import read_input

    experiment = read_input(**run_input).experiment
    experiment.workload.prepare_data(experiment.seed)
    echo(experiment.workload.checked_task(experiment.seed).source, f"prepared in {cache_dir()}")
