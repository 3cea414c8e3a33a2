"""`claims`: one row for every claim of the paper, of the studies that were run. Heavy imports happen inside."""

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
    help="The study of all the paper's studies.",
)
@click.option("--small", is_flag=True, help="Of the small forms of the studies.")
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="As the studies were given it.")
@plugins_option
@click.option("--to", type=FILE, metavar="DIR", help="Where claims.md and claims.html go; absent: into DIR.")
@click.option("--preface", type=FILE, metavar="FILE", help="Markdown of yours, to stand under the title.")
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
    run is said; nothing is made here: that is `hpctrip study paper`. --study names a file of your own that includes
    these studies, say with real data laid over them. What only you know of the runs, say on what data they were made,
    stands in the --preface.
    """
    from dataclasses import replace

    from hpctrip.base.errors import InputError
    from hpctrip.base.io import check_folder, json_text, read_text, replace_file
    from hpctrip.studies.claims.gather import claims_page
    from hpctrip.studies.claims.page import PICTURES
    from hpctrip.studies.studies import StudyOptions

    goes = Path(to or folder)
    for one in (goes, Path(folder)):
        check_folder(one)
    if not Path(folder).exists():
        raise InputError(folder, "no such folder", "name that of the studies (--out of `hpctrip study`)")
    said = read_text(preface) if preface else ""
    page = replace(
        claims_page(StudyOptions(Path(folder), overrides, plugins, small), study), preface=said.strip()
    )
    written = [(goes / "claims.md", page.markdown), (goes / "claims.html", page.html)]
    for file, text in written:
        replace_file(file, text.encode())
    for name, png in page.pictures.items():
        replace_file(goes / PICTURES / name, png)
    if as_json:
        click.echo(json_text(page.plain))
        return
    for line in page.lines:
        click.echo(printable(line, 1000))
    for file, _ in written:
        click.echo(printable(f"page: {file}", 1000))
