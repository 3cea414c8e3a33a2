"""The command `study`, and `run` with sweeps. They import heavy modules when called."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctrip.base.errors import InputError
from hpctrip.base.process import launched_rank, refuse_launcher
from hpctrip.base.text import printable
from hpctrip.cli.arguments import (
    FILE,
    SITE_OPTIONS,
    Speed,
    echo,
    echo_list,
    input_options,
    out_option,
    overwrite_option,
    plugins_option,
    site_options,
    store_option,
)
from hpctrip.ranks.watchdog.guardian import Guardian

if TYPE_CHECKING:
    from hpctrip.studies.run_store import RunState
    from hpctrip.studies.study import Study

RESULTS = "results/studies"
"""Default folder of studies and their runs."""
STARTS_RUNS = "start it once: it starts its runs itself (--jobs, --ranks)"


def _jobs(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """A number of workers; None of `auto`."""
    return None if value == "auto" else click.IntRange(1, 10_000).convert(value, param, ctx)


jobs_option = click.option(
    "--jobs",
    default="auto",
    metavar="N|auto",
    callback=_jobs,
    help="Parallel runs: one per GPU, or per core.",
)


sweep_option = click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=VALUE,VALUE",
    help="An axis: runs with each of these values; 0..9 means ten values.",
)


@click.command()
@click.argument("path", type=FILE, metavar="FILE.toml|NAME", required=False)
@click.option(
    "--out", type=FILE, default=RESULTS, show_default=True, metavar="DIR", help="Folder of runs and studies."
)
@jobs_option
@click.option(
    "--ranks", type=click.IntRange(1, 100_000), default=1, help="Ranks of every run, started by mpirun."
)
@click.option(
    "--only", metavar="PATTERN", help="Only runs whose name contains this text, or matches it (* and ?)."
)
@click.option("--small", is_flag=True, help="The study's small form.")
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of all runs, e.g. policy.k=50.",
)
@sweep_option
@plugins_option
@click.option(
    "--import",
    "imports",
    type=FILE,
    multiple=True,
    metavar="LEDGER.csv",
    help="First import runs of another machine.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar='"NAME [KEY=VALUE]..."',
    help="Only draw this figure of the finished runs, with its options and format=png,pdf,svg.",
)
@click.option(
    "--artifact",
    type=FILE,
    metavar="FOLDER",
    help="Only export the finished runs, from inputs to figures, with environment, commands and checksums, "
    "into this new folder, an RO-Crate.",
)
@click.option(
    "--author",
    metavar='"NAME, ORGANIZATION <ADDRESS>"',
    help="For --artifact: who made the runs; the name alone is enough.",
)
@click.option(
    "--license",
    "terms",
    metavar="TERMS",
    help="For --artifact: CC-BY-4.0, another SPDX identifier, or an address.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "latex"]),
    default="text",
    help="latex: only the table on stdout, for the package booktabs.",
)
@click.option(
    "--list", "listed", is_flag=True, help="Only list which runs are finished, running, failed or stale."
)
@click.option(
    "--dry-run", "planned", is_flag=True, help="Only report the missing runs, their wall time and disk space."
)
@click.option(
    "--samples-per-second", type=Speed(), help="For --dry-run: speed of a worker (default: measured)."
)
@click.option("--slurm", "submitted", is_flag=True, help="Submit the missing runs as a job array.")
@click.option(
    "--at-once",
    type=click.IntRange(1),
    metavar="N",
    help="For --slurm: maximum number of simultaneous tasks.",
)
@site_options
@click.option(
    "--task",
    type=click.IntRange(0),
    hidden=True,
    help="Make the run with this index, on the available ranks.",
)
@click.option("--tasks", type=FILE, hidden=True, help="For --task: the file of indexed runs.")
def study(path: str | None, **args: Any) -> None:
    """Make a study's missing runs, its table and figures; without FILE, list the built-in studies.

    Each run is stored under its identity (input, data, plug-ins). So studies share runs, and a study that is started
    again, after a kill or with another input, makes only the missing runs.
    """
    if path is None:
        from hpctrip.config.package_data import STUDIES, described, shipped

        echo_list({name: described(file) for name, file in shipped(STUDIES).items()})
    elif args["task"] is not None:
        from hpctrip.studies.slurm import run_task

        run_task(args["task"], args["tasks"], lambda name: _read(path, args, checked=False, name=name))
    else:
        refuse_launcher("study", STARTS_RUNS)
        _study(path, args)


def _read(path: str, args: dict[str, Any], checked: bool, name: str = "") -> list[Study]:
    from hpctrip.studies.studies import Changes, read_studies, study_file

    changes = Changes(*(args[option] for option in Changes._fields))
    return read_studies(study_file(path), Path(args["out"]), changes, checked, name)


def _study(path: str, args: dict[str, Any]) -> None:
    from hpctrip.studies import run as runs
    from hpctrip.studies.imported import import_runs
    from hpctrip.studies.studies import all_entries

    studies = _read(path, args, checked=not args["listed"])
    for ledger in args["imports"]:
        echo(import_runs(ledger, all_entries(studies), studies[0].runs.folder / "runs"))
    lines = runs.chosen(studies, args["only"])
    if args["listed"]:
        for line in lines:
            click.echo(printable(f"{line.status:11}  {line.entry.name}  {line.reason}".rstrip(), 300))
    elif args["planned"]:
        from hpctrip.studies.execute import capacity
        from hpctrip.studies.plan import report

        for text in report(lines, args["jobs"] or capacity()[0], args["samples_per_second"]):
            echo(text)
    elif args["figures"]:
        _draw(studies, args["figures"])
    elif args["artifact"]:
        from hpctrip.studies.artifact import write_artifact

        for each in studies:
            folder = Path(args["artifact"], *([each.name] if len(studies) > 1 else []))
            echo(write_artifact(each, folder, args["author"], args["terms"]))
    elif args["submitted"]:
        _submit(path, studies, [line for line in lines if line.can_be_made], args)
    else:
        latex = args["form"] == "latex"
        runs.run(studies, args["only"], args["jobs"], args["ranks"], _command_line(), latex)


def _draw(studies: list[Study], figures: tuple[str, ...]) -> None:
    from hpctrip.studies.file import Picture

    pictures = [Picture.of_text(text) for text in figures]
    for study in studies:
        for picture in pictures:
            echo(*study.draw(picture))


def _submit(path: str, studies: list[Study], todo: list[RunState], args: dict[str, Any]) -> None:
    from hpctrip.studies.slurm import submit

    if not todo:
        click.echo("nothing is left to make")
        return
    words = [path, "--out", args["out"], *(["--small"] if args["small"] else [])]
    for option, values in (("-o", "overrides"), ("--sweep", "sweeps"), ("--plugin", "plugins")):
        words += [word for value in args[values] for word in (option, value)]
    jobs = submit(studies, todo, args["at_once"], words, **{name: args[name] for name in SITE_OPTIONS})
    arrays = "an array" if len(jobs) == 1 else f"{len(jobs)} arrays"
    click.echo(f"job {', '.join(jobs)}: {len(todo)} runs as tasks of {arrays}")
    line = f"table and figures, once all is over: python -m hpctrip study {shlex.join(words)}"
    click.echo(printable(line, 4000))


def _command_line() -> str:
    return f"python -m hpctrip {shlex.join(sys.argv[1:])}"


@click.command()
@input_options
@sweep_option
@jobs_option
@out_option
@overwrite_option
@click.option("--resume", is_flag=True, help="Resume from the checkpoint beside --out, if there is one.")
@store_option
def run(
    sweeps: tuple[str, ...],
    jobs: int | None,
    out: str | None,
    overwrite: bool,
    resume: bool,
    **run_input: tuple[str, ...],
) -> None:
    """Train one scenario, or without FILE a demonstration on embedded data.

    TOML files are merged from left to right.

    Under mpirun or srun, rank 0 is the aggregator and every other rank hosts a share of the sites.

    --sweep policy.k=10,20,40 --sweep seed=0..9 runs all combinations in parallel, as a study. --out is then its
    folder, and repeating the command makes the missing runs.
    """
    own = run_input["plugins"] or any(
        re.search(r"\b(data|model|path)\s*=", line) for line in run_input["overrides"]
    )
    if not run_input["paths"] and not own and launched_rank() == 0:
        click.echo(
            "demonstration on synthetic data, as no input file is named; `hpctrip --help` lists the commands"
        )
    if sweeps:
        _sweep(sweeps, jobs, out or RESULTS, overwrite, **run_input)
        return
    with Guardian() as guardian:
        from hpctrip.runner.resume import start_or_resume
        from hpctrip.runner.session import launch, start_new

        if resume:
            launch(lambda: start_or_resume(out=out, **run_input), guardian)
        else:
            launch(lambda: start_new(out=out, overwrite=overwrite, **run_input), guardian)


def _sweep(
    sweeps: tuple[str, ...],
    jobs: int | None,
    folder: str,
    overwrite: bool,
    paths: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
) -> None:
    from hpctrip.studies.run import run
    from hpctrip.studies.studies import Changes, sweep_study

    refuse_launcher("run --sweep", STARTS_RUNS)
    if folder.endswith((".h5", ".hdf5")):
        raise InputError(f"--out {folder}", "is one file, and a sweep makes several", "name a folder")
    if overwrite:
        raise InputError("--overwrite", "a sweep keeps each run by its input: there is nothing to overwrite")
    swept = sweep_study(paths, Path(folder), Changes(overrides, sweeps, plugins))
    run([swept], None, jobs, 1, _command_line())
