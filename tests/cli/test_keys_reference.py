"""The reference of keys agrees with the component classes, and `select` finds keys by name."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from hpctrip.base.units import Bytes, Seconds
from hpctrip.cli import keys_reference
from hpctrip.cli.keys_reference import described_fields, names, sections, select
from hpctrip.config.component import Component, Registry
from hpctrip.config.identity import NotInResult

SHAPES = Registry("shape", default="round")


class Inner(Component):
    """A table in a table."""

    depth: int = Field(1, gt=0, lt=10)
    """How deep."""


@SHAPES.add
class Round(Component):
    """A circle (paper Sec. 2).

    With a second paragraph.
    """

    kind = "round"
    radius: float = Field(2e8, ge=0.5)
    """How large."""
    inner: Inner = Inner(depth=7)


@SHAPES.add
class Square(Component):
    kind = "square"
    path: str = Field(min_length=1)
    """A file."""
    parts: list[Annotated[int, Field(le=9)]] = Field([1, 2], min_length=2)
    """Some."""


class Plain(Component):
    """A table of one kind."""

    size: Bytes | Literal["auto"] = 1.5e9
    """How large, in
    bytes."""
    wait_s: Seconds | None = Field(None, gt=0, le=7200)
    """How long."""
    radius: NotInResult[Literal["a", "b"]] = "a"
    """Which."""
    on: bool = True
    """Whether."""


class Root(Component):
    """All of it."""

    seed: int = Field(0, ge=0)
    """Of the draws."""
    shape: SHAPES.field() = Field(default_factory=dict, validate_default=True)
    """Of the thing."""
    plain: Plain = Plain(on=False)
    quiet: NotInResult[Inner] = Inner()


SECTIONS = sections(Root)


def key(name):
    ((section,), parts) = select(SECTIONS, name), name.split(".")
    (match,) = section.keys
    assert match.name.endswith(parts[-1])
    return match


def test_every_table_and_kind_is_a_section_with_its_docstring():
    shapes = [("shape", "round"), ("shape", "square")]
    assert [section.path for section in SECTIONS] == [(), *shapes, ("plain",), ("quiet",)]
    round_, square = SECTIONS[1:3]
    assert round_.about == "A circle (paper Sec. 2).\n\nWith a second paragraph."
    assert square.about == "" and round_.purpose == square.purpose == "Of the thing."
    assert round_.is_default and not square.is_default


@pytest.mark.parametrize(
    ("name", "default", "facts"),
    [
        ("seed", "0", "integer; at least 0"),
        ("shape.round.radius", "2e+08", "number; at least 0.5"),
        ("shape.inner.depth", "7", "integer; above 0, below 10"),
        ("path", "", "text; length at least 1; must be given"),
        ("parts", "[1, 2]", "list of integer; length at least 2, each at most 9"),
        ("plain.size", '"1.5 GB"', 'number of bytes or "auto"; at most 1000 TB'),
        ("wait_s", "", "number of seconds; above 0, at most 2 h; may be absent"),
        ("plain.radius", '"a"', '"a" or "b"'),
        ("on", "false", "true or false"),
        ("quiet.depth", "1", "integer; above 0, below 10"),
    ],
)
def test_a_key_has_a_default_types_and_bounds(name, default, facts):
    assert (key(name).default, key(name).facts) == (default, facts)


def test_a_key_has_a_dimension_and_a_meaning_in_one_line():
    assert key("size").dimension == "bytes" and key("wait_s").dimension == "seconds"
    assert key("size").meaning == "How large, in bytes."


def test_a_neutral_key_and_every_key_of_a_neutral_table_changes_no_result():
    assert key("plain.radius").neutral and key("quiet.depth").neutral
    assert not key("shape.depth").neutral and not key("seed").neutral


def test_a_name_selects_a_table_a_kind_or_every_key_of_this_name():
    assert [s.path for s in select(SECTIONS, "shape")] == [("shape", "round"), ("shape", "square")]
    assert [s.path for s in select(SECTIONS, "square")] == [("shape", "square")]
    assert [(s.path, [k.name for k in s.keys]) for s in select(SECTIONS, "radius")] == [
        (("shape", "round"), ["radius"]),
        (("plain",), ["radius"]),
    ]
    assert [k.name for k in select(SECTIONS, "inner")[0].keys] == ["inner.depth"]
    assert select(SECTIONS, "shape.seed") == select(SECTIONS, "nothing") == []


def test_every_name_selects_something():
    assert all(select(SECTIONS, name) for name in names(SECTIONS))
    assert {"shape", "round", "radius", "shape.radius", "shape.inner.depth", "seed"} <= names(SECTIONS)


def test_a_module_is_parsed_once_for_all_its_classes(monkeypatch):
    parsed, parse = [], keys_reference.ast.parse
    monkeypatch.setattr(keys_reference.ast, "parse", lambda text: parsed.append(text) or parse(text))
    for cached in (keys_reference._classes, keys_reference._field_docstrings):
        cached.cache_clear()
    for cls, field, description in ((Inner, "depth", "How deep."), (Round, "radius", "How large.")):
        assert described_fields(cls)[field].description == description
    assert len([text for text in parsed if "class Inner" in text]) == 1
