"""Reading inputs of any root component: merged left to right, `-o` lines on top, all faults in one report."""

from __future__ import annotations

import functools
import re
import tomllib

import numpy as np
import pytest
from pydantic import Field, ValidationError

from hpctrip.base.errors import InputError
from hpctrip.base.units import Metres
from hpctrip.config.component import Component, Registry
from hpctrip.config.inputs import inline_toml, merge, read_layers, validate

SHAPES = Registry("shape", default="circle")


@SHAPES.add
class Circle(Component):
    kind = "circle"
    radius_m: Metres = Field(1.0, gt=0)


LINES = Registry("line", default="solid")


@LINES.add
class Solid(Component):
    kind = "solid"
    thickness_m: Metres = Field(1e-3, gt=0)


@LINES.add
class Dashed(Component):
    kind = "dashed"
    gap_m: Metres = Field(1e-3, gt=0)


@SHAPES.add
class Polygon(Component):
    kind = "polygon"
    corners: int = Field(3, ge=3)
    line: LINES.field() = Field(default_factory=dict, validate_default=True)


class Pen(Component):
    colour: str = "black"
    width_m: Metres = Field(1e-3, gt=0)


FRAMES = Registry("frame")


@FRAMES.add
class Bare(Component):
    kind = "bare"
    width_m: Metres = Field(1e-2, gt=0)


@FRAMES.add
class Box(Component):
    kind = "box"
    depth_m: Metres = Field(1e-2, gt=0)


class Drawing(Component):
    """A root that is no experiment."""

    title: str = "untitled"
    copies: int = Field(1, ge=1)
    draft: bool = False
    limit: int | str | None = None
    sizes: list[int] = []
    shape: SHAPES.field() = Field(default_factory=dict, validate_default=True)
    pen: Pen = Pen()
    frames: FRAMES.named_fields() = {}


def read(paths=(), overrides=()):
    """The merged tables."""
    tables = {}
    for layer in read_layers(paths, overrides):
        tables = merge(tables, layer, Drawing)
    return tables


# Merging

POLYGON = {"kind": "polygon", "corners": 5}
DISC = {"radius_m": 4.0}  # of the default kind, circle


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        (POLYGON, {"kind": "circle"}, {"kind": "circle"}),
        (POLYGON, {"kind": "polygon"}, POLYGON),
        (POLYGON, {"corners": 6}, {"kind": "polygon", "corners": 6}),
        (DISC, {"kind": "circle"}, {"radius_m": 4.0, "kind": "circle"}),
        (DISC, {"kind": "polygon"}, {"kind": "polygon"}),
    ],
)
def test_a_changed_kind_replaces_the_table(below, above, merged):
    assert merge({"shape": below}, {"shape": above}, Drawing) == {"shape": merged}
    assert POLYGON["corners"] == 5  # merging makes a new table


THIN, BOX = {"thickness_m": 1e-4}, {"depth_m": 4.0}


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        (POLYGON | {"line": THIN}, {"line": {"kind": "solid"}}, POLYGON | {"line": THIN | {"kind": "solid"}}),
        (POLYGON | {"line": THIN}, {"line": {"kind": "dashed"}}, POLYGON | {"line": {"kind": "dashed"}}),
    ],
)
def test_the_default_kind_of_a_table_within_a_table_may_be_named_on_top(below, above, merged):
    assert merge({"shape": below}, {"shape": above}, Drawing) == {"shape": merged}


def test_the_kind_that_a_named_table_has_by_its_name_may_be_named_on_top():
    def frames(above):
        return merge({"frames": {"box": BOX}}, {"frames": {"box": above}}, Drawing)["frames"]["box"]

    assert frames({"kind": "box"}) == BOX | {"kind": "box"}
    assert frames({"kind": "bare"}) == {"kind": "bare"}


def test_files_and_overrides_are_layers(files):
    paths = files('title = "low"\n[pen]\ncolour = "red"\n', "[pen]\nwidth_m = 0.5\n")
    merged = {"title": "low", "pen": {"colour": "green", "width_m": 0.5}, "copies": 2}
    assert read(paths, ["copies=2", "pen.colour=green"]) == merged


# What is registered


def test_the_schema_is_built_again_only_where_a_component_was_added_or_is_gone(monkeypatch):
    """As for plug-ins: a class more, a class of the same kind instead, and the former ones again."""
    built, rebuild = [], Drawing.model_rebuild
    monkeypatch.setattr(Drawing, "model_rebuild", lambda **how: built.append(rebuild(**how)))
    classes = {"__module__": __name__, "__qualname__": "Star", "kind": "star"}

    def star():
        return SHAPES.add(type("Star", (Component,), classes))

    validate({}, Drawing)
    del built[:]
    validate({}, Drawing)
    assert not built
    for number in (1, 2):
        cls = star()
        assert type(validate({"shape": {"kind": "star"}}, Drawing).shape) is cls and len(built) == number
    del SHAPES["star"]
    with pytest.raises(InputError, match=r"shape\.kind = 'star'"):
        validate({"shape": {"kind": "star"}}, Drawing)


