"""The command `run`, also with sweeps. It imports heavy modules when called."""

from __future__ import annotations

import re
from pathlib import Path

import click

from hpctrip.base.errors import InputError
from hpctrip.base.process import launched_rank, refuse_launcher
from hpctrip.cli.arguments import (
    FILE,
    STARTS_RUNS,
    STUDIES_FOLDER,
    command_line,
    input_options,
    jobs_option,
    out_option,
    overwrite_option,
    store_option,
    sweep_option,
)
from hpctrip.ranks.watchdog.guardian import Guardian


@click.command()
@input_options
@sweep_option
@jobs_option
@out_option
@overwrite_option
@click.option("--resume", is_flag=True, help="Resume from the checkpoint beside --out, if there is one.")
@click.option(
    "--status", type=FILE, metavar="FILE.json", help="Keep the run's state, round and warnings in this file."
)
@store_option
def run(
    sweeps: tuple[str, ...],
    jobs: int | None,
    out: str | None,
    overwrite: bool,
    resume: bool,
    status: str | None,
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
        _sweep(sweeps, jobs, out or STUDIES_FOLDER, overwrite, **run_input)
        return
    with Guardian() as guardian:
        from hpctrip.runner.job_status import StatusFile
        from hpctrip.runner.resume import start_or_resume
        from hpctrip.runner.session import launch, start_new

        status_file = StatusFile(status)
        if resume:
            launch(lambda: start_or_resume(out=out, **run_input), guardian, status=status_file)
        else:
            launch(lambda: start_new(out=out, overwrite=overwrite, **run_input), guardian, status=status_file)


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
    run([swept], None, jobs, 1, command_line())
