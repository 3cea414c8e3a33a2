"""The reference of input keys and commands as Markdown, generated from the component classes and the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import groupby

import click

from hpctrip.base.errors import EXIT_CODES
from hpctrip.base.text import markdown_table
from hpctrip.base.units import units
from hpctrip.cli.keys import input_sections
from hpctrip.cli.keys_reference import Key, Section
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.component import Component
from hpctrip.runner.experiment import Experiment


def pages(cli: click.Command) -> dict[str, str]:
    """Generate the whole reference, {path: Markdown}: keys/index.md and keys/TABLE.md, cluster/index.md and
    cluster/TABLE.md, and commands.md. Files are named after tables and headings after kinds or commands, so that other
    pages can link to them."""
    return {
        **_key_pages("keys", "Input keys", Experiment),
        **_key_pages("cluster", "Input keys of a simulated cluster", ClusterScenario),
        "commands.md": _text(_commands_page(cli)),
    }


def _key_pages(folder: str, title: str, root: type[Component]) -> dict[str, str]:
    """The pages, {path: Markdown}, of the input with root class `root`."""
    tables = {
        table: list(group)
        for table, group in groupby(input_sections(root), key=lambda section: section.table)
    }
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
    yield markdown_table(
        ("table", "kinds", "what it is"),
        [
            (
                f"[`[{table}]`]({table}.md)",
                ", ".join(f"`{section.kind}`" for section in kinds if section.kind),
                kinds[0].purpose or kinds[0].about.split("\n\n")[0],
            )
            for table, kinds in tables.items()
        ],
    )
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
    yield markdown_table(
        ("of", "units", "other names"),
        [(dimension, *map(_codes, spellings)) for dimension, spellings in units().items()],
    )


def _table_page(table: str, kinds: list[Section]) -> Iterator[str]:
    yield f"# `[{table}]`"
    if kinds[0].kind:
        yield kinds[0].purpose
        default = next(
            (f'`"{section.kind}"`' for section in kinds if section.is_default), "the table's own name"
        )
        yield f"`kind` chooses one of these; where it is absent, {default}."
    for section in kinds:
        if section.kind:
            yield f"## `{section.kind}`"
        yield section.about
        yield _keys_table(section.keys) if section.keys else "It has no keys."


def _keys_table(keys: Iterable[Key]) -> str:
    head = ("key", "value", "default", "bounds", "unit", "meaning")
    return markdown_table(
        head,
        [
            (
                f"`{key.name}`",
                ", ".join(_choice(text) for text in key.choices),
                f"`{key.default}`" if key.default else "absent" if key.may_be_absent else "must be given",
                key.bounds if "^" not in key.bounds else f"`{key.bounds}`",
                key.dimension,
                key.meaning + (" *Changes no result.*" if key.neutral else ""),
            )
            for key in keys
        ],
    )


def _choice(text: str) -> str:
    return f"`{text}`" if text.startswith('"') else text


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
