"""Commands that describe the input or fetch data: `policies`, `workloads`, `keys`, `reference`, `fetch`."""

from __future__ import annotations

import click

from hpctrip.cli.arguments import FILE, echo, overwrite_option


@click.command()
def policies() -> None:
    """List the policies and their keys."""
    from hpctrip.cli.reference import show_keys

    show_keys("policy")


@click.command()
def workloads() -> None:
    """List the workloads and their keys."""
    from hpctrip.cli.reference import show_keys

    show_keys("workload")


@click.command()
@click.argument("name", required=False)
def keys(name: str | None) -> None:
    """Describe every key of the input file, or those that NAME means.

    NAME is a table (policy), a kind (powertrip), a key (lr), or several of them joined by dots (policy.k). Printed are
    the default, what a value may be, its bounds and units, and whether it changes a result.
    """
    from hpctrip.cli.reference import show_keys

    show_keys(name)


@click.command()
@click.argument("folder", type=FILE, metavar="FOLDER")
@overwrite_option
@click.pass_context
def reference(ctx: click.Context, folder: str, overwrite: bool) -> None:
    """Write the reference of all input keys and commands into FOLDER, as Markdown.

    A page for each table of the input (keys/TABLE.md) and of that of a cluster (cluster/TABLE.md), an index.md beside
    each, and commands.md.
    """
    from pathlib import Path

    from hpctrip.base.io import write_new
    from hpctrip.cli.reference import pages

    texts = pages(ctx.find_root().command)
    echo(*write_new({Path(folder, name): text.encode() for name, text in texts.items()}, overwrite))


@click.command()
@click.argument("data", type=click.Choice(["emnist", "shakespeare", "speech"]))
@click.argument("folder", type=FILE, metavar="FOLDER")
def fetch(data: str, folder: str) -> None:
    """Download a public data set into FOLDER, verify its checksum and unpack it."""
    from hpctrip.learn.data.fetch import SOURCES
    from hpctrip.learn.data.fetch import fetch as download

    paths = download(SOURCES[data], folder)
    echo(f"{len(paths):,} file(s) in {folder}")
    echo(f"train on them with: -o workload.kind={data} -o workload.data={folder}")
