"""The command line. Heavy imports happen inside the commands, so that --help and errors are quick."""

from __future__ import annotations

import sys
from typing import Any

import click

import hpctrip
from hpctrip.app.plot import plot
from hpctrip.base.errors import HpctripError


class _DefaultsToRun(click.Group):
    """`hpctrip FILE.toml` means `hpctrip run FILE.toml`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h", "--version")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultsToRun, commands=[plot], context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(hpctrip.__version__, prog_name="hpctrip")
def cli() -> None:
    """Train real models over virtual, power-limited datacenter sites; tell how long it would have taken.

    Without a command: run.
    """


_overrides = click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="One line of TOML laid over the files."
)


@cli.command()
@click.argument("paths", nargs=-1, metavar="[FILE.toml]...")
@_overrides
@click.option("--out", metavar="FILE.h5", help="Results file (default: results/NAME-TIME.h5).")
@click.option("--overwrite", is_flag=True, help="Replace the results file if it exists.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint beside --out, if there is one.")
def run(
    paths: tuple[str, ...], overrides: tuple[str, ...], out: str | None, overwrite: bool, resume: bool
) -> None:
    """Train one scenario: TOML files merged left to right; none: a demonstration on embedded data.

    Under mpirun or srun rank 0 is the aggregator and every other rank hosts a share of the sites.
    """
    from hpctrip.app.launch import launch
    from hpctrip.app.resume import start_new, start_or_resume

    if resume:
        launch(lambda: start_or_resume(paths, overrides, out))
    else:
        launch(lambda: start_new(paths, overrides, out, overwrite))


@cli.command()
@click.argument("source", metavar="FILE.h5")
@click.argument("paths", nargs=-1, metavar="[FILE.toml]...")
@_overrides
@click.option("--out", metavar="FILE.h5", help="Write another results file (default: go on with FILE.h5).")
def resume(source: str, paths: tuple[str, ...], overrides: tuple[str, ...], out: str | None) -> None:
    """Go on with a run that ended early, on any number of ranks, or one whose stop rules change.

    FILE.h5 is its results file, or one of the two checkpoints beside it (FILE.h5.ckpt0, FILE.h5.ckpt1).
    """
    from hpctrip.app.launch import launch
    from hpctrip.app.resume import start_resumed

    launch(lambda: start_resumed(source, paths, overrides, out))


@cli.command()
@click.argument("paths", nargs=-1, metavar="[FILE.toml]...")
@_overrides
def check(paths: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Validate an input and print every key with the value in force."""
    import tomli_w

    from hpctrip.app.experiment import read_input
    from hpctrip.base.inputs import resolved

    experiment = read_input(paths, overrides).experiment
    experiment.num_sites()
    click.echo(tomli_w.dumps(_without_none(resolved(experiment))), nl=False)


@cli.command()
@click.argument("paths", nargs=-1, metavar="[FILE.toml]...")
@_overrides
@click.option("-n", "num_ranks", type=click.IntRange(1, 100_000), default=1, help="Ranks, rank 0 included.")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=10, help="Rounds to look ahead.")
@click.option(
    "--samples-per-second",
    type=click.FloatRange(0, min_open=True),
    help="Speed of a host; absent: a few batches are trained here.",
)
@click.option(
    "--gbit-per-second",
    type=click.FloatRange(0, min_open=True),
    default=10,
    show_default=True,
    help="Bandwidth of a rank's link to the others.",
)
def plan(
    paths: tuple[str, ...],
    overrides: tuple[str, ...],
    num_ranks: int,
    rounds: int,
    samples_per_second: float | None,
    gbit_per_second: float,
) -> None:
    """Say what a run would do and cost on so many ranks, and what is wrong with it, without running it."""
    from rich.console import Console

    from hpctrip.app.forecast import forecast

    planned = forecast(paths, overrides, num_ranks, rounds, samples_per_second, gbit_per_second * 1e9)
    Console(highlight=False).print(planned)


@cli.command()
def policies() -> None:
    """List the policies and their keys."""
    from hpctrip.app.keys import show_registry
    from hpctrip.sim.policies import POLICIES

    show_registry(POLICIES)


@cli.command()
def workloads() -> None:
    """List the workloads and their keys."""
    from hpctrip.app.keys import show_registry
    from hpctrip.learn.workloads import WORKLOADS

    show_registry(WORKLOADS)


@cli.command()
@click.argument("section", required=False)
def keys(section: str | None) -> None:
    """List every key of the input file, or those of one SECTION."""
    from hpctrip.app.keys import show_sections

    show_sections(section)


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE.h5...")
@click.option(
    "--status", is_flag=True, help="Print only the status: running, finished, interrupted or failed."
)
def show(paths: tuple[str, ...], status: bool) -> None:
    """Summarise results files."""
    from rich.console import Console

    from hpctrip.record.reader import open_runs
    from hpctrip.record.show import show as summary

    for run_ in open_runs(paths):
        if status:
            click.echo(run_.meta["status"])
        else:
            Console(highlight=False).print(summary(run_))


