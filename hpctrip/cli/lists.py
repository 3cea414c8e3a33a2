"""Commands that describe the input, print files of this package, or fetch data: `keys`, `reference`,
`inputs`, `new`, `slurm`, `fetch`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from hpctrip.cli.arguments import FILE, echo, echo_list, overwrite_option, site_options
from hpctrip.config.package_data import TEMPLATES


@click.command()
@click.argument("name", required=False)
@click.option("--all", "all_keys", is_flag=True, help="Describe all keys.")
def keys(name: str | None, all_keys: bool) -> None:
    """List the most common input keys, or describe those of NAME.

    NAME is a table (policy), a kind (powertrip), a key (lr), or several of these joined by dots (policy.k). For each
    key, print its default, type, bounds and unit, and whether it changes results.
    """
    from hpctrip.cli.reference import show_first_keys, show_keys

    if name is None and not all_keys:
        show_first_keys()
    else:
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


_to = click.option("--to", "folder", type=FILE, metavar="DIR", help="Output folder.")


@click.command()
@click.argument("name", required=False)
@_to
@overwrite_option
def inputs(name: str | None, folder: str | None, overwrite: bool) -> None:
    """List the built-in scenarios, print the scenario NAME, or copy one or all to DIR.

    Other commands also accept the NAME. cluster/NAME is for `hpctrip cluster`; real/NAME and worlds/NAME are config
    layers over a scenario.
    """
    from hpctrip.base.errors import InputError
    from hpctrip.base.io import write_new
    from hpctrip.base.text import unknown_name
    from hpctrip.config.package_data import TABLES, described, shipped, shipped_inputs

    files = shipped_inputs()
    if name is not None and name not in files:
        raise InputError(f"inputs {name}", "no such scenario", unknown_name(name, files))
    if folder is not None:
        chosen = {f"{each}.toml": files[each].read_bytes() for each in ([name] if name else files)}
        for table, file in shipped(TABLES).items():  # beside the worlds that name them
            if any(f"{table}.csv".encode() in text for text in chosen.values()):
                chosen[f"worlds/{table}.csv"] = file.read_bytes()
        echo(*write_new({Path(folder, each): text for each, text in chosen.items()}, overwrite))
    elif name is not None:
        click.echo(files[name].read_text(encoding="utf-8"), nl=False)
    else:
        echo_list({name: described(file) for name, file in files.items()})


@click.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(list(TEMPLATES)), default="input", show_default=True)
@overwrite_option
def new(name: str, kind: str, overwrite: bool) -> None:
    """Write a commented example that runs unchanged: NAME.toml or NAME.py."""
    from importlib.resources import files

    from hpctrip.base.errors import InputError
    from hpctrip.base.io import write_new

    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise InputError(name, "is not a name", "use small letters, digits, - and _, e.g. my-policy")
    file = files("hpctrip").joinpath("inputs/new", TEMPLATES[kind])
    path = Path(file.name).with_stem(name)
    text = file.read_text(encoding="utf-8").replace("NAME", name)
    echo(*write_new({path: text.encode()}, overwrite))
    command = next(line for line in text.splitlines() if line.lstrip("# ").startswith("hpctrip "))
    echo(f"start: {command.strip('# ').split('  #')[0]}")


@click.command()
@click.argument("name", required=False)
@_to
@overwrite_option
@site_options
def slurm(name: str | None, folder: str | None, overwrite: bool, **site: Any) -> None:
    """List the Slurm batch scripts, print the script NAME with your settings, or write it to DIR.

    Comments in the script explain its use. Environment variables of sbatch (HPCTRIP_MODULES and so on) override the
    settings.
    """
    from hpctrip.base.io import write_new
    from hpctrip.runner.batch_script import scripts, site_script

    if name is None:
        echo_list(scripts())
        return
    path = Path(folder or ".", f"{name}.sh")
    text = site_script(name, str(path), **site)
    if folder is None:
        click.echo(text, nl=False)
        return
    echo(*write_new({path: text.encode()}, overwrite))
    if "\nlaunch inputs/" in text and not Path("inputs").is_dir():
        click.echo("it reads inputs/, which is not here: `hpctrip inputs --to inputs` copies it")
