"""Numbers of the page of the random league, from the rows of benchmarks/league_random.py: one per run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from hpctrip.base.stats import UNKNOWN, Times
from hpctrip.figures.league import over_scenarios, ratios
from pages import table
from pages.league import GOODPUT

PAGES = ("docs/results/random_league.md",)
QUOTED_ON = ("README.md", "docs/questions/how_many.md", "docs/questions/which_sites.md")
END = "## To repeat it"
"""The rest of the page has no rows."""
STATED = frozenset({"95 %", "4 %", "0.8", "0.97", "0.05", "0.1"})
FAIR = "PowerTrip, clock"
"""The PowerTrip of the four that was chosen on development scenarios."""
FILES = {"development": "random_development.csv", "unseen": "random.csv"}
"""{part of the page: file of rows}."""
EXPONENTIAL = "goodput, exponential"
"""goodput with `policy.progress = "exponential"`."""
TO_FAIR, TO_FIXED = 0.80, 0.95
"""Goals for goodput's mean time over that of a fair PowerTrip, and over that of the best fixed cohort."""
SLOW, SLOW_SHARE = 1.05, 0.1
"""A scenario is slow above this ratio to the best fixed cohort, or where goodput missed the target with a seed. At most
this share of the scenarios may be slow."""
HEAD = ("measure", "goal", "result", "")
GROUPS = ("workload", "power", "clock", "outages", "share")
GROUP_HEAD = (
    "scenarios with",
    "value",
    "number",
    "time over that of PowerTrip",
    "over that of the best fixed cohort",
)


def values(results: Path) -> dict[str, str]:
    """{name: text}, of the parts that have rows."""
    texts: dict[str, str] = {}
    for part, name in FILES.items():
        file = results / "league" / name
        if file.exists():
            rows = pd.read_csv(file)
            of_goodput = ratios_of(rows)
            facts = rows.drop_duplicates("scenario").set_index("scenario")[[*GROUPS]]
            texts[f"{part} verdict"] = table(HEAD, verdicts(of_goodput))
            texts[f"{part} median to PowerTrip"] = median(of_goodput, "ratio", "is")
            texts[f"{part} median to the best fixed"] = median(
                of_goodput, "ratio_to_best_static", "is_to_best_static"
            )
            texts[f"{part} slow names"] = ", ".join(map(str, of_goodput.index[_slow(of_goodput)]))
            texts[f"{part} groups"] = table(GROUP_HEAD, groups(of_goodput.join(facts)))
            if (rows["policy"] == EXPONENTIAL).any():
                texts |= {f"{part} exponential {name}": text for name, text in exponential(rows)}
    return texts


def ratios_of(rows: pd.DataFrame, policy: str = GOODPUT, baseline: str = FAIR) -> pd.DataFrame:
    """The ratios of a policy in every scenario, in the columns of `figures.league.ratios`; indexed by scenario."""
    table_rows = []
    for scenario, runs in rows.groupby("scenario"):
        times = {name.replace("back-", "back k="): _times(own) for name, own in runs.groupby("policy")}
        table_rows += [row for row in ratios(scenario, times, baseline) if row["policy"] == policy]
    return pd.DataFrame(table_rows).set_index("scenario")


def exponential(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(name, text) of how the exponential form compares with the inverse one and with the best fixed cohort."""
    to_fixed, to_inverse = ratios_of(rows, EXPONENTIAL), ratios_of(rows, EXPONENTIAL, GOODPUT)
    yield (
        "to the best fixed",
        over_scenarios(to_fixed, "ratio_to_best_static", "is_to_best_static").text("{:.3f}"),
    )
    yield "to the inverse", over_scenarios(to_inverse, "ratio", "is").text("{:.3f}")
    ratio = to_inverse["ratio"]
    for name, those in (("faster", ratio < 1 / SLOW), ("slower", ratio > SLOW)):
        yield name, ", ".join(f"{scenario} ({ratio[scenario]:.2f})" for scenario in ratio.index[those])


def _times(runs: pd.DataFrame) -> Times:
    return Times.of(zip(runs["seed"], runs["hours"], runs["reached"], runs["best_accuracy"], strict=True))


def verdicts(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """The rows of HEAD: what the selector was to reach, and whether it did."""
    for name, suffix, goal in (
        ("a fair PowerTrip", "", TO_FAIR),
        ("the best fixed cohort", "_to_best_static", TO_FIXED),
    ):
        mean = over_scenarios(found, f"ratio{suffix}", f"is{suffix}")
        met = mean.value <= goal and mean.bound in ("", "at most")
        words = f"time over that of {name}, geometric mean (95 %)"
        yield words, f"at most {goal:.2f}", mean.text("{:.3f}"), _met(met)
    num_slow = int(_slow(found).sum())
    most = int(SLOW_SHARE * len(found))
    words = f"scenarios above {SLOW} of the best fixed cohort's time"
    yield words, f"at most {most} of {len(found)}", str(num_slow), _met(num_slow <= most)


def _slow(found: pd.DataFrame) -> pd.Series:
    missed = found["is"].isin(["at least", UNKNOWN])  # by goodput: such a ratio is no more than a lower bound
    return missed | (found["ratio_to_best_static"] > SLOW)


def median(found: pd.DataFrame, ratio: str, how: str) -> str:
    """The median over scenarios of a column of ratios, or its upper bound where some are bounds."""
    counted = found[ratio].where(~found[how].isin(["at least", UNKNOWN]), math.inf)
    bound = "at most " if (found[how] != "exact").any() else ""
    return f"{bound}{counted.median():.2f}"


def _met(met: bool) -> str:
    return "met" if met else "missed"


def groups(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """The rows of GROUP_HEAD."""
    for group in GROUPS:
        for value, own in found.groupby(group):
            means = (
                over_scenarios(own, f"ratio{suffix}", f"is{suffix}").text("{:.2f}")
                for suffix in ("", "_to_best_static")
            )
            text = {True: "yes", False: "no"}.get(value, str(value)) if group == "outages" else str(value)
            yield group, text, str(len(own)), *means
