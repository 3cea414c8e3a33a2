"""`policies`, `workloads`, `keys`, `fetch`: what there is to choose from."""

from __future__ import annotations

import click

from hpctrip.app.arguments import FILE
from hpctrip.app.net import Reader


@click.command(cls=Reader)
def policies() -> None:
    """List the policies and their keys."""
    from hpctrip.app.keys import show_registry
    from hpctrip.sim.policies import POLICIES

    show_registry(POLICIES)


@click.command(cls=Reader)
def workloads() -> None:
    """List the workloads and their keys."""
    from hpctrip.app.keys import show_registry
    from hpctrip.learn.workloads import WORKLOADS

    show_registry(WORKLOADS)


@click.command(cls=Reader)
@click.argument("section", required=False)
def keys(section: str | None) -> None:
    """List every key of the input file, or those of one SECTION."""
    from hpctrip.app.keys import show_sections

    show_sections(section)


@click.command()
@click.argument("data", type=click.Choice(["emnist", "shakespeare", "speech"]))
@click.argument("folder", type=FILE, metavar="FOLDER")
def fetch(data: str, folder: str) -> None:
    """Download a public data set into FOLDER and check it; goes on where an earlier try stopped."""
    from hpctrip.learn.data.fetch import SOURCES
    from hpctrip.learn.data.fetch import fetch as download

    paths = download(SOURCES[data], folder)
    click.echo(f"{len(paths):,} file(s) in {folder}")
    click.echo(f"train on them with: -o workload.kind={data} -o workload.data={folder}")