# Overrides


@pytest.mark.parametrize(
    "lines", [("shape.kind=polygon", "shape.corners=7"), ("shape.corners=7", "shape.kind=polygon")]
)
def test_the_order_of_overrides_of_one_table_does_not_matter(lines, files):
    tables = read(files('[shape]\nkind = "circle"\n'), lines)
    assert tables["shape"] == {"kind": "polygon", "corners": 7}


def test_the_last_override_of_one_key_wins():
    assert read((), ["copies=1", "copies=2"]) == {"copies": 2}


@pytest.mark.parametrize(
    ("line", "table"),
    [
        ("shape.kind=polygon", {"shape": {"kind": "polygon"}}),
        ('shape.kind="polygon"', {"shape": {"kind": "polygon"}}),
        (" shape.kind = polygon ", {"shape": {"kind": "polygon"}}),
        ("shape.radius_m=1.5 km", {"shape": {"radius_m": "1.5 km"}}),
        ("title=/a=b", {"title": "/a=b"}),
        ("pen.thick=true", {"pen": {"thick": True}}),
        ("pen={colour='red', width_m=2}", {"pen": {"colour": "red", "width_m": 2}}),
    ],
)
def test_an_override_is_a_line_of_toml_or_a_bare_text(line, table):
    assert read((), [line]) == table


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("title=6214e9", "6214e9"),
        *(
            (f"title={text}", text)
            for text in ("007", "0x10", "1_000", "true", "inf", "2024-05-01", "5 # five")
        ),
        ("title='true'", "true"),
        ("copies=1e3", 1000),
        ("copies=007", 7),
        ("copies=100000000000000000001.0", 100000000000000000001.0),  # no exact whole number
        ("draft=False", False),
        ("draft=on", True),
        ("draft=1", True),
        ("limit=1e2", 100),
        ("limit=1.5", "1.5"),
        ("sizes=[1, 2]", [1, 2]),
        ("pen.width_m=.5", 0.5),
        ("pen.width_m=.5 km", ".5 km"),
        ("pen.colour=1e5", "1e5"),
        ("shape.radius_m=-.5", -0.5),  # out of bounds, yet a number
        ("frames.box.depth_m=1e-2", 0.01),
        ("nothing.of.this=1.0", 1.0),
    ],
)
def test_a_bare_value_is_read_by_the_type_of_its_key(line, value):
    tables = read((), [line])
    for part in line.partition("=")[0].split("."):
        tables = tables[part]
    assert tables == value and type(tables) is type(value)


def test_a_bare_value_is_read_by_the_key_of_the_kind_that_is_in_force(files):
    lines = ["shape.kind=polygon", "shape.corners=5e0"]
    assert read(files('[shape]\nkind = "circle"\n'), lines)["shape"] == {"kind": "polygon", "corners": 5}
    assert read((), ["shape.kind=007"])["shape"] == {"kind": "007"}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("title = 5", 'title = 5: must be a valid string; write "5"'),
        ("title = 2024-05-01", 'must be a valid string; write "2024-05-01"'),
        ("copies = 1e3", "copies = 1000.0: must be a valid integer; write 1000"),
        ("copies = 1.5", "copies = 1.5: must be a valid integer"),
        ('draft = "False"', "draft = 'False': must be a valid boolean; write false"),
        ('sizes = ["1"]', "sizes.0 = '1': must be a valid integer"),
    ],
)
def test_a_value_of_another_type_in_a_file_is_refused_with_the_line_to_write(line, hint, files):
    with pytest.raises(InputError, match=rf"{re.escape(hint)}$"):
        validate(read(files(line)), Drawing)


def test_a_file_may_begin_with_a_byte_order_mark(files):
    assert read(files("\ufefftitle = 'a'")) == {"title": "a"}


@pytest.mark.parametrize("line", ["copies", "=5", "pen..colour=red", "#copies=5"])
def test_an_override_of_another_form_is_refused(line):
    with pytest.raises(InputError, match=re.escape(f"-o {line}: not of the form key=value")):
        read((), [line])


def test_a_file_nested_too_deep_to_be_parsed_is_refused_in_one_line(files):
    text = f"a = {'[' * 2000}{']' * 2000}"
    with pytest.raises(InputError, match="not valid TOML: maximum recursion depth exceeded"):
        read(files(text))
    with pytest.raises(InputError, match="not of the form key=value"):
        read((), [text])


# What the tables mean


