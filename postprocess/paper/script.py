"""Runs the scripts of this folder: figures under the number and title that they have in the paper, and commands."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from hpctrip.base.errors import HpctripError
from hpctrip.base.io import checked_output
from hpctrip.base.text import printable
from hpctrip.figures import FIGURES


def run_script(command: click.Command) -> NoReturn:
    """Run a command with the arguments of this script, and exit. An error is one line on stderr."""
    program = Path(sys.argv[0]).name
    try:
        with checked_output():
            code = command.main(prog_name=program, standalone_mode=False)
        sys.exit(code)
    except HpctripError as error:
        problem, code = " | ".join(str(error).splitlines()), error.exit_code
    except click.ClickException as error:
        problem, code = f"{error.format_message()} (--help says more)", error.exit_code
    except click.Abort:
        sys.exit(130)
    click.echo(printable(f"{program}: {problem}", 4000), err=True)
    sys.exit(code)


def run_figure(name: str, title: str) -> NoReturn:
    """Run a figure of hpctrip with the arguments of this script, named after the script and under another title."""
    plot = FIGURES[name]
    details = plot.help.partition("\n")[2]
    run_script(replace(plot, name=Path(sys.argv[0]).stem, help=f"{title}\n{details}").command)
