"""The reference of input keys, printed to the terminal, and that of keys and commands as Markdown. It is generated from
the component classes and the commands."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

import click

from hpctrip.base.errors import EXIT_CODES
from hpctrip.base.text import did_you_mean, markdown_table, printable
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


# Terminal


def show_keys(name: str | None = None, root: type[Component] = Experiment) -> None:
    """Print every key of the input with root class `root`, or only the keys that `name` denotes (see `select`). Raises
    click.BadParameter if it denotes none."""
    everything = input_sections(root)
    selected = everything if name is None else select(everything, name)
    if name is not None and not selected:
        tables = dict.fromkeys(section.table for section in everything if section.table)
        hint = did_you_mean(name, names(everything)) or f"tables: {', '.join(tables)}"
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


# Markdown


def pages(cli: click.Command) -> dict[str, str]:
    """Generate the whole reference, {path: Markdown}: keys/index.md and keys/TABLE.md, cluster/index.md and
    cluster/TABLE.md, and commands.md. Files are named after tables and headings after kinds or commands, so that other
    pages can link to them."""
    from hpctrip.cluster.scenario import ClusterScenario

    return {
        **_key_pages("keys", "Input keys", Experiment),
        **_key_pages("cluster", "Input keys of a simulated cluster", ClusterScenario),
        "commands.md": _text(_commands_page(cli)),
    }


def _key_pages(folder: str, title: str, root: type[Component]) -> dict[str, str]:
    """The pages, {path: Markdown}, of the input with root class `root`."""
    groups = groupby(input_sections(root), key=lambda section: section.table)
    tables = {table: list(kinds) for table, kinds in groups}
    top = tables.pop("")
    return {
        f"{folder}/index.md": _text(_index(title, top[0], tables)),
        **{f"{folder}/{table}.md": _text(_table_page(table, kinds)) for table, kinds in tables.items()},
    }


def _text(parts: Iterable[str]) -> str:
    """Join Markdown blocks to the text of a file."""
    return "\n\n".join(filter(None, parts)) + "\n"


def _index(title: str, top: Section, tables: dict[str, list[Section]]) -> Iterator[str]:
    yield f"# {title}"
    yield (
        "An input is one TOML file or several, merged left to right, with `-o KEY=VALUE` lines on top. These keys "
        "stand above all tables:"
    )
    yield _keys_table(top.keys)
    yield "## Tables"
    rows = []
    for table, of_table in tables.items():
        kinds = ", ".join(f"`{section.kind}`" for section in of_table if section.kind)
        purpose = of_table[0].purpose or of_table[0].about.split("\n\n")[0]
        rows.append((f"[`[{table}]`]({table}.md)", kinds, purpose))
    yield markdown_table(("table", "kinds", "what it is"), rows)
    yield "## Values"
    yield (
        "An absent key has its default. A key that *changes no result* may differ between runs that are compared and "
        "between the parts of one run."
    )
    yield "## Units"
    yield (
        'A key with a unit takes a number in the SI unit, or a text with any of these units: `"1.5 GB"`, `"20 ms"`, '
        '`"100 miles"`, `"1 Gbps"`.'
    )
    rows = [(dimension, *map(_codes, spellings)) for dimension, spellings in units().items()]
    yield markdown_table(("of", "units", "other names"), rows)


def _table_page(table: str, kinds: list[Section]) -> Iterator[str]:
    yield f"# `[{table}]`"
    if kinds[0].kind:
        yield kinds[0].purpose
        defaults = [f'`"{section.kind}"`' for section in kinds if section.is_default]
        default = defaults[0] if defaults else "the table's own name"
        yield f"`kind` chooses one of these; where it is absent, {default}."
    for section in kinds:
        if section.kind:
            yield f"## `{section.kind}`"
        yield section.about
        yield _keys_table(section.keys) if section.keys else "It has no keys."


def _keys_table(keys: Iterable[Key]) -> str:
    rows = []
    for key in keys:
        choices = ", ".join(f"`{text}`" if text.startswith('"') else text for text in key.choices)
        default = f"`{key.default}`" if key.default else "absent" if key.may_be_absent else "must be given"
        bounds = f"`{key.bounds}`" if "^" in key.bounds else key.bounds
        meaning = key.meaning + (" *Changes no result.*" if key.neutral else "")
        rows.append((f"`{key.name}`", choices, default, bounds, key.dimension, meaning))
    return markdown_table(("key", "value", "default", "bounds", "unit", "meaning"), rows)


def _commands_page(cli: click.Command) -> Iterator[str]:
    yield "# Commands"
    yield from _command(cli, "hpctrip")
    yield "## Exit codes"
    yield markdown_table(("code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def _command(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[str]:
    """Usage, help and options of a command, then of its subcommands."""
    context = click.Context(command, parent=parent, info_name=path.split()[-1], **command.context_settings)
    if parent is not None:
        yield f"## `{path}`"
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield inspect.cleandoc(command.help or "")
    records = [param.get_help_record(context) for param in command.get_params(context)]
    described = [(f"`{option}`", meaning) for option, meaning in filter(None, records) if meaning]
    yield markdown_table(("option", "meaning"), described)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if subcommand := command.get_command(context, name):
                yield from _command(subcommand, f"{path} {name}", context)


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