def test_all_faults_are_in_one_report_each_at_its_place():
    tables = {
        "copies": 0,
        "titel": "x",
        "shape": {"kind": "polygon", "corners": 2, "radius_m": 1.0},
        "pen": {"colour": 3},
    }
    with pytest.raises(InputError) as caught:
        validate(tables, Drawing)
    places = {"copies = 0", "titel", "shape.corners = 2", "shape.radius_m", "pen.colour = 3"}
    assert {fault.place for fault in caught.value.faults} == places
    report = str(caught.value)
    assert (
        "titel: unknown key; did you mean 'title'? known: copies, draft, frames, limit, pen, shape, sizes, title"
        in report
    )
    assert len(report.splitlines()) == 5


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("radius_m=2.0", "radius_m: unknown key; did you mean 'shape.radius_m'?"),
        ("corners=5", "corners: unknown key; did you mean 'shape.corners'?"),
        ("width_m=2.0", "width_m: unknown key; did you mean 'pen.width_m' or 'frames.NAME.width_m'?"),
        ("colur=red", "colur: unknown key; did you mean 'pen.colour'? known: copies, draft,"),
        ("shape.colour=red", "shape.colour: unknown key; did you mean 'pen.colour'?"),
        ("shape.corners=5", "shape.corners: unknown key; kinds with it: polygon; known here: kind, radius_m"),
        ("frames.thick.depth_m=1", "frames.thick.depth_m: unknown key; kinds with it: box; known here: kind"),
        ("pen.colur=red", "pen.colur: unknown key; did you mean 'colour'? known: colour, width_m"),
        ("pen.nib=1", "pen.nib: unknown key; known: colour, width_m"),
    ],
)
def test_a_key_of_another_table_or_kind_is_named_with_its_place(line, report, files):
    frames = 'frames.thick.kind = "bare"\n'
    for paths, lines in ((files(frames), [line]), (files(f"{_as_toml(line)}\n{frames}"), [])):
        with pytest.raises(InputError, match=rf"^{re.escape(report)}"):
            validate(read(paths, lines), Drawing)


def _as_toml(line):
    """A line of `-o` as it stands in a file."""
    key, _, value = line.partition("=")
    return f"{key} = {value}" if value[0].isdigit() else f'{key} = "{value}"'


def test_a_copy_computes_anew_what_follows_from_its_fields():
    class Square(Component):
        side_m: float = 1.0

        @functools.cached_property
        def area_m2(self):
            return self.side_m**2

    square = Square()
    assert square.area_m2 == 1.0
    larger = square.model_copy(update={"side_m": 3.0})
    assert larger.area_m2 == 9.0 and larger.model_copy() == larger and square.area_m2 == 1.0


def test_components_do_not_change():
    with pytest.raises(ValidationError):
        Circle().radius_m = 2


def test_a_table_must_be_a_table():
    with pytest.raises(InputError) as caught:
        validate({"shape": 3, "pen": "red"}, Drawing)
    assert sorted(fault.place for fault in caught.value.faults) == ["pen = 'red'", "shape = 3"]
    assert {fault.problem for fault in caught.value.faults} == {"must be a table"}


def test_a_component_registered_later_is_accepted_in_tables_within_tables():
    """A shape has an edge, which may be of a kind, and so may the ink of the edge."""
    inks, edges = Registry("ink", default="black"), Registry("edge", default="line")

    @inks.add
    class Black(Component):
        kind = "black"

    @edges.add
    class Line(Component):
        kind = "line"
        ink: inks.field() = Field(default_factory=dict, validate_default=True)

    @SHAPES.add
    class Framed(Component):
        kind = "framed"
        edge: edges.field() = Field(default_factory=dict, validate_default=True)
        others: edges.named_fields() = {}

    edge = {"ink": {"kind": "red"}}
    tables = {"shape": {"kind": "framed", "edge": edge, "others": {"line": edge}}}
    with pytest.raises(InputError, match="unknown ink"):
        validate(tables, Drawing)

    @inks.add
    class Red(Component):
        kind = "red"

    found = validate(tables, Drawing).shape
    assert found.edge.ink == found.others["line"].ink == Red()


def test_a_component_may_choose_among_its_own_sort():
    @SHAPES.add
    class Pair(Component):
        kind = "pair"
        first: SHAPES.field()
        second: SHAPES.field()

    inner = {"kind": "pair", "first": {}, "second": {"kind": "polygon"}}
    found = validate({"shape": {"kind": "pair", "first": inner, "second": {}}}, Drawing).shape
    assert found.first.second == Polygon() and found.second == Circle()


def test_a_value_of_one_line_is_read_back_as_it_was():
    nested = {"": [0.5, 'quotes " and \n lines', {"x.y": True}]}
    value = {"a": 1, "two words": nested, "nothing": {}, "none": []}
    assert tomllib.loads(f"key = {inline_toml(value, 'key')}") == {"key": value}
    assert inline_toml(np.float64(0.25), "key") == "0.25"
    with pytest.raises(InputError, match=r"key\.part: a set is not a value of an input"):
        inline_toml({"part": {1}}, "key")
