"""Check that every number on the pages of results follows from the rows that are kept beside them.

    python postprocess/audit.py            # exit code 1 and one line per number that says otherwise
    python postprocess/audit.py --write    # put the recomputed numbers into the pages

A number that comes from rows stands between marks, `<!--=NAME-->0.85<!--/-->`, which no reader of the page sees; a
module of `pages` computes the text of each NAME from the CSV files in docs/results. Every other number must be
one of the module's `STATED`: settings and numbers of the paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
from pages import claims, energy, gpu, league, powerflow, random_league, sensitivity, start, waiting
from paper.script import run_script

from hpctrip.base.io import read_text, replace_file
from hpctrip.base.text import shown

ROOT = Path(__file__).parents[1]
PAGES: tuple[ModuleType, ...] = (
    claims,
    energy,
    gpu,
    league,
    powerflow,
    random_league,
    sensitivity,
    start,
    waiting,
)
_NOWHERE = "\0"
"""No page has it: all of the page is audited."""
_MARKED = re.compile(r"<!--=(?P<name>[^>]+?)-->(?P<text>.*?)<!--/-->", re.DOTALL)
_RESULT = re.compile(r"(?<![\w.])(?<!arXiv )(?<!torch )(?<!hpctrip )\d+\.\d+(?!\d*\.\d)|\d+ %")
"""Numbers that look like results: decimal fractions, except for those of versions and papers, and percentages."""
_CODE = re.compile(r"```.*?```|`[^`\n]*`|^ {4}[^\n]*$|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
"""Code and targets of links, whose numbers are none of results."""


def faults(path: Path, text: str, values: dict[str, str], stated: frozenset[str] | None) -> Iterator[str]:
    """One line per mark whose text differs from its value, and per number outside of marks that is not stated.
    `stated`: None where a page has other numbers, too."""
    for mark in _MARKED.finditer(text):
        name, place = mark["name"], f"{path}, line {text.count(chr(10), 0, mark.start()) + 1}"
        if name not in values:
            yield f"{place}: no rows give {shown(name)}"
        elif mark["text"] != values[name]:
            is_, ought = (shown(each.strip()) for each in (mark["text"], values[name]))
            yield f"{place}: {name} is {is_}, the rows give {ought}"
    plain = _CODE.sub("", _MARKED.sub("", text))
    for number in dict.fromkeys(_RESULT.findall(plain)):
        if stated is not None and number not in stated:
            yield f"{path}: {number} stands without a mark and is not a setting"


def audited(results: Path) -> Iterator[tuple[str, str, dict[str, str], frozenset[str] | None]]:
    """(page, where its generated rest begins, {name: text}, `stated` of `faults`) of every page. A page that quotes
    several modules has the values of all."""
    quoted: dict[str, dict[str, str]] = {}
    for module in PAGES:
        values = module.values(results)
        yield from ((page, module.END, values, module.STATED) for page in module.PAGES)
        for page in module.QUOTED_ON:
            quoted.setdefault(page, {}).update(values)
    yield from ((page, _NOWHERE, values, None) for page, values in quoted.items())


def written(text: str, values: dict[str, str]) -> str:
    """The page with the value of every mark."""
    return _MARKED.sub(lambda m: f"<!--={m['name']}-->{values.get(m['name'], m['text'])}<!--/-->", text)


@click.command(help=__doc__.partition("\n\n")[0])
@click.option("--write", is_flag=True, help="Put the recomputed numbers into the pages.")
def main(write: bool) -> int:
    """Check or write all pages."""
    lines: list[str] = []
    for page, end, values, stated in audited(ROOT / "docs/results"):
        path = ROOT / page
        text, _, generated = read_text(path).partition(end)
        if write:
            text = written(text, values)
            replace_file(path, (text + end * bool(generated) + generated).encode())
        lines += faults(path.relative_to(ROOT), text, values, stated)
    click.echo("\n".join(lines) or "every number on the pages of results follows from its rows")
    return 1 if lines else 0


if __name__ == "__main__":
    run_script(main)
