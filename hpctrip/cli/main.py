"""The command line. Commands import heavy modules when called, so that --help and errors are quick."""

from __future__ import annotations

import sys
import traceback

import click

import hpctrip
from hpctrip.base.errors import FAULT_EXIT_CODE, REPORT_FAULT, HpctripError
from hpctrip.base.text import printable
from hpctrip.cli import inputs, lists, results, studies
from hpctrip.cli.arguments import DefaultsToRun
from hpctrip.cli.cluster import cluster
from hpctrip.cli.device import knobs, tune
from hpctrip.cli.plot import plot
from hpctrip.ranks.launched import launched_rank


@click.group(cls=DefaultsToRun, context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(hpctrip.__version__, prog_name="hpctrip")
def cli() -> None:
    """Train real models over virtual, power-limited datacenter sites; tell how long it would have taken.

    Without a command: run.
    """


for command in (
    *(studies.run, inputs.resume, inputs.retime, inputs.check, inputs.plan, inputs.prepare),
    *(results.show, results.watch, results.export, results.verify, results.diff, results.merge),
    *(studies.study, plot, cluster),
    *(lists.policies, lists.workloads, lists.keys, lists.reference, lists.fetch),
    *(tune, lists.inputs, lists.slurm, knobs),
):
    cli.add_command(command)


def main() -> None:
    """Entry point. An error that hpctrip or click reports becomes one clear text on rank 0 and an exit code; any other
    exception is a fault of hpctrip and shows its traceback."""
    try:
        rank = launched_rank()
        try:
            code = cli(standalone_mode=False)  # click returns the code of an Exit
        except click.ClickException as error:
            if rank == 0:
                error.message = printable(error.message, 1000)  # it quotes the command line
                error.show()
            code = error.exit_code
        except click.Abort as abort:
            # click converts every EOFError to Abort, also one that was raised while reading a file
            if isinstance(abort.__cause__, EOFError):
                raise abort.__cause__ from None
            code = 130
        if code:
            sys.exit(code)
    except HpctripError as error:
        for line in str(error).splitlines():
            print(f"hpctrip: {printable(line, 2000)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception:
        traceback.print_exc()
        print(f"hpctrip: {REPORT_FAULT}", file=sys.stderr)
        sys.exit(FAULT_EXIT_CODE)
