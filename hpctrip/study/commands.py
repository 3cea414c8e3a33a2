"""`study`, and `run` where a line names several values. Heavy imports happen inside."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from hpctrip.app.arguments import FILE, plugins_option
from hpctrip.app.commands import inputs
from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.ranks.launched import launched_size

RESULTS = "results/studies"


class Jobs(click.IntRange):
    """A number of workers, or `auto` (None)."""

    name = "jobs"

    def __init__(self) -> None:
        super().__init__(1, 10_000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """The number; None for auto."""
        return None if value == "auto" else super().convert(value, param, ctx)


jobs_option = click.option(
    "--jobs",
    type=Jobs(),
    default="auto",
    metavar="N|auto",
    help="Runs side by side: one per GPU, or per core.",
)


@click.command()
@click.argument("path", type=FILE, metavar="FILE.toml|NAME", required=False)
@click.option(
    "--out", type=FILE, default=RESULTS, show_default=True, metavar="DIR", help="Where runs and studies lie."
)
@jobs_option
@click.option(
    "--ranks", type=click.IntRange(1, 100_000), default=1, help="Ranks of every run, started by mpirun."
)
@click.option(
    "--only", metavar="PATTERN", help="Only runs whose name holds this text, or matches it (* and ?)."
)
@click.option("--small", is_flag=True, help="The study's small form.")
@click.option(
    "--list", "listed", is_flag=True, help="Say what is finished, running, failed or stale; make nothing."
)
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="One line of TOML laid over all runs; or "
    "several values, 10,20 or 0..9, that take the place of an axis or are one more.",
)
@plugins_option
def study(path: str | None, listed: bool, **asked: Any) -> None:
    """Make all runs of a study that are not finished, then its table and figures; without FILE: list what there is.

    Each run is made once and kept by what it is made of (input, data, code of your own), so studies share runs,
    and a study that is started again, after a kill or with another input, does only what is missing.
    """
    from hpctrip.study.run import chosen, run
    from hpctrip.study.studies import Asked, found_file, read_studies

    if path is None:
        _list_shipped()
        return
    _alone()
    given = Asked(Path(asked["out"]), asked["overrides"], asked["plugins"], asked["small"])
    studies = read_studies(found_file(path), given)
    if listed:
        for one in studies:
            one.ledger.write()
        for line in chosen(studies, asked["only"]):
            click.echo(printable(f"{line.status:11}  {line.entry.name}  {line.reason}".rstrip(), 300))
        return
    run(
        studies, asked["only"], asked["jobs"], asked["ranks"], f"python -m hpctrip {shlex.join(sys.argv[1:])}"
    )


_SWEEP = """

With several values in a line, `-o policy.k=10,20,40 -o seed=0..9`, all combinations are run, side by side, as a study
is: --out then names its folder, and the same command goes on with what is missing.
"""


@click.command(help=f"{inputs.run.help}{_SWEEP}", short_help=inputs.run.get_short_help_str(100))
@jobs_option
def run(jobs: int | None, **given: Any) -> None:
    """See `help`."""
    from hpctrip.study.sweep import could_be_several

    made = inputs.run.callback
    assert made is not None
    if launched_size() > 1 or not any(map(could_be_several, given["overrides"])):
        made(**given)
        return
    from hpctrip.study.run import run as make
    from hpctrip.study.studies import Asked, swept

    folder = given["out"] or RESULTS
    sweep = swept(given["paths"], Asked(Path(folder), given["overrides"], given["plugins"]))
    if sweep is None:
        made(**given)
        return
    if folder.endswith((".h5", ".hdf5")):
        raise InputError(f"--out {folder}", "is one file, and a sweep makes several", "name a folder")
    if given["overwrite"]:
        raise InputError("--overwrite", "a sweep keeps each run by its input: there is nothing to overwrite")
    make([sweep], None, jobs, 1, f"python -m hpctrip {shlex.join(sys.argv[1:])}")


run.params[1:1] = inputs.run.params


def _list_shipped() -> None:
    from hpctrip.base.shipped import STUDIES, described, shipped

    files = shipped(STUDIES)
    width = max(map(len, files), default=0)
    for name, file in files.items():
        click.echo(f"{name:{width}}  {described(file)}")


def _alone() -> None:
    if launched_size() > 1:
        problem = f"was started {launched_size()} times by a launcher"
        raise InputError("study", problem, "start it once: it starts its runs itself (--jobs, --ranks)")
