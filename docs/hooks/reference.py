"""Reference made from the program while the site is built: `<!-- generated: NAME -->` in a page becomes its text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import click

import hpctrip
from hpctrip.app.cli import cli
from hpctrip.record.schema import ATTRIBUTES, DESCRIPTIONS, TABLES


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put each generated part into its place."""
    return re.sub(r"<!-- generated: (\w+) -->", lambda found: "\n".join(PARTS[found[1]]()), markdown)


def columns() -> Iterator[str]:
    """The tables that are made of rows, column by column, with units."""
    for table, found in TABLES.items():
        yield f"\n### /{table}\n\n{_sentence(DESCRIPTIONS[table])}\n"
        rows = ((f"`{name}`", about["unit"], about["doc"]) for name, about in found.items())
        yield from _table(("column", "unit", "what it is"), rows)


def attributes() -> Iterator[str]:
    """The attributes of the file."""
    rows = ((f"`{name}`", attribute.doc) for name, attribute in ATTRIBUTES.items())
    yield from _table(("attribute", "what it is"), rows)


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    for name, command in cli.commands.items():
        yield f"\n## {name}\n"
        yield from _command(command, f"hpctrip {name}")


def figures() -> Iterator[str]:
    """Every figure with its options."""
    from hpctrip.figures import FIGURES

    for name in sorted(FIGURES):
        yield f"\n### plot {name}\n"
        yield from _command(FIGURES[name].command, f"hpctrip plot {name}")


def keys() -> Iterator[str]:
    """Every key of the input."""
    from click.testing import CliRunner

    yield f"```text\n{CliRunner().invoke(cli, ['keys']).output}\n```"


def library() -> Iterator[str]:
    """What `import hpctrip` offers."""
    for name in hpctrip.__all__:
        found = getattr(hpctrip, name)
        if inspect.isfunction(found):
            yield f"\n## hpctrip.{name}\n\n```python\nhpctrip.{name}{_signature(found)}\n```\n\n{inspect.getdoc(found)}\n"
    yield f"\n## hpctrip.Run\n\n{inspect.getdoc(hpctrip.Run)}\n"
    for name, found in _members(hpctrip.Run):
        title = f"{name}{_signature(found)}" if inspect.isfunction(found) else name
        yield f"`run.{title}`\n:   {_indented(inspect.getdoc(found))}\n"
    yield "\n## Errors\n"
    rows = (
        (f"`hpctrip.{name}`", inspect.getdoc(error).splitlines()[0], str(error.exit_code))
        for name in hpctrip.__all__
        if inspect.isclass(error := getattr(hpctrip, name)) and issubclass(error, Exception)
    )
    yield from _table(("error", "when", "the command's exit code"), rows)


def _command(command: click.Command, name: str) -> Iterator[str]:
    with command.make_context(name, [], resilient_parsing=True) as context:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```text\n{name} {usage}\n```\n\n{inspect.cleandoc(command.help or '')}\n"
        records = [param.get_help_record(context) for param in command.params]
    if found := [record for record in records if record]:
        yield from _table(("option", "meaning"), ((f"`{option}`", said) for option, said in found))


def _members(cls: type) -> Iterator[tuple[str, object]]:
    for name in sorted(vars(cls) | vars(cls.__base__)):
        found = getattr(cls, name, None)
        found = found.fget if isinstance(inspect.getattr_static(cls, name, None), property) else found
        if not name.startswith("_") and callable(found) and inspect.getdoc(found):
            is_method = inspect.isfunction(inspect.getattr_static(cls, name, None))
            yield name, found if is_method else property(found, doc=inspect.getdoc(found))


def _signature(function: Callable[..., object]) -> str:
    text = str(inspect.signature(function)).replace("'", "").replace("(self, ", "(").replace("(self)", "()")
    return text if len(text) < 80 else "(\n    " + text[1:].replace(", *, ", ",\n    *,\n    ").replace(", ", ",\n    ")


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _indented(text: str | None) -> str:
    return (text or "").replace("\n", "\n    ")


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    part.__name__: part for part in (attributes, columns, commands, figures, keys, library)
}
