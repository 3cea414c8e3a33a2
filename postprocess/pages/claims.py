"""Numbers of the page of claims: its table, and those of its summary, from the rows of docs/results/paper."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from paper import page
from paper.checks import ratio_of
from paper.claim import variant
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

from hpctrip.base.text import counted

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
    "renewable, 70 sites": ("fig12_renewable", POWERTRIP, STATIC),
    "renewable, radius": ("fig12_renewable", POWERTRIP, RADIUS),
    "renewable, quarter": ("fig12_renewable", POWERTRIP, CENTRAL_25),
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
}
"""{name: arguments of `ratio_to_best_static`}."""


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
    return texts
