"""Numbers of the page of claims: its table, and those of its summary, from the rows of docs/results/paper."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from paper import page
from paper.checks import ratio_of
from paper.claim import Variants, variant
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
from paper.studies import read_kept
from paper.sweep_checks import ratio_to_best_static

from hpctrip.base.stats import Times, compare
from hpctrip.base.text import counted
from hpctrip.figures.common.grouping import times_of
from pages import table

PAGES = ("docs/claims.md", "docs/results/paper/preface.md")
QUOTED_ON = ()
END = "## What was run"
"""The rest of the page is written with the tables of the studies."""
STATED = frozenset({"45 %", "30 %", "0.94", "0.65", "1.5", "1.02", "0.02"})
RATIOS = {
    "70 sites": ("fig09", POWERTRIP, STATIC),
    "random": ("fig09", POWERTRIP, RANDOM),
    "highest": ("fig09", POWERTRIP, HIGHEST),
    "quarter": ("fig09", POWERTRIP, CENTRAL_25),
    "half": ("fig09", POWERTRIP, CENTRAL_50),
    "traces, 70 sites": ("fig12", POWERTRIP, STATIC),
    "traces, radius": ("fig12", POWERTRIP, RADIUS),
    "traces, quarter": ("fig12", POWERTRIP, CENTRAL_25),
    "production, 70 sites": ("fig12_production", POWERTRIP, STATIC),
    "production, radius": ("fig12_production", POWERTRIP, RADIUS),
    "production, quarter": ("fig12_production", POWERTRIP, CENTRAL_25),
    "production, random": ("fig12_production", POWERTRIP, RANDOM),
    "production, highest": ("fig12_production", POWERTRIP, HIGHEST),
    "renewable, random": ("fig12_renewable", POWERTRIP, RANDOM),
    "renewable, 70 sites": ("fig12_renewable", POWERTRIP, STATIC),
    "renewable, radius": ("fig12_renewable", POWERTRIP, RADIUS),
    "renewable, quarter": ("fig12_renewable", POWERTRIP, CENTRAL_25),
    "words, 70 sites": ("speech_policies", POWERTRIP, "static"),
    "words, random": ("speech_policies", POWERTRIP, RANDOM),
    "words, quarter": ("speech_policies", POWERTRIP, CENTRAL_25),
    "words, half": ("speech_policies", POWERTRIP, CENTRAL_50),
    "plays, 70 sites": ("shakespeare_policies", POWERTRIP, "static"),
    "plays, random": ("shakespeare_policies", POWERTRIP, RANDOM),
    "plays, quarter": ("shakespeare_policies", POWERTRIP, CENTRAL_25),
    "plays, half": ("shakespeare_policies", POWERTRIP, CENTRAL_50),
    "2 GB to 1 GB": ("fig13", f"{AT_2_GB}, {POWERTRIP}", f"{AT_1_GB}, {POWERTRIP}"),
}
"""{name: (study, variant, variant whose times divide its own)} of the ratios that the summary quotes."""
TO_OPTIMAL = {
    "optimal": ("fig09", POWERTRIP, "fig08"),
    "traces, optimal": ("fig12", POWERTRIP, "fig12_static"),
    "production, optimal": ("fig12_production", POWERTRIP, "fig12_static_production"),
    "renewable, optimal": ("fig12_renewable", POWERTRIP, "fig12_static_renewable"),
    "1 GB, optimal": ("fig13", f"{AT_1_GB}, {POWERTRIP}", "fig13_static", AT_1_GB),
    "2 GB, optimal": ("fig13", f"{AT_2_GB}, {POWERTRIP}", "fig13_static", AT_2_GB),
    "words, optimal": ("speech_policies", POWERTRIP, "speech_static"),
    "plays, optimal": ("shakespeare_policies", POWERTRIP, "shakespeare_static"),
}
"""{name: arguments of `ratio_to_best_static`}."""
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
    for name, (study, *labels) in RATIOS.items():
        texts[name] = ratio_of(*(variant(evidence, study, label) for label in labels)).text()
    for name, arguments in TO_OPTIMAL.items():
        texts[name] = ratio_to_best_static(evidence, *arguments)[0].text()
    last = {
        label: [int(run.rounds["num_sites"].iloc[-1]) for run in evidence["fig09"][label]]
        for label in (HIGHEST, RADIUS)
    }
    sizes = sorted(Counter(last[HIGHEST]).items(), reverse=True)
    texts["highest, sites"] = ", ".join(f"{k} sites with {counted(n, 'seed')}" for k, n in sizes)
    texts["radius, sites"] = f"{min(last[RADIUS])} to {max(last[RADIUS])}"
    return texts | {"scaling": table(SCALING, _scaling(evidence))}


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
