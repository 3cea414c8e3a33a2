"""The reference of input keys and commands as Markdown, generated from the component classes and the commands.

`hpctrip keys` prints parts of it; `hpctrip reference` and the site hold all of it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import click

from hpctrip.base.errors import EXIT_CODES
from hpctrip.base.text import did_you_mean, labelled, markdown_table, printable
from hpctrip.base.units import units
from hpctrip.cli.keys_reference import Key, Section, names, sections, select
from hpctrip.config.component import Component
from hpctrip.config.plugins import Extensions
from hpctrip.runner.experiment import Experiment

WIDTH = 79
"""Letters in a line of what describes a key."""
FIRST_KEYS = (
    *("seed", "sites.kind", "sites.num_sites", "workload.kind", "workload.data", "workload.train_samples"),
    *("partition.kind", "partition.alpha", "power.kind", "throughput.kind", "network.update_bytes"),
    *("network.near_bandwidth_bps", "network.far_bandwidth_bps", "timing.seconds_per_sample", "timing.clock"),
    *("train.lr", "train.batch_size", "train.local_epochs", "server.kind", "compression.kind", "policy.kind"),
    *(
        "policy.k",
        "faults.mtbf_s",
        "carbon.kind",
        "price.kind",
        "evaluate.every_rounds",
        "stop.target_accuracy",
    ),
    *("stop.max_rounds", "ranks.device", "checkpoint.every_rounds", "store.path"),
)
"""The keys that people use first."""


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
        tables = dict.fromkeys(section.table for section in everything if section.table)
        hint = did_you_mean(name, names(everything)) or f"tables: {', '.join(tables)}"
        raise click.BadParameter(f"{printable(name, 100)!r} is not a table, kind or key; {hint}")
    for table, kinds in groupby(selected, key=lambda section: section.table):
        click.echo(_text(_table(table, list(kinds))))
    if dimensions := {key.dimension for section in selected for key in section.keys} - {""}:
        click.echo(_text(_units(sorted(dimensions))), nl=False)


def show_first_keys() -> None:
    """Print a line for each of FIRST_KEYS: its default, and what it means or the kinds that there are."""
    everything = input_sections()
    rows = {}
    for name in FIRST_KEYS:
        table, _, last = name.rpartition(".")
        if last == "kind":
            kinds = [section for section in everything if section.table == table]
            default = next(section.kind for section in kinds if section.is_default)
            rows[f'{name} = "{default}"'] = ", ".join(section.kind for section in kinds)
            continue
        of_name = sorted(select(everything, name), key=lambda section: not section.is_default)
        key = next(key for section in of_name for key in section.keys if key.name == last)
        rows[f"{name} = {key.default}" if key.default else name] = re.split(r"(?<!Eq)\. ", key.meaning)[
            0
        ].rstrip(".")
    hint = "`hpctrip keys TABLE` describes a table's keys (`hpctrip keys policy`), `hpctrip keys --all` all keys."
    click.echo("\n".join([*labelled(rows, 1000, 120), "", hint]))


def pages(cli: click.Command) -> dict[str, str]:
    """Generate the whole reference, {path: Markdown}: keys/index.md and keys/TABLE.md, cluster/index.md and
    cluster/TABLE.md, and commands.md. Files are named after tables and headings after kinds or commands, so that other
    pages can link to them."""
    from hpctrip.cluster.scenario import ClusterScenario

    head, codes = ("code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    return {
        **_key_pages("keys", "Input keys", Experiment),
        **_key_pages("cluster", "Input keys of a simulated cluster", ClusterScenario),
        "commands.md": _text(
            ["# Commands", *_command(cli, "hpctrip"), "## Exit codes", markdown_table(head, codes)]
        ),
    }


def _key_pages(folder: str, title: str, root: type[Component]) -> dict[str, str]:
    """The pages, {path: Markdown}, of the input with root class `root`."""
    groups = groupby(input_sections(root), key=lambda section: section.table)
    tables = {table: list(kinds) for table, kinds in groups}
    index = _text(_index(title, tables.pop(""), tables))
    return {
        f"{folder}/index.md": index,
        **{f"{folder}/{table}.md": _text(_table(table, kinds)) for table, kinds in tables.items()},
    }


def _text(parts: Iterable[str]) -> str:
    """Join Markdown blocks to the text of a file."""
    return "\n\n".join(filter(None, parts)) + "\n"


def _index(title: str, top: Sequence[Section], tables: dict[str, list[Section]]) -> Iterator[str]:
    yield f"# {title}"
    yield (
        "An input is one TOML file or several, merged left to right, with `-o KEY=VALUE` lines on top. These keys "
        "stand above all tables:"
    )
    yield from _table("", top)
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
    yield from _units(units())


def _table(table: str, kinds: Sequence[Section]) -> Iterator[str]:
    """A table of the input, or some of its kinds; without a name: the keys above all tables."""
    if table:
        yield f"# `[{table}]`"
        yield kinds[0].purpose
    yield from (f"The default of `kind` is `{s.kind}`." for s in kinds if s.kind and s.is_default)
    for section in kinds:
        if section.kind:
            yield f"## `{section.kind}`"
        if table:
            yield section.about
        yield "\n".join(map(_key, section.keys)) or "It has no keys."


def _key(key: Key) -> str:
    """An item of a list: name, default, type, bounds, other properties and meaning of a key."""
    default = f" = `{key.default}`" if key.default else ""
    meaning = textwrap.wrap(key.meaning, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    neutral = "; changes no result" if key.neutral else ""
    return "\n  ".join([f"* `{key.name}`{default}: {key.facts}{neutral}.", *meaning])


def _units(dimensions: Iterable[str]) -> Iterator[str]:
    yield "## Units"
    yield (
        'A key with a unit takes a number in the SI unit, or a text with any of these units: `"1.5 GB"`, `"20 ms"`, '
        '`"100 miles"`, `"1 Gbps"`.'
    )
    rows = [
        (dimension, *(", ".join(f"`{name}`" for name in spellings) for spellings in units()[dimension]))
        for dimension in dimensions
    ]
    yield markdown_table(("of", "units", "other names"), rows)


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
