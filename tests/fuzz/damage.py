"""Damage and mistakes: strategies that spoil a file as disks, transfers and people do."""

from __future__ import annotations

import os
import tomllib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from hpctrip.config.component import Component, Registry, owner_of
from hpctrip.config.inputs import known_keys

EXAMPLES = int(os.environ.get("HPCTRIP_FUZZ", "8"))
"""Examples of each kind of file, the same ones each time; with the environment variable, new ones."""

many = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def damaged(draw, sound: bytes) -> bytes:
    """A truncated file, one with a few flipped bits, or one with a part overwritten, lost or repeated."""
    data, start = bytearray(sound), draw(st.integers(0, len(sound) - 1))
    end = min(len(data), start + draw(st.integers(1, 64)))
    kind = draw(st.sampled_from(["truncate", "flip", "flip", "zero", "lose", "repeat"]))
    if kind == "truncate":
        del data[start:]
    elif kind == "flip":
        for at in [start, *draw(st.lists(st.integers(0, len(data) - 1), max_size=3))]:
            data[at] ^= 1 << draw(st.integers(0, 7))
    elif kind == "zero":
        data[start:end] = bytes(end - start)
    elif kind == "lose":
        del data[start:end]
    else:
        data[start:start] = data[start:end]
    return bytes(data)


_FIELDS = [
    "", " ", "x", "-1", "0", "1.5", "1e9", "nan", "inf", "True", "1,5", '"', "1 000", "2019-05-01", "12 mi",
]  # fmt: skip


@st.composite
def mistyped_tables(draw, sound: str) -> bytes:
    """A CSV table with one mistake of a person: a wrong value, a field too many or too few, a column renamed, lost or
    twice, a line twice or empty, another separator or line end."""
    rows = [line.split(",") for line in sound.splitlines()]
    at = draw(st.integers(0, len(rows) - 1))
    column = draw(st.integers(0, len(rows[at]) - 1))
    kinds = ["value", "more", "fewer", "rename", "lose", "line", "separator", "end"]
    kind = draw(st.just("value") | st.sampled_from(kinds))
    separator, end = ",", "\n"
    if kind == "value":
        rows[at][column] = draw(st.sampled_from(_FIELDS) | st.text(max_size=4))
    elif kind == "more":
        rows[at].insert(column, draw(st.sampled_from(_FIELDS)))
    elif kind == "fewer":
        del rows[at][column]
    elif kind == "rename":
        rows[0][column % len(rows[0])] = draw(
            st.sampled_from([rows[0][0], rows[0][0].upper(), "", "distance"])
        )
    elif kind == "lose":
        for row in rows:
            del row[column:]
    elif kind == "line":
        rows.insert(at, draw(st.sampled_from([rows[at], [""], ["# a note"]])))
    elif kind == "separator":
        separator = draw(st.sampled_from([";", "\t", ", "]))
    else:
        end = draw(st.sampled_from(["\r\n", "\r", "\n\n"]))
    return end.join(separator.join(row) for row in rows).encode("utf-8", "surrogatepass")


_VALUES = st.one_of(
    st.sampled_from(
        [0, 1, -1, 0.0, -0.5, 0.5, 1.5, float("nan"), True, "", "x", "1.5 GB", "1000 mi", "-3 s", "auto", [], [1],
         ["x"], {}, {"kind": "x"}, [[0.5, 0.5], [1.0, 1.0]]]
    ),
    st.integers(-5, 300),
    st.text(max_size=4),
)  # fmt: skip


@st.composite
def mistyped_inputs(draw, root: type[Component], sound: str):
    """The tables of an input with one or two keys of any table set to something else, or misspelt."""
    tables = tomllib.loads(sound)
    root.model_rebuild(force=True)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(set(root.model_fields) - {"plugins"})))
        field, table = root.model_fields[name], tables.get(name, {})
        registry, owner = owner_of(field), field.annotation
        if isinstance(registry, Registry):
            kind = draw(st.sampled_from(sorted(registry)))
            table = table if kind == table.get("kind", registry.default) else {"kind": kind}
            owner = registry[kind]
        if isinstance(owner, type) and issubclass(owner, Component) and isinstance(table, dict):
            key = draw(st.sampled_from(known_keys(owner) or ["kind"]))
            key = key[:-1] if draw(st.integers(0, 4)) == 0 else key
            tables[name] = table | {key or "k": draw(_VALUES)}
        else:
            tables[name] = draw(_VALUES)
    return tables
