"""The command `claims`: checks the claims of the paper against finished studies."""

from __future__ import annotations

from pathlib import Path

import click

from hpctrip.base.text import printable
from hpctrip.cli.arguments import FILE, format_option, plugins_option
from hpctrip.studies import RESULTS
from hpctrip.studies.claims import PAPER


@click.command()
@click.argument("folder", type=FILE, metavar="[DIR]", default=RESULTS)
@click.option(
    "--study",
    default=PAPER,
    show_default=True,
    metavar="FILE|NAME",
    help="The study that includes all studies of the paper.",
)
@click.option("--small", is_flag=True, help="Check the small forms of the studies.")
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A line of TOML with which the studies were run.",
)
@plugins_option
@click.option("--to", type=FILE, metavar="DIR", help="Where claims.md and claims.html go; absent: into DIR.")
@click.option("--preface", type=FILE, metavar="FILE", help="Markdown of yours to put under the title.")
@format_option
def claims(
    folder: str,
    study: str,
    small: bool,
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
    to: str | None,
    preface: str | None,
    as_json: bool,
) -> None:
    """Check every claim of the paper against the studies in DIR (default: results/studies).

    Ordering (who is faster, whether it grows) is told apart from magnitude (our number against the paper's). Writes
    claims.md with the studies' figures in claims/ beside it, and claims.html with all of it in one file. What was not
    run is listed as such; nothing is run here: that is `hpctrip study paper`. --study names a file of your own that
    includes these studies, say with real data laid over them. What only you know of the runs, say on what data they
    were made, goes into the --preface.
    """
    from dataclasses import replace

    from hpctrip.base.errors import InputError
    from hpctrip.base.io import check_folder, json_text, read_text, replace_file
    from hpctrip.studies.claims.gather import claims_page
    from hpctrip.studies.claims.page import PICTURES
    from hpctrip.studies.studies import StudyOptions

    target = Path(to or folder)
    for path in (target, Path(folder)):
        check_folder(path)
    if not Path(folder).exists():
        raise InputError(folder, "no such folder", "name that of the studies (--out of `hpctrip study`)")
    preface_text = read_text(preface) if preface else ""
    page = claims_page(StudyOptions(Path(folder), overrides, plugins, small), study)
    page = replace(page, preface=preface_text.strip())
    pages = [(target / "claims.md", page.markdown), (target / "claims.html", page.html)]
    for file, text in pages:
        replace_file(file, text.encode())
    for name, png in page.pictures.items():
        replace_file(target / PICTURES / name, png)
    if as_json:
        click.echo(json_text(page.plain))
        return
    for line in page.lines:
        click.echo(printable(line, 1000))
    for file, _ in pages:
        click.echo(printable(f"page: {file}", 1000))
