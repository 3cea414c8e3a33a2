"""The commands of `study`. They import heavy modules when called."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hpctrip.base.errors import InputError
from hpctrip.base.process import refuse_launcher
from hpctrip.base.text import counted, printable
from hpctrip.cli.arguments import (
    FILE,
    STARTS_RUNS,
    STUDIES_FOLDER,
    DefaultsToRun,
    Number,
    Speed,
    command_line,
    echo,
    echo_list,
    jobs_option,
    plugins_option,
    site_options,
    sweep_option,
)

if TYPE_CHECKING:
    from hpctrip.studies.study import Study


_OF_STUDY = (
    click.argument("name", type=FILE, metavar="FILE.toml|NAME"),
    click.option(
        "--out",
        type=FILE,
        default=STUDIES_FOLDER,
        show_default=True,
        metavar="DIR",
        help="Folder of runs and studies.",
    ),
    click.option("--small", is_flag=True, help="The study's small form."),
    click.option(
        "-o",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key of all runs, e.g. policy.k=50.",
    ),
    sweep_option,
    plugins_option,
)
only_option = click.option(
    "--only", metavar="PATTERN", help="Only runs whose name contains this text, or matches it (* and ?)."
)
ranks_option = click.option(
    "--ranks", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Ranks of every run."
)


class Choice(NamedTuple):
    """The study that a command line names, with its changes."""

    name: str
    out: str
    changes: Mapping[str, Any]

    def read(self, checked: bool = True) -> list[Study]:
        """Its studies: itself, or those that it includes. Raises InputError."""
        from hpctrip.studies.studies import Changes, read_studies, study_file

        return read_studies(study_file(self.name), Path(self.out), Changes(**self.changes), checked)

    @property
    def words(self) -> str:
        """The words of a command line that name it."""
        words = [self.name, "--out", self.out, *(["--small"] if self.changes["small"] else [])]
        for option, values in (("-o", "overrides"), ("--sweep", "sweeps"), ("--plugin", "plugins")):
            words += [word for value in self.changes[values] for word in (option, value)]
        return shlex.join(words)


def of_study(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that choose a study, which the command gets as a `Choice`."""

    @functools.wraps(command)
    def with_choice(
        name: str, out: str, small: bool, overrides: Any, sweeps: Any, plugins: Any, **args: Any
    ) -> None:
        refuse_launcher("study", STARTS_RUNS)
        changes = {"small": small, "overrides": overrides, "sweeps": sweeps, "plugins": plugins}
        command(Choice(name, out, changes), **args)

    return functools.reduce(lambda decorated, add: add(decorated), reversed(_OF_STUDY), with_choice)


SUCCESSORS = {
    "--list": "status",
    "--dry-run": "plan",
    "--samples-per-second": "plan",
    "--slurm": "submit",
    "--at-once": "submit",
    "--figure": "tables",
    "--format": "tables",
    "--artifact": "export",
    "--author": "export",
    "--license": "export",
    "--task": "submit",
}
"""{option that `study` had before 0.4: the command that does this now}."""


class _Study(DefaultsToRun):
    """`hpctrip study NAME` means `hpctrip study run NAME`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line. Raises InputError for an option that has become a command."""
        if not args:
            return super(DefaultsToRun, self).parse_args(ctx, ["list"])
        if args[0] not in self.commands or args[0] == "run":
            for word in args:
                if successor := SUCCESSORS.get(word.partition("=")[0]):
                    place, problem = word.partition("=")[0], "is an option no more, but a command"
                    raise InputError(place, problem, f"hpctrip study {successor} NAME")
        return super().parse_args(ctx, args)


@click.group(cls=_Study)
def study() -> None:
    """Make a study's missing runs, its table and figures; without a command, list the built-in studies.

    `hpctrip study NAME` means `hpctrip study run NAME`. Each run is stored under its identity (input, data, plug-ins).
    So studies share runs, and a study that is started again, after a kill or with another input, makes only the missing
    runs.
    """


@study.command("list")
def built_in() -> None:
    """List the built-in studies."""
    from hpctrip.config.package_data import STUDIES, described, shipped

    echo_list({name: described(file) for name, file in shipped(STUDIES).items()})


