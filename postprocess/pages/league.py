"""Numbers of the page of the league, from the rows of docs/results/league: one row per run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from paper.studies import read_kept

from hpctrip.base.stats import Estimate, Times, compare
from hpctrip.base.text import markdown_table
from hpctrip.figures.common.grouping import times_of
from hpctrip.figures.league import FIXED, over_scenarios, ratios

PAGES = ("docs/results/league.md",)
QUOTED_ON = ("README.md",)
END = "## On a laptop"
"""The rest of the page has no rows."""
STATED = frozenset({"95 %", "0.1"})
BASE, GOODPUT, ADAPTIVE = "PowerTrip", "goodput", "goodput-adaptive"
SELECTORS = ("Oort", "FedCS", "TiFL", "power-of-choice")
"""Beginnings of the labels of published selectors; the rest is the setting of its main key."""
TUNED = "tuned-"
"""Beginning of the names of the scenarios on which constants of goodput were chosen."""
COUNTS = {
    "first-back, Algorithm 1": "fastest sites, Algorithm 1's number",
    "first-back k=20": "20 fastest sites",
    "first-back k=35": "35 fastest sites",
    GOODPUT: "goodput",
}
"""{policy: words of the page}: the ranking without a number of its own, and goodput."""

ByPolicy = dict[str, Times]


def by_scenario(results: Path, study: str) -> dict[str, ByPolicy]:
    """{scenario: {policy: its times}} of a kept ledger."""
    scenarios: dict[str, ByPolicy] = {}
    for label, runs in read_kept(results / "league")[study].items():
        scenario, _, policy = label.partition(", ")
        scenarios.setdefault(scenario, {})[_name(policy)] = times_of(runs, runs[0].meta["target_accuracy"])
    return scenarios


def _name(policy: str) -> str:
    """A fixed cohort by its kind and size: first-back k=20."""
    kind, _, k = policy.rpartition("-")
    return f"{kind} k={k}" if kind in FIXED else policy


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    scenarios = by_scenario(results, "league_real")
    rows = pd.DataFrame([row for name, each in scenarios.items() for row in ratios(name, each, BASE)])
    first = {name: _of_seed_0(each) for name, each in scenarios.items()}
    tuning = [
        row for name, each in first.items() if name.startswith(TUNED) for row in ratios(name, each, BASE)
    ]
    searched = {policy: own for policy, own in pd.DataFrame(tuning).groupby("policy")}
    found = {selector: _best_first(selector, searched) for selector in SELECTORS}
    goodput = rows[rows["policy"] == GOODPUT].set_index("scenario")
    tuned = goodput.index.str.startswith(TUNED)
    parts = {"all thirteen": goodput, "the six tuned": goodput[tuned], "the other seven": goodput[~tuned]}
    overall = [(name, *_overall(part)) for name, part in parts.items()]
    texts = {
        "overall": table(OVERALL, overall),
        "scenarios": table(SCENARIOS, [_scenario(name, each, goodput) for name, each in scenarios.items()]),
        "search": table(
            SEARCH, [_setting(name, searched[name]) for names in found.values() for name in names]
        ),
        "field": table(FIELD, [_selector(names[0], rows) for names in found.values()]),
        "constants": table(CONSTANTS, [(words, *_to(one, BASE, first)) for one, words in COUNTS.items()]),
        "ablation": _ablation(results, scenarios),
    }
    return texts | {
        "mean": over_scenarios(goodput, "ratio", "is").text(),
        "median": f"{goodput['ratio'].median():.2f}",
        "least": f"{goodput['ratio'].min():.2f}",
        "without least": over_scenarios(goodput.drop(goodput["ratio"].idxmin()), "ratio", "is").text(),
        "to best fixed": by_world(goodput, "ratio_to_best_static", "is_to_best_static").text(),
    }


OVERALL = (
    "scenarios",
    "time over that of PowerTrip: mean",
    "median",
    "worst",
    "over that of the best static cohort: mean (95 %, by world)",
    "worst",
)
SCENARIOS = (
    "scenario",
    "PowerTrip, h",
    "goodput, h",
    "ratio (95 %)",
    "best static: sites",
    "h",
    "goodput to it (95 %)",
    "adaptive to goodput, seed 0",
)
SEARCH = ("setting", "targets reached", "time over that of PowerTrip (95 %)", "worst")
FIELD = (
    "policy",
    "scenarios",
    "seeds",
    "time over that of PowerTrip (95 %)",
    "worst scenario",
    "over that of the best static cohort (95 %)",
    "worst",
)
CONSTANTS = ("policy", "scenarios that reached the target", "time over that of PowerTrip (95 %)", "worst")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table as a paragraph of Markdown."""
    return f"\n\n{markdown_table(head, list(rows))}\n\n"


def _of_seed_0(by_policy: ByPolicy) -> ByPolicy:
    return {name: times.of_seeds([0]) for name, times in by_policy.items() if 0 in times.seeds}


def by_world(rows: pd.DataFrame, ratio: str, how: str) -> Estimate:
    """Geometric mean of a column of ratios over worlds, with its 95 % interval (Student t over the logarithms of the
    worlds' own geometric means): scenarios that differ only in their target share one world."""
    world = rows.index.str.rpartition("-").get_level_values(0)
    bounds = [rows[how].eq(bound).groupby(world).any() for bound in ("at least", "at most")]
    return Estimate.geometric_mean(np.exp(np.log(rows[ratio]).groupby(world).mean()), *bounds)


