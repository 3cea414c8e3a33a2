"""Policies over many scenarios, as ratios of time.

A scenario is all of an input but its seed, its policy and its forecast. In each, the hours of a policy are divided by
those of the baseline with the same seed (geometric mean over seeds), and by those of the best fixed cohort in
hindsight: the runs of `static` or of `first-back` with the k of the smallest ratio to the baseline. A dot is a
scenario; the bar is the geometric mean over scenarios with its 95 % interval (Student t over logarithms), and the table
has the same interval over the seeds of each scenario. A seed that did not reach the target counts with all the time it
spent, so that ratio is a bound and its dot is open. A scenario is won, and a fixed cohort is the best, among those that
reached the target with every seed and share the most seeds with the baseline: few seeds may be the easy ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from hpctrip.base.errors import InputError
from hpctrip.base.identity import differing, identity, without
from hpctrip.figures.common import intervals, reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.sources import RUNS
from hpctrip.record.reader import Run

FIXED = ("static", "first-back")
HINDSIGHT = "best fixed"
APART = ("seed", "policy", "forecast", "label", "name")


@dataclass(frozen=True)
class Entry:
    """A policy in a scenario: seconds by seed, and which seeds reached the target."""

    spent_s: dict[int, float]
    arrived: frozenset[int]

    @property
    def reached(self) -> bool:
        """Whether every seed reached the target."""
        return self.arrived == self.spent_s.keys()

    def over(self, base: Entry) -> tuple[float, float, float, str]:
        """(ratio, low, high, how): geometric mean of the times over the base's, over the seeds that both have, its 95 %
        interval, and whether it is exact, or a bound as a seed of one of them did not reach the target; that to itself
        is known. NaN: the ratio where they share no seed, the interval where they share one or the ratio is a bound.
        """
        shared = sorted(self.shared(base))
        if not shared:
            return math.nan, math.nan, math.nan, "exact"
        mean, low, high = intervals.geometric_mean([self.spent_s[n] / base.spent_s[n] for n in shared])
        reached, base_reached = self.arrived.issuperset(shared), base.arrived.issuperset(shared)
        if self is base or (reached and base_reached):
            return mean, low, high, "exact"
        return mean, math.nan, math.nan, "at most" if reached else "at least" if base_reached else "unknown"

    def shared(self, base: Entry) -> set[int]:
        """The seeds that both have."""
        return self.spent_s.keys() & base.spent_s.keys()


@figure(
    RUNS,
    click.Option(
        ["--baseline"], default="powertrip", show_default=True, help="The policy that others are divided by."
    ),
    click.Option(
        ["--split"],
        metavar="PREFIX",
        help="Tell the scenarios whose name begins with this apart from the others, too.",
    ),
)
def plot(runs: Sequence[Run], baseline: str = "powertrip", split: str | None = None) -> Drawing:
    """Every policy over all scenarios in which it and the baseline ran."""
    scenarios = entries(runs)
    table = pd.DataFrame(
        [row for name, found in scenarios.items() for row in ratios(name, found, baseline)],
        columns=[
            *("scenario", "policy", "num_seeds", "ratio", "ratio_low", "ratio_high", "is"),
            *(
                "ratio_to_best_fixed",
                "ratio_to_best_fixed_low",
                "ratio_to_best_fixed_high",
                "is_to_best_fixed",
            ),
            *("best_fixed", "is_win"),
        ],
    )
    if table.empty:
        raise InputError(
            "the runs", f"have no scenario in which {baseline} ran", "give them, or name another --baseline"
        )
    order = table.groupby("policy")["ratio"].median().sort_values().index.tolist()
    names = [style.counted_name(policy, int((table["policy"] == policy).sum()), 22) for policy in order]
    lines_of_name = max(name.count("\n") + 1 for name in names)
    picture = style.figure(1.3 + max(0.31, 0.12 * lines_of_name + 0.07) * len(order))
    axes = picture.subplots()
    axes.axvline(1, color="black", linewidth=0.8)
    for y, policy in enumerate(order):
        own = table[table["policy"] == policy]
        for ratio, how in zip(own["ratio"], own["is"], strict=True):
            face = "black" if how == "exact" else "white"
            axes.plot(ratio, y, "o", color="black", markersize=3, markerfacecolor=face, markeredgewidth=0.6)
        mean, low, high = intervals.geometric_mean(own["ratio"].dropna())
        axes.plot([mean, mean], [y - 0.28, y + 0.28], color=style.BLUE, linewidth=2)
        if np.isfinite(low):
            axes.plot([low, high], [y, y], color=style.BLUE, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yticks(range(len(order)), names, multialignment="right", linespacing=1.1)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel(style.wrapped(f"Time-to-accuracy over that of {baseline}", 36))
    _number(axes)
    axes.tick_params(axis="y", length=0)
    style.grid(axes, "x")
    style.heading(picture, reading.provenance(runs))
    lines = [*summaries(table, order), *(f"scenario {name}" for name in scenarios)]
    if split is not None:
        named = table["scenario"].str.partition(": ")[2].str.startswith(split)
        for said, part in ((f"begins with {split}", named), (f"does not begin with {split}", ~named)):
            lines += [f"scenarios whose name {said}:{'' if part.any() else ' none'}"]
            lines += summaries(table[part], order) if part.any() else []
    return Drawing(picture, table, lines)


def _number(axes: Axes) -> None:
    """Give a logarithmic axis of ratios, on which 1 is, at least two numbers and at most a dozen."""
    low, high = axes.get_xlim()
    by_decade = LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,))
    axes.xaxis.set_major_locator(MaxNLocator(5) if high < 4 * low else by_decade)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def summaries(table: pd.DataFrame, order: Sequence[str]) -> list[str]:
    """A line for every policy, in this order, that ran in these scenarios."""
    head = ("policy", "scenarios", "mean ratio (95 %)", "worst", "wins", f"to {HINDSIGHT} (95 %)", "worst")
    by_policy = {policy: table[table["policy"] == policy] for policy in order}
    return aligned(head, [summary(policy, own) for policy, own in by_policy.items() if len(own)])


def entries(runs: Sequence[Run]) -> dict[str, dict[str, Entry]]:
    """{scenario: {policy: entry}}, in the order of first appearance."""
    cells: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    names = policies(runs)
    for run, name in zip(runs, names, strict=True):
        scenario = without(run.settings, [*APART, *run.meta["policy_keys"]])
        cells[identity(scenario)][name].append(run)
    titled = [(_title([run for group in found.values() for run in group]), found) for found in cells.values()]
    return {
        f"{number}: {title}".rstrip(": "): {name: _entry(group) for name, group in found.items()}
        for number, (title, found) in enumerate(titled, 1)
    }


def policies(runs: Sequence[Run]) -> list[str]:
    """What to call the policy of each run: its kind, and the keys in which runs of this kind differ."""
    settings = [
        {key: value for key, value in run.settings.items() if key.startswith(("policy.", "forecast."))}
        for run in runs
    ]
    telling = {
        run.meta["policy"]: differing(
            [s for s, other in zip(settings, runs, strict=True) if other.meta["policy"] == run.meta["policy"]]
        )
        for run in runs
    }
    return [
        " ".join(
            [run.meta["policy"]]
            + [
                f"{key.removeprefix('policy.')}={own[key]}"
                for key in telling[run.meta["policy"]]
                if own.get(key) is not None
            ]
        )
        for run, own in zip(runs, settings, strict=True)
    ]


def _title(runs: Sequence[Run]) -> str:
    """What the labels of a scenario's runs begin with, in whole words."""
    labels = [run.meta["label"].split() for run in runs]
    common = takewhile(lambda words: len(set(words)) == 1, zip(*labels, strict=False))
    return " ".join(words[0] for words in common)


