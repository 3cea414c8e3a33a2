"""Groups runs by configuration, so that the runs of a group differ in their seed only."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hpctrip.base import stats
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.config.identity import Flat, differing, identity, without
from hpctrip.figures.common.reading import provenance
from hpctrip.record.reader import InputError, Run

APART = ("seed", "stop")
"""Input keys that change a run but make no other configuration: which draw it is, and when it ends, because what is
compared is the time to one target."""

MOST_LISTED = 4
"""Keys in which runs differ that have a line each; of more, one line names some."""


@dataclass(frozen=True)
class Group:
    """Runs of one configuration that differ in their seed only."""

    label: str
    policy: str
    runs: tuple[Run, ...]

    def times(self, target: float) -> stats.Times:
        """Its time to a target accuracy over its seeds."""
        return times_of(self.runs, target)


def times_of(runs: Sequence[Run], target: float) -> stats.Times:
    """The time to a target accuracy over runs of one configuration, a seed each."""
    by_seed = []
    for run in runs:
        spent_s, reached = run.spent(target)
        by_seed.append((run.meta["seed"], spent_s / HOUR_S, reached, run.rounds["accuracy"].max()))
    return stats.Times.of(by_seed)


def pairs(one: Sequence[Run], other: Sequence[Run]) -> list[tuple[Run, Run]]:
    """(run of `one`, run of `other`) for each seed that both have."""
    by_seed = {run.meta["seed"]: run for run in other}
    return [(run, by_seed[run.meta["seed"]]) for run in one if run.meta["seed"] in by_seed]


TIMES_HEAD = ("TTA h (95 % interval)", "seeds", "reached", "best accuracy")


def cells_of(times: stats.Times) -> tuple[str, ...]:
    """The cells below TIMES_HEAD."""
    return str(times), str(times.num_seeds), str(times.num_reached), f"{times.best_accuracy:.4f}"


def grouped(runs: Sequence[Run], most: int | None = None) -> list[Group]:
    """Runs by configuration, in the order of first appearance.

    A group is called what its runs are labelled (input key `label`), else by its policy with its k; where that is the
    name of several, the input keys in which they differ follow. Raises InputError where a group has a seed twice: a
    mean over it would be no mean over seeds; and where there are more groups than the `most` that anyone can look at.
    """
    members: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        name = printable(run.meta["label"] or run.meta["policy"], 80).strip("_ ") or "unnamed"
        members[name, identity(configuration(run))].append(run)
    for (name, _), same in members.items():
        refuse_repeated_seeds(name, same)
    if most and len(members) > most:
        problem = f"are of {len(members)} configurations, {most} at most are drawn"
        raise InputError("the runs", problem, "give those that are to be compared")
    telling = {
        name: _telling([configuration(same[0]) for (other, _), same in members.items() if other == name])
        for name, _ in members
    }
    return [
        Group(_label(name, same[0], telling[name]), same[0].meta["policy"], tuple(same))
        for (name, _), same in members.items()
    ]


def compared(runs: Sequence[Run], most: int | None = None) -> tuple[list[Group], str]:
    """The groups of `grouped`, and a caption for their picture: whether data and power are synthetic, and the settings
    in which the groups differ, of which it warns."""
    groups = grouped(runs, most)
    unlike = warn_of_differences(groups)
    return groups, provenance(runs) + (f"\n{unlike}" if unlike else "")


def refuse_repeated_seeds(name: str, runs: Sequence[Run]) -> None:
    """Raise InputError where two runs of a configuration, called `name`, have the same seed."""
    by_seed: dict[int, Run] = {}
    for run in runs:
        other = by_seed.setdefault(run.meta["seed"], run)
        if other is not run:
            problem = f"is {name} with seed {run.meta['seed']}, and so is {other.path}"
            raise InputError(str(run.path), problem, "a seed counts once: leave one of them out")


def _telling(tables: Sequence[Flat]) -> list[str]:
    """The input keys in which configurations differ, without those whose one value only some kinds of a table have: its
    `kind` tells them."""
    keys = differing(tables)

    def follows(key: str, kind: str) -> bool:
        pairs = {(table.get(kind), repr(table.get(key))) for table in tables}
        one_value = len(pairs) == len(dict(pairs)) and len({value for _, value in pairs} - {"None"}) == 1
        return one_value and key != kind and key.startswith(kind.removesuffix("kind"))

    return [key for key in keys if not any(follows(key, kind) for kind in keys if kind.endswith(".kind"))]


def _label(name: str, run: Run, telling: Sequence[str]) -> str:
    """The name of a group, with the keys that tell it from others of that name."""
    settings = configuration(run)
    keys = sorted({*telling} if run.meta["label"] else {*telling, "policy.k"})
    values = {key.removeprefix("policy."): settings.get(key) for key in keys}
    named = [f"{key} = {_shown(value)}" for key, value in values.items() if value is not None]
    return " ".join(filter(None, (name, ", ".join(named))))


def configuration(run: Run) -> dict[str, object]:
    """{dotted input key: value} of all that makes a configuration. What a policy sets that is a world of its own
    (centralized) is nothing in which the others could agree with it."""
    return without(run.settings, [*APART, *run.meta["policy_keys"]])


def warn_of_differences(groups: Sequence[Group]) -> str:
    """Warn on stderr of the settings, their policy apart, in which the groups to compare are not alike. Returns the
    same in a few words, for the picture; empty where they are alike.

    A key counts for those groups that have it: what a table of another `kind` lacks, its `kind` tells.
    """
    labels: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        for key, value in configuration(group.runs[0]).items():
            if not key.startswith("policy."):
                labels[key][_shown(value)].append(group.label)
    differences = sorted(key for key, by_value in labels.items() if len(by_value) > 1)
    for key in differences if len(differences) <= MOST_LISTED else ():
        values = " | ".join(f"{value} ({', '.join(of)})" for value, of in labels[key].items())
        print(f"warning: not alike in {key}: {values}", file=sys.stderr)
    if len(differences) > MOST_LISTED:
        keys = ", ".join(differences[:MOST_LISTED])
        hint = "hpctrip diff lists them, and -o label=... names runs of a kind"
        print(f"warning: not alike in {len(differences)} keys, such as {keys}; {hint}", file=sys.stderr)
    if len(differences) > 2:
        differences[2:] = [f"{len(differences) - 2} more"]
    return f"not alike in {', '.join(differences)}" if differences else ""


def _shown(value: object) -> str:
    """A value in a label: a number with as few digits as tell it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "none" if value is None else printable(str(value), 80)