def _overall(rows: pd.DataFrame) -> tuple[str, ...]:
    to_base = over_scenarios(rows, "ratio", "is")
    to_best = by_world(rows, "ratio_to_best_static", "is_to_best_static")
    bound = f"{to_base.bound} ".lstrip()
    worst = f"{rows['ratio_to_best_static'].max():.3f}"
    mean = f"{bound}{to_base.value:.3f}"
    median, most = f"{bound}{rows['ratio'].median():.3f}", f"{bound}{rows['ratio'].max():.3f}"
    return mean, median, most, to_best.text("{:.3f}"), worst


def _scenario(name: str, by_policy: ByPolicy, goodput: pd.DataFrame) -> tuple[str, ...]:
    base, row = by_policy[BASE], goodput.loc[name]
    late = base.num_seeds - base.num_reached
    missed = f" ({late} seed{'s' * (late > 1)} not)" if late else ""
    best = by_policy[row["best_static"]]
    zero = _of_seed_0(by_policy)
    return (
        name,
        f"{base.hours:.2f}{missed}",
        f"{by_policy[GOODPUT].hours:.2f}",
        compare(by_policy[GOODPUT], base).text("{:.2f}"),
        row["best_static"].partition("=")[2],
        f"{best.hours:.2f}",
        compare(by_policy[GOODPUT], best).text("{:.2f}"),
        compare(zero[ADAPTIVE], zero[GOODPUT]).text("{:.2f}"),
    )


def _best_first(selector: str, searched: dict[str, pd.DataFrame]) -> list[str]:
    """The settings of a selector: first those that missed the fewest targets, of these the fastest."""
    own = {name: rows for name, rows in searched.items() if name.startswith(f"{selector}-")}
    return sorted(
        own, key=lambda name: (own[name]["is"].ne("exact").sum(), np.log(own[name]["ratio"]).mean())
    )


def _setting(policy: str, rows: pd.DataFrame) -> tuple[str, ...]:
    """One setting in the tuned scenarios, seed 0, with which PowerTrip reached every target."""
    mean = over_scenarios(rows, "ratio", "is")
    reached = f"{int(rows['is'].eq('exact').sum())} of {len(rows)}"
    return policy, reached, mean.text("{:.2f}"), f"{mean.bound} {rows['ratio'].max():.2f}".strip()


def _selector(policy: str, rows: pd.DataFrame) -> tuple[str, ...]:
    own = rows[rows["policy"] == policy]
    cells = [policy, str(len(own)), str(int(own["num_seeds"].min()))]
    for suffix in ("", "_to_best_static"):
        mean = over_scenarios(own, f"ratio{suffix}", f"is{suffix}")
        worst = own[f"ratio{suffix}"].max()
        cells += [mean.text("{:.2f}"), f"{mean.bound} {worst:.2f}".strip()]
    return tuple(cells)


def _to(one: str, other: str, scenarios: dict[str, ByPolicy]) -> tuple[str, str, str]:
    """One policy over another in the scenarios that have both: how often the first reached the target, the geometric
    mean of the ratio of their times, and the worst ratio."""
    pairs = [(each[one], each[other]) for each in scenarios.values() if one in each and other in each]
    ratio = [compare(*pair) for pair in pairs]
    at_least, at_most = ([estimate.bound == bound for estimate in ratio] for bound in ("at least", "at most"))
    mean = Estimate.geometric_mean([estimate.value for estimate in ratio], at_least, at_most)
    reached = f"{sum(own.reached for own, _ in pairs)} of {len(pairs)}"
    return reached, mean.text("{:.2f}"), f"{max(estimate.value for estimate in ratio):.2f}"


PARTS = {
    "no-signal": "without the noise signal (nu stays at 5)",
    "no-coverage": "without coverage",
    "no-step-length": "without step length",
    "no-deadline-search": "without the deadline search (10 sites back first)",
    "smoothed-forecast": "smoothed forecast",
    "daily-forecast": "daily forecast",
    "oracle-forecast": "true power known (oracle)",
}
"""{label of the study: words of the page}."""


def _ablation(results: Path, league: dict[str, ByPolicy]) -> str:
    """Hours of seed 0, or the best accuracy where the target was not reached; "=": as goodput."""
    parts = by_scenario(results, "ablation")
    names = [*parts]
    whole = {name: league[name][GOODPUT].of_seeds([0]) for name in names}
    rows = [("goodput", *(_hours(whole[name]) for name in names))]
    for label, words in PARTS.items():
        cells = (_hours(parts[name][label], whole[name]) for name in names)
        rows.append((words, *cells))
    rows.append((BASE, *(_hours(league[name][BASE].of_seeds([0])) for name in names)))
    return table(("", *names), rows)


def _hours(times: Times, whole: Times | None = None) -> str:
    if whole is not None and times.reached and times.hours == whole.hours:
        return "="
    return f"{times.hours:.3f}" if times.reached else f"not: {times.best_accuracy:.1%}"
