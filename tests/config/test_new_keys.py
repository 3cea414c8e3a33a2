"""A new input key leaves the identities of stored runs as they are, or it is declared to make them stale."""

from collections.abc import Iterator
from pathlib import Path

from hpctrip.config.component import Component, NamedTables, Registry, is_own, owner_of
from hpctrip.config.identity import Added, NotInResult, is_added, is_neutral
from hpctrip.runner.experiment import Experiment

LIST = Path(__file__).with_name("keys_of_identities.txt")


def counted_keys(cls: type[Component], prefix: str = "") -> Iterator[str]:
    """The keys of a table that are part of every identity, `table=kind.key` where a kind chooses them: those that are
    neither `Added` nor change no result. `table.kind` is one, unless the registry was added."""
    for name, field in cls.model_fields.items():
        owner, key = owner_of(field), prefix + name
        if is_neutral(field):
            continue
        if not is_added(field):
            yield key
        if isinstance(owner, NamedTables):
            owner = owner.registry
        if isinstance(owner, Registry):
            if not owner.added:
                yield f"{key}.kind"
            for kind, chosen in owner.items():
                if is_own(chosen):
                    yield from counted_keys(chosen, f"{key}={kind}.")
        elif owner is not None:
            yield from counted_keys(owner, f"{key}.")


def test_every_new_key_is_marked_as_added():
    listed, present = LIST.read_text().split(), sorted(set(counted_keys(Experiment)))
    new, gone = sorted({*present} - {*listed}), sorted({*listed} - {*present})
    assert not new, (
        f"{new} would make all stored runs stale: give their fields the type Added[...] (config/identity.py), or, "
        f"where the kind or table that holds them is new itself, add them to {LIST.name}"
    )
    assert not gone, f"stored runs have {gone} in their identities: without these keys they are stale"
    assert listed == sorted(set(listed)), f"the lines of {LIST.name} are not sorted, or one stands twice"


class Box(Component):
    size: float = 1.0
    colour: Added[str] = "white"
    maker: NotInResult[str] = ""


class Shelf(Component):
    box: Added[Box] = Box()
    other: Box = Box()


def test_only_unmarked_keys_count_also_those_of_a_table_that_was_added():
    assert [*counted_keys(Shelf)] == ["box.size", "other", "other.size"]
