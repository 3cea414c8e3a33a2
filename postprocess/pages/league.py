"""Numbers of the page of the league, from the rows of docs/results/league: one row per run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from paper.studies import read_kept

from hpctrip.base.stats import UNKNOWN, Estimate, Times, compare
from hpctrip.figures.common.grouping import times_of
from hpctrip.figures.league import FIXED, over_scenarios, ratios
from pages import table

PAGES = ("docs/results/league.md",)
QUOTED_ON = ("README.md", "docs/questions/how_many.md", "docs/questions/which_sites.md")
END = "## On a laptop"
"""The rest of the page has no rows."""
STATED = frozenset({"95 %", "0.1", "1.3"})
BASE, GOODPUT, ADAPTIVE = "PowerTrip, clock", "goodput", "goodput-adaptive"
"""The page calls the first "PowerTrip": of its interpretations the fastest one."""
DEFAULT = "PowerTrip"
INTERPRETATIONS = {
    DEFAULT: "compute at the mean power (default)",
    "PowerTrip, prefix": "search over prefixes",
}
"""{label of the study: words of the page} of PowerTrip's other interpretations."""
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
    for label, runs in read_kept(results / "league", study)[study].items():
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
    tuning = {name: each for name, each in first.items() if name.startswith(TUNED)}
    settings = [_settings(selector, tuning) for selector in SELECTORS]
    goodput = rows[rows["policy"] == GOODPUT].set_index("scenario")
    tuned = goodput.index.str.startswith(TUNED)
    parts = {"all thirteen": goodput, "the six tuned": goodput[tuned], "the other seven": goodput[~tuned]}
    overall = [(name, *_overall(part)) for name, part in parts.items()]
    least = goodput.loc[goodput["ratio"].idxmin()]
    texts = {
        "overall": table(OVERALL, overall),
        "scenarios": table(SCENARIOS, [_scenario(name, each, goodput) for name, each in scenarios.items()]),
        "field": table(FIELD, [_selector(names[0], rows) for names in settings]),
        "constants": table(CONSTANTS, [(words, *_cells(name, first)) for name, words in COUNTS.items()]),
        "interpretations": table(
            FAIR,
            [
                (words, *_cells(name, first), _to_base(GOODPUT, first, name).text("{:.2f}"))
                for name, words in INTERPRETATIONS.items()
            ],
        ),
        "to default": _to_base(GOODPUT, scenarios, DEFAULT).text("{:.2f}"),
        "ablation": _ablation(results, scenarios),
    }
    return texts | {
        "mean": over_scenarios(goodput, "ratio", "is").text(),
        "median": f"{goodput['ratio'].median():.2f}",
        "least": f"{least['is']} {least['ratio']:.2f}".removeprefix("exact "),
        "without least": by_world(goodput.drop(least.name), "ratio", "is").text(),
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
FAIR = ("interpretation", *CONSTANTS[1:], "goodput over it (95 %)")


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
        f"{base.mean.value:.2f}{missed}",
        f"{by_policy[GOODPUT].mean.value:.2f}",
        compare(by_policy[GOODPUT], base).text("{:.2f}"),
        row["best_static"].partition("=")[2],
        f"{best.mean.value:.2f}",
        compare(by_policy[GOODPUT], best).text("{:.2f}"),
        compare(zero[ADAPTIVE], zero[GOODPUT]).text("{:.2f}"),
    )


def _settings(selector: str, scenarios: dict[str, ByPolicy]) -> list[str]:
    """The settings of a selector: first those that missed the fewest targets, of these the fastest."""
    names = {name for each in scenarios.values() for name in each if name.startswith(f"{selector}-")}
    return sorted(names, key=lambda name: (-_reached(name, scenarios), _to_base(name, scenarios).value))


def _selector(policy: str, rows: pd.DataFrame) -> tuple[str, ...]:
    own = rows[rows["policy"] == policy]
    cells = [policy, str(len(own)), str(int(own["num_seeds"].min()))]
    for suffix in ("", "_to_best_static"):
        ratio, how = own[f"ratio{suffix}"], own[f"is{suffix}"]
        cells += [over_scenarios(own, ratio.name, how.name).text("{:.2f}"), _worst(ratio, how)]
    return tuple(cells)


def _worst(ratio: pd.Series, how: pd.Series) -> str:
    """The largest ratio with its own bound; where a ratio is only a lower bound, so is the largest."""
    if how.isin(["at least", UNKNOWN]).any():
        return f"at least {ratio[how != 'at most'].max():.2f}"
    return f"{how[ratio.idxmax()].removeprefix('exact')} {ratio.max():.2f}".strip()


def _to_base(policy: str, scenarios: dict[str, ByPolicy], base: str = BASE) -> Estimate:
    """Geometric mean over scenarios of the time of a policy over that of PowerTrip, or of another."""
    ratios = [compare(each[policy], each[base]) for each in scenarios.values()]
    at_least, at_most = ([ratio.bound == bound for ratio in ratios] for bound in ("at least", "at most"))
    return Estimate.geometric_mean([ratio.value for ratio in ratios], at_least, at_most)


def _reached(policy: str, scenarios: dict[str, ByPolicy]) -> int:
    return sum(each[policy].reached for each in scenarios.values())


def _cells(policy: str, scenarios: dict[str, ByPolicy]) -> tuple[str, str, str]:
    """The number of scenarios that reached the target, the mean ratio to PowerTrip, and the worst."""
    ratio = _to_base(policy, scenarios)
    reached = f"{_reached(policy, scenarios)} of {len(scenarios)}"
    return reached, ratio.text("{:.2f}"), f"{ratio.bound} {ratio.by_seed.max():.2f}".lstrip()


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
    rows.append(("PowerTrip", *(_hours(league[name][BASE].of_seeds([0])) for name in names)))
    return table(("", *names), rows)


def _hours(times: Times, whole: Times | None = None) -> str:
    if whole is not None and times.reached and times.mean.value == whole.mean.value:
        return "="
    return f"{times.mean.value:.3f}" if times.reached else f"not: {times.best_accuracy:.1%}"
