"""Numbers of the page of interpretations, from the verdicts and hours that postprocess/claims.py --readings writes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hpctrip.base.text import counted
from pages import table

PAGES = ("docs/results/sensitivity.md",)
QUOTED_ON = ()
END = "\0"
"""All of the page is audited."""
STATED = frozenset({"95 %", "25 %", "20 %", "70 %"})
BASE = "defaults"
POWERTRIP = "PowerTrip"
STATIC = "static, "
"""Beginning of the names of the cohorts among which the best static one is searched."""
SHARE_OF_PAPER = "static optimal"
"""The paper's 70 % of the sites, another of these."""
VERDICTS = ("met", "not met", "undecided")
OVER = "PowerTrip takes less time than "
NAMED = {
    "70 sites": f"{OVER}the static cohort of 70 sites",
    "optimal": f"{OVER}static optimal (Eq. 9)",
    "highest": f"{OVER}highest power",
    "random": f"{OVER}random",
    "radius": f"{OVER}fixed radius",
    "quarter": f"{OVER}centralized 25 %",
    "half": "PowerTrip takes about as long as training in one place at 50 % of its power",
    "order": "The policies stand in the paper's order",
}
"""{short name: claim}; with a verdict it names the number of interpretations: "random met"."""
FEW = 4
"""So many interpretations are named in a cell; of more, the number alone."""
CLAIMS = ("claim", *VERDICTS)
HOURS = ("interpretation", "PowerTrip, h", "over the defaults", "best static share", "PowerTrip over it")


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    survey = pd.read_csv(results / "sensitivity.csv")
    hours = pd.read_csv(results / "sensitivity_hours.csv")
    by_claim = {claim: own for claim, own in survey.groupby("claim", sort=False)}
    verdicts = [
        (f"{own['figure'].iloc[0]}: {claim}", *(_where(own, verdict) for verdict in VERDICTS))
        for claim, own in by_claim.items()
    ]
    counts = {
        f"{short} {verdict}": str((by_claim[claim]["ordering"] == verdict).sum())
        for short, claim in NAMED.items()
        for verdict in VERDICTS
    }
    of_interpretation = {
        name: own.set_index("variant") for name, own in hours.groupby("interpretation", sort=False)
    }
    base = of_interpretation[BASE]
    rows = [_hours(name, own.combine_first(base), base) for name, own in of_interpretation.items()]
    to_static = sorted(float(row[-1]) for row in rows if row[-1])
    return counts | {
        "claims": table(CLAIMS, verdicts),
        "hours": table(HOURS, rows),
        "tests": str(len(survey)),
        "interpretations": str(survey["interpretation"].nunique()),
        "to static": f"{to_static[0]:.2f} to {to_static[-1]:.2f}",
    }


def _where(own: pd.DataFrame, verdict: str) -> str:
    """The number of interpretations with this verdict, and their names if they are few."""
    names = own.loc[own["ordering"] == verdict, "interpretation"].tolist()
    return f"{len(names)}: {', '.join(names)}" if 0 < len(names) <= FEW else str(len(names))


def _hours(name: str, own: pd.DataFrame, base: pd.DataFrame) -> tuple[str, ...]:
    """PowerTrip against its own time with the defaults, and against the best static share under this interpretation.
    Only cohorts that reached the target with every seed have a time; those that the interpretation does not concern
    have that of the defaults."""
    hours = own["mean_h"].where(own["num_reached"] == own["num_seeds"])
    static = hours[[variant for variant in hours.index if variant.startswith((STATIC, SHARE_OF_PAPER))]]
    least = static.min()
    best = static[static == least].index
    share = best[0].removeprefix(STATIC).replace(SHARE_OF_PAPER, "70 %") if len(best) else "none"
    took = hours[POWERTRIP]
    numbers = took, took / base.loc[POWERTRIP, "mean_h"], took / least
    took_h, to_base, to_static = ("" if pd.isna(number) else f"{number:.2f}" for number in numbers)
    missed = own["num_seeds"] - own["num_reached"]
    return name, took_h or f"missed with {counted(int(missed[POWERTRIP]), 'seed')}", to_base, share, to_static
