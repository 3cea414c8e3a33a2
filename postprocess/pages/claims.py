"""Numbers of the page of claims: its table, and those of its summary, from the rows of docs/results/paper."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from paper import page
from paper.claim import Variants
from paper.claims import (
    AT_1_GB,
    AT_2_GB,
    CENTRAL_25,
    CENTRAL_50,
    CLAIMS,
    HIGHEST,
    POWERTRIP,
    RADIUS,
    RANDOM,
    STATIC,
)
from paper.optimal import Optimal, ratio_of
from paper.studies import read_kept

from hpctrip.base.stats import Times, compare
from hpctrip.base.text import counted
from hpctrip.figures.common.grouping import times_of
from hpctrip.record.reader import Run
from pages import table

PAGES = ("docs/claims.md",)
QUOTED_ON = ("README.md", "docs/questions/how_many.md", "docs/questions/which_sites.md")
END = "## What was run"
"""The rest of the page is written with the tables of the studies."""
STATED = frozenset({"95 %", "5 %", "20 %", "45 %", "30 %", "0.94", "0.65", "1.5", "1.02", "0.02"})
STUDIES = {
    "": ("fig09", Optimal("fig08")),
    "traces, ": ("fig12", Optimal("fig12_static")),
    "production, ": ("fig12_production", Optimal("fig12_static_production")),
    "renewable, ": ("fig12_renewable", Optimal("fig12_static_renewable")),
    "words, ": ("speech_policies", Optimal("speech_static")),
    "plays, ": ("shakespeare_policies", Optimal("shakespeare_static")),
}
"""{beginning of a name: (study, its static optimal)} of the ratios that the summary quotes."""
OTHERS = {
    "70 sites": STATIC,
    "random": RANDOM,
    "highest": HIGHEST,
    "radius": RADIUS,
    "quarter": CENTRAL_25,
    "half": CENTRAL_50,
}
"""{end of a name: the variant whose times divide those of PowerTrip}."""
OTHER_DATA = ("speech_policies", "shakespeare_policies")
"""Studies whose sites have the power and the links of Fig. 9."""
INTERIOR = "Time-to-accuracy has an interior minimum in the number of sites"
"""The claim whose finding is the best number of sites of Fig. 8."""
TARGET = 0.45
SCALING_SEEDS = (0, 1)
"""Those of the study `scaling`."""
SCALING = (
    "images per site",
    "sites",
    "PowerTrip, h",
    "best static number",
    "PowerTrip over it",
    "over 70 sites",
    "over fixed radius",
    "over centralized 25 %",
)


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    evidence = read_kept(results / "paper")
    findings = [(claim, claim.finding(evidence)) for claim in CLAIMS]
    texts = {"summary": page.summary(findings), "table": f"\n\n{page.table(findings)}\n\n"}
    texts["best number"] = next(found.ours for claim, found in findings if claim.says == INTERIOR)
    for name, (study, optimal) in STUDIES.items():
        labels = {"static": STATIC}  # Fig. 14 calls the 70 sites so
        known = {labels.get(label, label): label for label in evidence[study]}
        others = {end: known[label] for end, label in OTHERS.items() if label in known}
        for end, other in (others | {"optimal": optimal}).items():
            texts[f"{name}{end}"] = ratio_of(evidence, study, POWERTRIP, other).text()
    for at in (AT_1_GB, AT_2_GB):
        ratio = ratio_of(evidence, "fig13", f"{at}, {POWERTRIP}", Optimal("fig13_static", at))
        texts[f"{at.removeprefix('update size = ')}, optimal"] = ratio.text()
    feedback = "update size = 1.5 GB, with feedback"
    texts["feedback, optimal"] = ratio_of(evidence, "design", feedback, Optimal("fig08")).text()
    texts["ranked, random"] = ratio_of(evidence, "fig09", STATIC, RANDOM).text()
    texts["2 GB to 1 GB"] = ratio_of(
        evidence, "fig13", *(f"{at}, {POWERTRIP}" for at in (AT_2_GB, AT_1_GB))
    ).text()
    last = {
        label: [int(run.rounds["num_sites"].iloc[-1]) for run in evidence["fig09"][label]]
        for label in (HIGHEST, RADIUS)
    }
    sizes = sorted(Counter(last[HIGHEST]).items(), reverse=True)
    texts["highest, sites"] = ", ".join(f"{k} sites with {counted(n, 'seed')}" for k, n in sizes)
    texts["radius, sites"] = f"{min(last[RADIUS])} to {max(last[RADIUS])}"
    own, *others = (
        {run.meta["seed"]: _changes(run) for run in evidence[study][POWERTRIP]}
        for study in ("fig09", *OTHER_DATA)
    )
    last_change = [max(changes) for each in (own, *others) for changes in each.values()]
    same = [changes == own[seed] for each in others for seed, changes in each.items()]
    scaling = _scaling(evidence)
    return texts | {
        "settled": f"{min(last_change)} or {max(last_change)}",
        "same number": f"{sum(same)} of {len(same)}",
        "scaling": table(SCALING, scaling),
        "600, optimal": scaling[1][SCALING.index("PowerTrip over it")],
    }


def _changes(run: Run) -> dict[int, int]:
    """{round: the number of sites that it begins with}, of rounds with another number than the one before."""
    k = run.rounds["num_sites"].tolist()
    return {
        number: now for number, (before, now) in enumerate(zip([0, *k], k, strict=False), 1) if before != now
    }


def _scaling(evidence: dict[str, Variants]) -> list[tuple[str, ...]]:
    """The study `scaling`, and the same seeds of Figs. 8 and 9: time of PowerTrip over that of others."""
    static = {label.replace("k = ", "static "): runs for label, runs in evidence["fig08"].items()}
    sizes = {
        ("200", "100"): {**evidence["fig09"], **static},
        ("600", "100"): _ending(evidence["scaling"], ", 100 sites"),
        ("2,000", "30"): _ending(evidence["scaling"], ", 30 sites"),
    }
    rows = []
    for size, variants in sizes.items():
        took = {label: times_of(runs, TARGET).of_seeds(SCALING_SEEDS) for label, runs in variants.items()}
        own = took[POWERTRIP]
        sweep = {k: took[f"static {k}"] for k in range(5, 101, 5) if f"static {k}" in took}
        best = min(sweep, key=lambda k: compare(sweep[k], own).value)
        others = (took.get(label) for label in ("static 70", RADIUS, CENTRAL_25))
        searched = f"{best} of {', '.join(map(str, sweep))}"
        ratios = (_both(own, other) for other in (sweep[best], *others))
        rows.append((*size, f"{own.mean.value:.2f}", searched, *ratios))
    return rows


def _ending(variants: Variants, end: str) -> Variants:
    return {label.removesuffix(end): runs for label, runs in variants.items() if label.endswith(end)}


def _both(own: Times, other: Times | None) -> str:
    """Geometric mean of a ratio, and that of each seed."""
    if other is None:
        return ""
    ratio = compare(own, other)
    return f"{ratio.bound} {ratio.value:.2f} ({', '.join(f'{seed:.2f}' for seed in ratio.by_seed)})".lstrip()
