"""Keys that change no result say so where they are declared."""

from typing import Literal

import pytest
from pydantic import Field

from hpctrip.config.component import Component, Registry
from hpctrip.config.identity import (
    Added,
    NotInResult,
    added_keys,
    differing,
    flat,
    identity,
    neutral_keys,
    raised_rules,
    without,
)
from hpctrip.runner.experiment import read_input

TOYS = Registry("toy", default="ball")


@TOYS.add
class Ball(Component):
    kind = "ball"
    radius: float = 1.0
    maker: NotInResult[str | None] = None


@TOYS.add
class Kite(Component):
    kind = "kite"
    length: float = 3.0


class Paper(Component):
    colour: Literal["white", "red"] = "white"


class Box(Component):
    name: NotInResult[str] = "box"
    toy: TOYS.field() = Field(default_factory=dict, validate_default=True)
    paper: NotInResult[Paper] = Paper()
    size: float = 2.0


def test_neutral_keys_are_found_in_nested_tables_and_those_that_a_kind_chooses():
    assert neutral_keys(Box.model_validate({})) == ["name", "toy.maker", "paper"]


class Lid(Component):
    closed: bool = False


class Chest(Component):
    size: float = 2.0
    lock: Added[str] = "none"
    lid: Added[Lid] = Lid()


@pytest.mark.parametrize(
    ("tables", "keys"),
    [
        ({}, ["lock", "lid"]),
        ({"lock": "none", "lid": {"closed": False}}, ["lock", "lid"]),
        ({"size": 1.0, "lid": {"closed": True}}, ["lock"]),
        ({"lock": "iron"}, ["lid"]),
    ],
)
def test_added_keys_are_left_out_of_an_identity_only_at_their_defaults(tables, keys):
    assert added_keys(Chest.model_validate(tables)) == keys


def test_an_input_without_its_neutral_keys_keeps_what_only_begins_like_one():
    table = flat({"name": "a", "names": 1, "paper": {"colour": "red"}, "toy": {"maker": "b", "radius": 3}})
    assert table == {"name": "a", "names": 1, "paper.colour": "red", "toy.maker": "b", "toy.radius": 3}
    assert without(table, ["name", "paper", "toy.maker"]) == {"names": 1, "toy.radius": 3}


def test_an_absent_key_differs_from_a_value_but_not_from_none():
    assert differing([{"b": 1, "a": 1}, {"a": 2, "c": None}]) == ["b", "a"]
    assert differing([{"a": [1, 2]}, {"a": [1, 2]}, {"a": [1]}]) == ["a"]
    assert differing([]) == []


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"a": 1.5, "b": "x"}, True),
        ({"b": "x", "a": 1.5}, True),
        ({"a": 1.5, "b": "x", "c": None}, True),
        ({"a": 1.5, "b": "y"}, False),
        ({"a": 1.5}, False),
    ],
)
def test_the_identity_of_an_input_follows_from_its_values_alone(other, same):
    assert (identity({"a": 1.5, "b": "x"}) == identity(other)) is same
    assert identity(other) == identity(dict(other)) and len(identity(other)) == 32


LINK = ["network.aggregator_bandwidth_bps=1e9"]
DEADLINE = ["faults.deadline_s=60"]


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        (["policy.kind=oort"], 1),
        (["policy.kind=oort", *LINK], 2),
        (["policy.kind=oort", *DEADLINE], 2),
        (["policy.kind=tifl", *LINK], 2),
        (["policy.kind=tifl", *DEADLINE], 1),
        (["policy.kind=powertrip", *LINK, *DEADLINE], 1),
        (["sites.kind=csv", "sites.path=gpus.csv"], 1),
        (["sites.kind=csv", "sites.path=gpus.csv", "throughput.kind=clocks"], 2),
        (["throughput.kind=gpus"], 1),
        (["server.on_diverged=drop"], 1),
        (["server.on_diverged=drop", "compression.kind=top-k"], 2),
    ],
)
def test_rules_that_follow_from_several_tables_are_raised_where_numbers_changed(
    lines, rules, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpus.csv").write_text("gpus\n8\n100\n")
    assert raised_rules(read_input(overrides=lines).experiment).get("input", 1) == rules