@study.command("run")
@of_study
@jobs_option
@ranks_option
@only_option
@click.option(
    "--import", "imports", type=FILE, multiple=True, metavar="LEDGER.csv", help="As `study import`, before."
)
def study_run(
    choice: Choice, jobs: int | None, ranks: int, only: str | None, imports: tuple[str, ...]
) -> None:
    """Make the missing runs on this machine, then tables and figures."""
    from hpctrip.studies.run import run

    studies = choice.read()
    _import(studies, imports)
    run(studies, only, jobs, ranks, command_line())


@study.command()
@of_study
@only_option
@ranks_option
@click.option(
    "--gpus", type=click.IntRange(0, 100_000), default=0, show_default=True, help="GPUs of every run."
)
@click.option(
    "--nodes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Nodes of every run; several are taken whole, with the ranks dealt out evenly.",
)
@click.option("--time", metavar="HH:MM:SS", help="Time limit of every job (default: 04:00:00).")
@click.option("--constraint", metavar="C", help="Features that the nodes must have.")
@click.option("--at-once", type=click.IntRange(1), metavar="N", help="Maximum number of simultaneous tasks.")
@click.option("--write", is_flag=True, help="Only write the list of runs and the script.")
@site_options
def submit(choice: Choice, only: str | None, at_once: int | None, write: bool, **resources: Any) -> None:
    """Submit the missing runs to Slurm as job arrays, a task for every run.

    The runs are written to a list, so that a study file that changes while an array waits changes none of them.
    `study job LIST` executes the run of this list whose index a scheduler has set: Slurm, PBS, LSF, Kubernetes.
    """
    from hpctrip.studies.run import chosen
    from hpctrip.studies.slurm import Submission, is_submitted

    studies = choice.read()
    left = [line for line in chosen(studies, only) if line.can_be_made]
    todo = [line.entry for line in left if not is_submitted(line)]
    if under_way := len(left) - len(todo):
        echo(f"{counted(under_way, 'run')} queued or running already")
    if not todo:
        click.echo("nothing is left to submit")
        return
    submission = Submission.write(
        studies[0].runs, studies[0].name, todo, **_site(studies[0].file.name, **resources)
    )
    if write:
        echo(f"list of {len(todo)} runs: {submission.list_file}")
        for _, words in submission.commands(at_once):
            click.echo(printable(shlex.join(["sbatch", *words]), 4000))
        return
    jobs = submission.submit(at_once)
    kind = "job" if len(jobs) == len(todo) else "job array"  # some Slurms accept no arrays
    each = f"{counted(resources['ranks'], 'rank')}, {counted(resources['gpus'], 'GPU')} each"
    echo(
        f"job {', '.join(jobs)}: {counted(len(todo), 'run')} in {counted(len(jobs), kind)}, {each}",
        f"script: {submission.script}",
    )
    for command, what in (("status", "how far it is"), ("tables", "table and figures, once all is over")):
        click.echo(printable(f"{what}: python -m hpctrip study {command} {choice.words}", 4000))


def _site(
    name: str, ranks: int, gpus: int, nodes: int, time: str | None, constraint: str | None, **site: Any
) -> dict[str, Any]:
    """The arguments of `site_script` for these resources."""
    wanted = {"job-name": name, "nodes": nodes, "ntasks": ranks, "gpus": gpus or None, "time": time}
    wanted |= {"constraint": constraint} | ({"distribution": "cyclic", "mem": 0} if nodes > 1 else {})
    own = [f"--{name}={value}" for name, value in wanted.items() if value is not None]
    own += ["--exclusive"] if nodes > 1 else []  # why: slurm/emnist_dynamic.sh
    return site | {"options": [*own, *site["options"]]}


