"""Commands that take results files: `show`, `watch`, `export`, `verify`, `diff`, `merge`."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from hpctrip.base.text import screenful
from hpctrip.cli.arguments import FILE, echo, format_option, overwrite_option, plugins_option


@click.command()
@click.argument("paths", nargs=-1, type=FILE, required=True, metavar="FILE.h5...")
@click.option(
    "--status", is_flag=True, help="Print only the status: running, finished, interrupted or failed."
)
@click.option("--sites", is_flag=True, help="Report what each site of a run did and spent.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "latex"]),
    default="text",
    help="json: one JSON document on stdout, for other programs: units in the names (clock_s), null for unknown "
    "values. With --sites also csv, and latex for the package booktabs.",
)
def show(paths: tuple[str, ...], status: bool, sites: bool, form: str) -> None:
    """Summarise results files."""
    from hpctrip.base.io import json_text
    from hpctrip.record.reader import open_runs
    from hpctrip.record.results_file import open_results
    from hpctrip.record.show import facts_of
    from hpctrip.record.show import show as summary

    if sites:
        from hpctrip.record.site_report import rendered

        click.echo(rendered(open_runs(paths, opened=open_results), form))
        return
    if form in ("csv", "latex"):
        raise click.UsageError(f"--format {form} is for --sites")
    runs = open_runs(paths, opened=partial(open_results, whole=False))
    if form == "json":
        rows = ({"path": run.path, "status": run.status} if status else facts_of(run) for run in runs)
        click.echo(json_text({"runs": list(rows)}))
        return
    for run in runs:
        click.echo(run.status if status else summary(run))


@click.command()
@click.argument("path", type=FILE, metavar="FILE.h5")
def watch(path: str) -> None:
    """Follow a run of another process, one line per round, until it ends or is killed.

    It only reads the results file, so it does not disturb the run. Ctrl-C ends only `watch`.
    """
    from hpctrip.base.io import BestEffortStream
    from hpctrip.cli.watch import watch as follow
    from hpctrip.record.show import show as summary

    say = partial(print, file=BestEffortStream(sys.stdout), flush=True)
    with suppress(KeyboardInterrupt):
        say(summary(follow(path, say)))


@click.command()
@click.argument("path", type=FILE, metavar="FILE.h5")
@click.argument("folder", type=FILE, metavar="[FOLDER]", required=False)
@click.option(
    "--model",
    type=FILE,
    metavar="OUT",
    help="Export the trained model of the newest checkpoint: OUT.safetensors, or for language models a folder OUT that "
    "transformers or peft load.",
)
@click.option("--parquet", is_flag=True, help="Write the tables as Parquet instead of CSV.")
@plugins_option
@overwrite_option
def export(
    path: str,
    folder: str | None,
    model: str | None,
    parquet: bool,
    plugins: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Export the tables of a results file as CSV to FOLDER, or its model.

    A model of your own with frozen parameters or constants also needs its code: --plugin.
    """
    from hpctrip.record.export import export as write

    if not (folder or model) or (parquet and not folder):
        raise click.UsageError("name a FOLDER for the tables, --model OUT, or both")
    written = [*write(path, folder, overwrite, parquet)] if folder else []
    if model:
        from hpctrip.runner.export import export_model

        written += export_model(path, model, overwrite, plugins)
    echo(*written)


@click.command()
@click.argument("paths", nargs=-1, type=FILE, required=True, metavar="FILE.h5...")
@click.option("--no-replay", is_flag=True, help="Check only the file's consistency (quick).")
@click.option(
    "--data",
    type=FILE,
    multiple=True,
    metavar="PATH",
    help="An input file of the run (sites, traces, outages), or a folder with such files; may be repeated.",
)
@plugins_option
@format_option
def verify(
    paths: tuple[str, ...], no_replay: bool, data: tuple[str, ...], plugins: tuple[str, ...], as_json: bool
) -> None:
    """Verify results files by replay. Exit code 0: verified, 1: one could not be replayed, 2: one is wrong.

    Checks each file for consistency (schema, checksums, clock arithmetic), then replays its simulation from the
    recorded input: world, views, cohorts, arrivals, clock. A cluster is simulated again completely. --data tells where
    input files are.
    """
    from hpctrip.base.errors import InputError
    from hpctrip.base.io import json_text
    from hpctrip.config.plugins import Plugin
    from hpctrip.record.reader import open_runs
    from hpctrip.runner.replay import Verification, verify_file

    plugin_files = [Plugin.read(path) for path in plugins]

    def verified(path: Path) -> Verification:
        report = verify_file(path, not no_replay, plugin_files, data)
        if not as_json:
            click.echo(report)
        return report

    reports = open_runs(paths, opened=verified)
    if as_json:
        click.echo(json_text({"files": [report.values() for report in reports]}))
    if faults := [fault for report in reports for fault in report.faults]:
        raise InputError(faults=faults)
    if any(report.not_replayed for report in reports):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("paths", nargs=2, type=FILE, metavar="A.h5 B.h5")
@format_option
def diff(paths: tuple[str, str], as_json: bool) -> None:
    """Report the first difference of two runs. Exit code 0: equal, 1: different, 2: unreadable file.

    Ignores wall times, machines and input keys that change no result.
    """
    from hpctrip.base.io import json_text
    from hpctrip.record.diff import diff as compare
    from hpctrip.record.results_file import open_results

    a, b = map(open_results, paths)
    differences = compare(a, b)
    if as_json:
        differing = [asdict(difference) for difference in differences]
        click.echo(json_text({"a": a.path, "b": b.path, "equal": not differences, "differences": differing}))
    else:
        of_input = all(difference.where in ("input", "read") for difference in differences)
        equal = [f"equal{', though the inputs differ' * bool(differences)}: {a.counted}"] if of_input else []
        for line in screenful([*equal, *map(str, differences)]):
            click.echo(line)
    if differences:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("out", type=FILE, metavar="OUT.h5")
@click.argument("paths", nargs=-1, type=FILE, required=True, metavar="FILE.h5...")
@click.option("--overwrite", is_flag=True, help="Replace any existing OUT.h5 and OUT.csv.")
def merge(out: str, paths: tuple[str, ...], overwrite: bool) -> None:
    """Merge results files into one table, with a row per run and the input keys that differ.

    Writes OUT.h5 (group /runs) and OUT.csv; replaces only files of an earlier merge.
    """
    from hpctrip.record.merge import write_merged
    from hpctrip.record.reader import open_runs

    runs = open_runs(paths, besides=out)
    echo(*(f"{written}: {len(runs)} runs" for written in write_merged(out, runs, overwrite)))
