"""Argument types and options shared by the commands, and the group that makes `run` the default command."""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import click

from hpctrip.base.text import printable


def echo(*lines: object) -> None:
    """Print lines, each with escapes for unprintable characters and of at most some 1,000 characters."""
    for line in lines:
        click.echo(printable(str(line), 1000))


def echo_list(descriptions: Mapping[str, str]) -> None:
    """Print one line for each name with its description."""
    width = max(map(len, descriptions), default=0)
    for name, text in descriptions.items():
        click.echo(f"{name:{width}}  {text}")


def meant_by(option: str, group: click.Group) -> str:
    """A hint for an unknown option: keys of the input that are called so, or, where there are none or it is an option
    of several, the commands of the group that have it; else empty."""
    from hpctrip.config.inputs import keys_called
    from hpctrip.runner.experiment import Experiment

    keys = keys_called(option.lstrip("-").replace("-", "_"), Experiment)
    commands = [*_commands_with(option, group)]
    if keys and len(commands) < 2:
        return f" For the key of the input: {' or '.join(f'-o {key}=VALUE' for key in keys)}."
    return f" Commands that have it: {', '.join(commands)}." if commands else ""


def _commands_with(option: str, group: click.Group, words: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands_with(option, command, f"{words}{name} ")
        elif any(option in param.opts for param in command.params):
            yield f"{words}{name}"


class DefaultsToRun(click.Group):
    """`hpctrip FILE.toml` means `hpctrip run FILE.toml`. The help lists commands by section; one without is hidden."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections: dict[str, list[click.Command]] = {}

    def add_command(self, command: click.Command, section: str | None = None) -> None:  # type: ignore[override]
        """Add a command to a section of the help."""
        super().add_command(command)
        if section:
            self.sections.setdefault(section, []).append(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of commands for each section; of all where there are no sections."""
        if not self.sections:
            super().format_commands(ctx, formatter)
        for section, commands in self.sections.items():
            with formatter.section(section):
                formatter.write_dl([(command.name, command.get_short_help_str(100)) for command in commands])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line; `run` is inserted if it does not begin with a command. Raises click.UsageError for
        misspelt and misplaced commands."""
        first = args[0] if args else ""
        if ctx.resilient_parsing and not first:  # the shell completes the first word: a command
            return super().parse_args(ctx, args)
        if first not in self.commands and first not in ("--help", "-h", "--version"):
            near = difflib.get_close_matches(first[:50], self.commands, n=1, cutoff=0.7)
            if near and not os.path.lexists(first):
                ctx.fail(f"no command or file {printable(first, 50)!r}; did you mean {near[0]!r}?")
            if not ctx.resilient_parsing:
                self._refuse_misplaced_command(ctx, args)
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _refuse_misplaced_command(self, ctx: click.Context, args: list[str]) -> None:
        """Fail if a command follows a file, as in `hpctrip FILE check`."""
        for before, word in pairwise(args):
            if word in self.commands and not before.startswith("-") and not os.path.lexists(word):
                ctx.fail(f"{word} is a command, and commands come first: hpctrip {word} ...")


class Number(click.FloatRange):
    """A number within a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number; NaN, which click accepts in every range, is refused, too."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


Speed = functools.partial(Number, 1e-6, 1e12)
"""A speed between 1e-6 and 1e12, in the unit of its option."""


class FileName(click.Path):
    """Path of a file or folder, or a pattern of paths."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return `value` with "~" expanded. Raises InputError if no file can have this name."""
        from hpctrip.base.io import user_path

        return user_path(value, value)


FILE = FileName()

STUDIES_FOLDER = "results/studies"
"""Default folder of studies and their runs."""
STARTS_RUNS = "start it once: it starts its runs itself (--jobs, --ranks)"
"""Hint of commands that a launcher must not start."""

plugins_option = click.option(
    "--plugin", "plugins", type=FILE, multiple=True, metavar="FILE.py", help="Run your own Python file first."
)

format_option = click.option(
    "--format",
    "as_json",
    type=click.Choice(["text", "json"]),
    default="text",
    callback=lambda ctx, param, value: value == "json",
    help="json: one JSON document on stdout, for other programs: units in the names (clock_s), null for unknown "
    "values.",
)

out_option = click.option(
    "--out", type=FILE, metavar="FILE.h5", help="Results file (default: results/NAME-TIME.h5)."
)

overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing files.")


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


def input_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of an input: `paths`, `overrides` and `plugins`."""
    files = click.argument("paths", nargs=-1, type=FILE, metavar="[FILE.toml]...")
    text = "Override a key of the files, e.g. policy.k=50."
    lines = click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help=text)
    return files(lines(plugins_option(command)))


def store_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --store, the folder of cached rounds, which becomes one more of the `overrides` of `input_options`."""

    @functools.wraps(command)
    def with_store(store: str | None, overrides: tuple[str, ...], **others: Any) -> None:
        lines = () if store is None else (f"store.path={json.dumps(store)}",)
        command(overrides=(*overrides, *lines), **others)

    text = "Cache of trained rounds: reuse its rounds, and add new ones (store.path)."
    return click.option("--store", type=FILE, metavar="DIR", help=text)(with_store)


_SITE = (
    click.option("--account", metavar="A", help="Account to charge."),
    click.option("--partition", metavar="P", help="Partition, or several: p,q."),
    click.option(
        "--sbatch", "options", multiple=True, metavar="--OPTION=VALUE", help="Any other option of sbatch."
    ),
    click.option("--modules", metavar="M...", help="Modules to load, in one word: 'openmpi cuda'."),
    click.option("--setup", type=FILE, metavar="FILE", help="A shell file of your site to source."),
    click.option("--venv", type=FILE, metavar="DIR", help="Virtual environment of hpctrip."),
    click.option(
        "--container",
        metavar="WORDS",
        help="Command prefix that runs a container: 'apptainer exec --nv x.sif'.",
    ),
    click.option("--launcher", metavar="PATTERN", help="How to start ranks: 'mpirun -np {n} {python}'."),
)


def site_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of sbatch and the settings of a site that a batch script takes."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(_SITE), command)


def command_line() -> str:
    """The command line of this process, to be repeated."""
    return f"python -m hpctrip {shlex.join(sys.argv[1:])}"
