"""Prints the reference of input keys to the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Iterable
from itertools import groupby

import click

from hpctrip.base.text import did_you_mean, printable
from hpctrip.base.units import units
from hpctrip.cli.keys_reference import Key, Section, names, sections, select
from hpctrip.config.component import Component
from hpctrip.config.plugins import Extensions
from hpctrip.runner.experiment import Experiment


def input_sections(root: type[Component] = Experiment) -> list[Section]:
    """Sections of the whole input with root class `root`, including the kinds that installed packages register. Raises
    InputError if such a package cannot be imported."""
    Extensions.of(()).run()
    return sections(root)


def show_keys(name: str | None = None, root: type[Component] = Experiment) -> None:
    """Print every key of the input with root class `root`, or only the keys that `name` denotes (see `select`). Raises
    click.BadParameter if it denotes none."""
    everything = input_sections(root)
    selected = everything if name is None else select(everything, name)
    if name is not None and not selected:
        hint = did_you_mean(name, names(everything)) or f"tables: {', '.join(_tables(everything))}"
        raise click.BadParameter(f"{printable(name, 100)!r} is no table, kind or key; {hint}")
    for table, group in groupby(selected, key=lambda section: section.table):
        of_table = list(group)
        if table:
            default = "".join(f", default {s.kind}" for s in of_table if s.is_default and s.kind)
            kinds = ", ".join(filter(None, (section.kind for section in of_table)))
            click.secho(f"\n[{table}]{f'  kind: {kinds}{default}' if kinds else ''}", bold=True)
            if of_table[0].purpose:
                click.echo(of_table[0].purpose)
        for section in of_table:
            _show(section)
    _show_units({key.dimension for section in selected for key in section.keys} - {""})


def _show(section: Section) -> None:
    if section.kind:
        click.secho(section.kind, bold=True, nl=False)
        click.echo(f": {section.about}" if section.about else ":")
    elif section.table and section.about:
        click.echo(section.about)
    for key in section.keys:
        click.echo(f"    {key.name}{f' = {key.default}' if key.default else ''}: {facts(key)}")
        if key.meaning:
            click.echo(textwrap.indent("\n".join(_wrapped(key.meaning, 8)), " " * 8))


def facts(key: Key) -> str:
    """Type, bounds and other properties of a key, except its default and its meaning, as text."""
    choices = [
        f"{text} of {key.dimension}" if text == "number" and key.dimension else text for text in key.choices
    ]
    what = choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
    absent = "" if key.default else "may be absent" if key.may_be_absent else "must be given"
    return "; ".join(filter(None, (what, key.bounds, absent, "changes no result" if key.neutral else "")))


def _show_units(dimensions: Collection[str]) -> None:
    if dimensions:
        click.secho("\nUnits", bold=True)
        click.echo('A plain number is in the SI unit; a text may have any of these units, as in "1.5 GB".')
    for dimension in sorted(dimensions):
        own, others = units()[dimension]
        lines = _wrapped(f"{dimension}: {', '.join(own)}; also {', '.join(others)}", 4)
        click.echo(textwrap.indent("\n".join(lines), " " * 4))


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, min(shutil.get_terminal_size().columns, 120) - indent, break_long_words=False)


def _tables(all_sections: Iterable[Section]) -> list[str]:
    return list(dict.fromkeys(section.table for section in all_sections if section.table))