@cli.command()
@click.argument("path", metavar="FILE.h5")
@click.argument("folder", metavar="FOLDER")
def export(path: str, folder: str) -> None:
    """Write a results file's tables as CSV into FOLDER."""
    from hpctrip.record.reader import open_run
    from hpctrip.record.show import export as write

    for written in write(open_run(path), folder):
        click.echo(written)


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE.h5...")
@click.option("--no-replay", is_flag=True, help="Check the file against itself only (quick).")
@click.option("--plugins", is_flag=True, help="Run the plug-ins that a file's input names: they are code.")
def verify(paths: tuple[str, ...], no_replay: bool, plugins: bool) -> None:
    """Check results files. Exit code 2 where one is wrong.

    Each file is checked against itself (schema, checksums, clock arithmetic), then its simulated half is replayed from
    its stored input: the world, what was seen, the cohorts, who arrived, and the clock.
    """
    from hpctrip.base.errors import InputError
    from hpctrip.record.reader import open_runs
    from hpctrip.record.verify import verify as faults_of

    faults = []
    for run_ in open_runs(paths):
        found, but = faults_of(run_), ", not replayed" if no_replay else ""
        if not found and not no_replay:
            from hpctrip.app.replay import NotReplayable, replay

            try:
                found = replay(run_, plugins)
            except NotReplayable as reason:
                but = f", but not replayed: {reason}"
        faults += found
        click.echo(f"{run_.path}: {f'ok{but}' if not found else f'{len(found)} fault(s)'}")
    if faults:
        raise InputError(faults=faults)


@cli.command()
@click.argument("paths", nargs=2, metavar="A.h5 B.h5")
def diff(paths: tuple[str, str]) -> None:
    """Say where two runs part, and in what. Exit code 0: equal, 1: different, 2: a file cannot be read.

    Wall times, machines and input keys that change no result do not count.
    """
    from hpctrip.record.diff import diff as differences
    from hpctrip.record.reader import open_run

    a, b = map(open_run, paths)
    lines = differences(a, b)
    for line in lines or [f"equal: {len(a.rounds)} rounds, model digest {a.meta.get('params_digest', '')}"]:
        click.echo(line)
    if lines:
        raise click.exceptions.Exit(1)


@cli.command()
@click.argument("out", metavar="OUT.h5")
@click.argument("paths", nargs=-1, required=True, metavar="FILE.h5...")
def merge(out: str, paths: tuple[str, ...]) -> None:
    """Gather results files, e.g. of a sweep, in one table: a row a run, with the input keys that differ.

    Writes OUT.h5 (group /runs) and OUT.csv.
    """
    from hpctrip.record.merge import write_merged
    from hpctrip.record.reader import open_runs

    runs = open_runs(paths, besides=out)
    for written in write_merged(out, runs):
        click.echo(f"{written}: {len(runs)} runs")


@cli.command()
@click.argument("data", type=click.Choice(["emnist", "shakespeare", "speech"]))
@click.argument("folder", metavar="FOLDER")
def fetch(data: str, folder: str) -> None:
    """Download a public data set into FOLDER and check it; goes on where an earlier try stopped."""
    from hpctrip.learn.data.fetch import SOURCES
    from hpctrip.learn.data.fetch import fetch as download

    paths = download(SOURCES[data], folder)
    click.echo(f"{len(paths):,} file(s) in {folder}")
    click.echo(f"train on them with: -o workload.kind={data} -o workload.data={folder}")


@cli.command()
@click.argument("paths", nargs=-1, metavar="[FILE.toml]...")
@_overrides
def prepare(paths: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Prepare the data of an input once, ahead of its runs, e.g. on a login node that shares $HPCTRIP_CACHE."""
    from hpctrip.app.experiment import read_input
    from hpctrip.learn.data.cached import cache_dir

    experiment = read_input(paths, overrides).experiment
    experiment.workload.prepare_data(experiment.seed)
    click.echo(experiment.workload.checked_task(experiment.seed).source)
    click.echo(f"prepared in {cache_dir()}")


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: a key that is absent means its default."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }


def main() -> None:
    """Entry point: every error that hpctrip or click reports is one clear text on rank 0 and an exit code."""
    from hpctrip.ranks.open import launched_rank

    try:
        if code := cli(standalone_mode=False):  # click returns the code of an Exit
            sys.exit(code)
    except click.ClickException as error:
        if launched_rank() == 0:
            error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except HpctripError as error:
        for line in str(error).splitlines():
            print(f"hpctrip: {line}", file=sys.stderr)
        sys.exit(error.exit_code)