def _entry(runs: Sequence[Run]) -> Entry:
    spent = {}
    for run in runs:
        seed = int(run.meta["seed"])
        if seed in spent:
            raise InputError(str(run.path), f"is a second run of seed {seed}", "give one of each seed")
        spent[seed] = run.spent(float(run.meta["target_accuracy"]))
    arrived = frozenset(seed for seed, (_, reached) in spent.items() if reached)
    return Entry({seed: time_s for seed, (time_s, _) in spent.items()}, arrived)


def ratios(scenario: str, found: dict[str, Entry], baseline: str) -> list[tuple]:
    """The rows of one scenario; none where the baseline did not run."""
    if baseline not in found:
        return []
    base = found[baseline]
    fixed = {name: entry for name, entry in found.items() if name.split()[0] in FIXED}
    best = _best(fixed, base)
    shown = {name: entry for name, entry in found.items() if name not in fixed}
    winner = _best(shown, base)
    if best:
        shown[HINDSIGHT] = fixed[best]
    return [
        (
            scenario,
            name,
            len(entry.shared(base)),
            *entry.over(base),
            *(entry.over(fixed[best]) if best else (math.nan, math.nan, math.nan, "")),
            best,
            name == winner,
        )
        for name, entry in shown.items()
    ]


def _best(found: dict[str, Entry], base: Entry) -> str:
    """Who has the smallest ratio to the base, of those that arrived and share the most seeds with it; "": nobody."""
    arrived = [name for name, entry in found.items() if entry.reached]
    return min(
        arrived, key=lambda name: (-len(found[name].shared(base)), found[name].over(base)[0]), default=""
    )


def summary(policy: str, own: pd.DataFrame) -> tuple[str, ...]:
    """The line of one policy."""
    bounds = (own["is"] != "exact").sum()
    count = f"{len(own)} ({bounds} bounds)" if bounds else str(len(own))
    to_base, to_best = _said(own, "ratio", "is"), _said(own, "ratio_to_best_fixed", "is_to_best_fixed")
    return policy, count, *to_base, str(own["is_win"].sum()), *to_best


def _said(own: pd.DataFrame, ratio: str, how: str) -> tuple[str, str]:
    """(mean with its interval, worst) of a column of ratios. Where some of them are bounds, so are both, and the
    interval of a number that is not known is not told; of bounds in both directions nothing is known."""
    known = own[own[ratio].notna()]
    if not len(known):
        return "-", "-"
    bounds = {*known[how]} - {"exact"}
    if len(bounds) > 1 or "unknown" in bounds:
        return "unknown", "unknown"
    bound = f"{bounds.pop()} " if bounds else ""
    mean, low, high = intervals.geometric_mean(known[ratio])
    spread = f" ({low:.3g} to {high:.3g})" if math.isfinite(low) and not bound else ""
    return f"{bound}{mean:.3g}{spread}", f"{bound}{known[ratio].max():.3g}"