@study.command()
@click.argument("runs", type=FILE, metavar="LIST")
@click.option("--index", type=click.IntRange(0), help="Index of the run; default: that of the array's job.")
@click.option("--first", type=click.IntRange(0), default=0, help="Number of the list's run with index 0.")
def job(runs: str, index: int | None, first: int) -> None:
    """Execute one run of a list that `study submit` has written, on the ranks of this job.

    Which one, tells $SLURM_ARRAY_TASK_ID, $PBS_ARRAY_INDEX, $LSB_JOBINDEX or $JOB_COMPLETION_INDEX.
    """
    from hpctrip.studies.frozen import run_of_list

    run_of_list(runs, index, first)


@study.command()
@of_study
@only_option
@click.option("--watch", is_flag=True, help="Go on until no run is queued or running.")
def status(choice: Choice, only: str | None, watch: bool) -> None:
    """Show which runs are finished, running, queued, failed or stale, and how far they are.

    A stale run was finished before, with another input. With --watch finished runs are only counted, and the exit code
    is 1 where runs have failed.
    """
    from hpctrip.studies.status import show

    show(choice.read(checked=False), only, watch)


@study.command()
@of_study
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "latex"]),
    default="text",
    help="latex: only the table on stdout, for the package booktabs.",
)
@click.option(
    "--target",
    type=Number(1e-9, 1),
    metavar="FRACTION",
    help="Only print the table at this accuracy, by the recorded curves.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar='"NAME [KEY=VALUE]..."',
    help="Only draw this figure of the finished runs, with its options and format=png,pdf,svg.",
)
def tables(choice: Choice, form: str, target: float | None, figures: tuple[str, ...]) -> None:
    """Make the tables and figures of the finished runs. Nothing is trained."""
    from hpctrip.studies.file import Picture

    if target and figures:
        raise InputError("--target", "is of the table", f'write --figure "{figures[0]} target={target:g}"')
    pictures = [Picture.of_text(text) for text in figures]
    printed = 0
    for each in choice.read():
        table = each.conclude if target is None else functools.partial(each.compared_at, target)
        lines = table(form == "latex") if not pictures else []
        for text in [*lines, *(line for picture in pictures for line in each.draw(picture))]:
            echo(text)
            printed += 1
    if not printed:
        way_on = f"hpctrip study status {choice.words} lists its runs, `study run` makes them"
        raise InputError(f"study {choice.name}", "has no finished run", way_on)


@study.command()
@of_study
@only_option
@jobs_option
@click.option("--samples-per-second", type=Speed(), help="Speed of a worker (default: measured).")
def plan(choice: Choice, only: str | None, jobs: int | None, samples_per_second: float | None) -> None:
    """Report the missing runs, their wall time and disk space."""
    from hpctrip.studies.execute import capacity
    from hpctrip.studies.plan import report
    from hpctrip.studies.run import chosen

    lines = chosen(choice.read(), only)
    jobs = jobs or capacity(line.entry for line in lines)[0]
    for text in report(lines, jobs, samples_per_second):
        echo(text)


@study.command("import")
@of_study
@click.argument("ledgers", type=FILE, nargs=-1, required=True, metavar="LEDGER.csv...")
def import_(choice: Choice, ledgers: tuple[str, ...]) -> None:
    """Take up the finished runs of a ledger of another machine."""
    _import(choice.read(), ledgers)


def _import(studies: list[Study], ledgers: tuple[str, ...]) -> None:
    from hpctrip.studies.imported import import_runs
    from hpctrip.studies.studies import all_entries

    for ledger in ledgers:
        echo(import_runs(ledger, all_entries(studies), studies[0].runs.folder / "runs"))


@study.command("export")
@of_study
@click.argument("folder", type=FILE)
@click.option(
    "--author",
    metavar='"NAME, ORGANIZATION <ADDRESS>"',
    help="Who made the runs; the name alone is enough.",
)
@click.option(
    "--license", "terms", metavar="TERMS", help="CC-BY-4.0, another SPDX identifier, or an address."
)
def export(choice: Choice, folder: str, author: str | None, terms: str | None) -> None:
    """Export the finished runs, from inputs to figures, with environment, commands and checksums, into a new folder, an
    RO-Crate."""
    from hpctrip.studies.artifact import write_artifact

    studies = choice.read()
    for each in studies:
        place = Path(folder, *([each.name] if len(studies) > 1 else []))
        echo(write_artifact(each, place, author, terms))
