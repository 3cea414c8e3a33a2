"""The command line. Commands import heavy modules when called, so that --help and errors are quick."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
from typing import NoReturn

import click

import hpctrip
from hpctrip.base import process
from hpctrip.base.errors import HpctripError, blame, full_report
from hpctrip.base.io import BestEffortStream, checked_output
from hpctrip.base.process import launched_rank
from hpctrip.base.text import printable
from hpctrip.cli import inputs, lists, results, studies
from hpctrip.cli.arguments import DefaultsToRun, meant_by
from hpctrip.cli.cluster import cluster
from hpctrip.cli.device import gpu_settings, tune
from hpctrip.cli.plot import plot
from hpctrip.cli.run import run


@click.group(cls=DefaultsToRun, context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(hpctrip.__version__, prog_name="hpctrip")
def cli() -> None:
    """Train real models on simulated, power-limited datacenter sites, and report the simulated time.

    Without a command, `run` is used; without a file, it trains a demonstration on embedded data.
    """


SECTIONS = {
    "Start": (
        run,
        results.show,
        plot,
        inputs.check,
        lists.keys,
        lists.inputs,
        lists.new,
        lists.fetch,
    ),
    "Compare": (studies.study, inputs.retime, results.diff, results.merge, results.export, results.verify),
    "Long jobs": (inputs.plan, inputs.resume, results.watch, lists.slurm, inputs.prepare),
    "This machine": (tune, gpu_settings),
    "A cluster inside a site": (cluster,),
}
for section, commands in SECTIONS.items():
    for command in commands:
        cli.add_command(command, section)
cli.add_command(lists.reference)


def main() -> NoReturn:
    """Entry point: run the command line, then end the process with its exit code."""
    # Importing torch creates a million objects that stay; looking for cycles among them takes 0.4 s by default. The
    # threshold stays low enough that cycles which hold tensors are soon found.
    gc.set_threshold(10_000)
    process.ends_with_run = True
    end_process(run_command())


def run_command() -> int:
    """Run the command line; returns the exit code. An error that hpctrip or click reports becomes one clear text on
    rank 0; any other exception is a fault of hpctrip, or of a plug-in, and shows a traceback."""
    messages = BestEffortStream(sys.stderr)
    try:
        rank = launched_rank()
        try:
            with checked_output():
                return cli(standalone_mode=False) or 0  # click returns the code of an Exit
        except click.ClickException as error:
            if rank == 0:
                if isinstance(error, click.NoSuchOption):
                    error.message += meant_by(error.option_name, cli)
                error.message = printable(error.message, 1000)  # it quotes the command line
                error.show(messages)
            return error.exit_code
        except click.Abort as abort:
            # click converts every EOFError to Abort, also one that was raised while reading a file
            if isinstance(abort.__cause__, EOFError):
                raise abort.__cause__ from None
            return 130
    except HpctripError as error:
        for line in str(error).splitlines():
            print(f"hpctrip: {printable(line, 2000)}", file=messages)
        return error.exit_code
    except Exception as error:
        print(full_report(error), file=messages)
        return blame(error)[1]


def end_process(code: int) -> NoReturn:
    """End this process as Python does, but without destroying its modules, which takes a second for torch.

    A process that has used MPI ends by C's exit: MPICH tells its launcher only there that a rank is done, and the
    launcher kills the others when a rank ends without.
    """
    threading._shutdown()  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    if mpi := sys.modules.get("mpi4py.MPI"):
        mpi.Finalize()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # a full disk, a closed pipe
            code = code or HpctripError.exit_code
    if mpi:
        ctypes.CDLL(None).exit(code)
    os._exit(code)
