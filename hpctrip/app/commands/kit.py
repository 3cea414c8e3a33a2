"""`inputs`, `slurm`: what comes with hpctrip, handed out."""

from __future__ import annotations

from pathlib import Path

import click

from hpctrip.app.arguments import FILE, overwrite_option

_to = click.option("--to", "folder", type=FILE, metavar="DIR", help="Write there.")


@click.command()
@click.argument("name", required=False)
@_to
@overwrite_option
def inputs(name: str | None, folder: str | None, overwrite: bool) -> None:
    """List the scenarios that come with hpctrip; print the one called NAME; or copy it, or all, to DIR."""
    from hpctrip.base.component import unknown_name
    from hpctrip.base.errors import InputError
    from hpctrip.base.output import write_new
    from hpctrip.base.shipped import SCENARIOS, described, shipped

    files = shipped(SCENARIOS)
    if name is not None and name not in files:
        raise InputError(f"inputs {name}", "no such scenario", unknown_name(name, files))
    if folder is not None:
        chosen = [files[name]] if name else files.values()
        for path in write_new({Path(folder, file.name): file.read_bytes() for file in chosen}, overwrite):
            click.echo(path)
    elif name is not None:
        click.echo(files[name].read_text(encoding="utf-8"), nl=False)
    else:
        _list({name: described(file) for name, file in files.items()})


@click.command()
@click.argument("name", required=False)
@_to
@overwrite_option
@click.option("--account", metavar="A", help="Account to charge.")
@click.option("--partition", metavar="P", help="Partition, or several: p,q.")
@click.option(
    "--sbatch", "options", multiple=True, metavar="--OPTION=VALUE", help="Any other option of sbatch."
)
@click.option("--modules", metavar="M...", help="Modules to load, in one word: 'openmpi cuda'.")
@click.option("--setup", metavar="FILE", help="A file of the site's to source.")
@click.option("--venv", metavar="DIR", help="Virtual environment of hpctrip.")
@click.option("--container", metavar="WORDS", help="What runs a command in it: 'apptainer exec --nv x.sif'.")
@click.option("--launcher", metavar="PATTERN", help="How to start ranks: 'mpirun -np {n} {python}'.")
def slurm(
    name: str | None,
    folder: str | None,
    overwrite: bool,
    account: str | None,
    partition: str | None,
    options: tuple[str, ...],
    **settings: str | None,
) -> None:
    """List the batch scripts for Slurm; print the one called NAME with a site's settings in it; or write it to DIR.

    The script itself says what it is for and how it is submitted. A variable of sbatch's environment, HPCTRIP_MODULES
    and so on, wins over the setting.
    """
    from hpctrip.app.batch import batch_script, scripts
    from hpctrip.base.output import write_new

    if name is None:
        _list(scripts())
        return
    path = Path(folder or ".", f"{name}.sh")
    given = {"--account": account, "--partition": partition}
    lines = [*(f"{option}={value}" for option, value in given.items() if value), *options]
    variables = {f"HPCTRIP_{key.upper()}": value for key, value in settings.items() if value is not None}
    text = batch_script(name, str(path), lines, variables)
    if folder is None:
        click.echo(text, nl=False)
        return
    write_new({path: text.encode()}, overwrite)
    click.echo(path)
    if not Path("inputs").is_dir():
        click.echo("it reads inputs/, which is not here: `hpctrip inputs --to inputs` copies it")


def _list(descriptions: dict[str, str]) -> None:
    width = max(map(len, descriptions))
    for name, text in descriptions.items():
        click.echo(f"{name:{width}}  {text}")
