"""Numbers of the page of claims: its table, and those of its summary, from the rows of docs/results/paper."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from paper import page
from paper.claims import CLAIMS
from paper.studies import read_kept

from hpctrip.base.text import counted

PAGES = ("docs/claims.md", "docs/results/paper/preface.md")
QUOTED_ON = ()
END = "## What was run"
"""The rest of the page is written with the tables of the studies."""
STATED = frozenset({"45 %", "30 %", "0.94", "0.65", "1.5", "1.02", "0.02"})
QUOTED = {
    "70 sites": ("Fig 9", "the static cohort"),
    "optimal": ("Fig 9", "static optimal"),
    "random": ("Fig 9", "less time than random"),
    "highest": ("Fig 9", "less time than highest power"),
    "radius": ("Fig 9", "less time than fixed radius"),
    "quarter": ("Fig 9", "less time than centralized 25 %"),
    "half": ("Fig 9", "in one place at 50 %"),
    "traces, 70 sites": ("Fig 12, measured power", "the static cohort"),
    "traces, optimal": ("Fig 12, measured power", "static optimal"),
    "traces, quarter": ("Fig 12, measured power", "centralized 25 %"),
    "production, 70 sites": ("Fig 12, production power", "the static cohort"),
    "production, optimal": ("Fig 12, production power", "static optimal"),
    "production, quarter": ("Fig 12, production power", "centralized 25 %"),
    "1 GB, optimal": ("Fig 13", "1 GB: PowerTrip takes less time than static optimal"),
    "2 GB, optimal": ("Fig 13", "2 GB: PowerTrip takes less time than static optimal"),
    "2 GB to 1 GB": ("Fig 13", "From 1 to 2 GB"),
}
"""{name: (figure, part of the sentence)} of the claims whose ratio of times the summary quotes."""


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    evidence = read_kept(results / "paper")
    findings = [(claim, claim.finding(evidence)) for claim in CLAIMS]
    texts = {"summary": page.summary(findings), "table": f"\n\n{page.table(findings)}\n\n"}
    for name, (figure, part) in QUOTED.items():
        (ours,) = [f.ours for claim, f in findings if claim.figure == figure and part in claim.says]
        ratio = re.search(r"((at (least|most) )?[\d.]+( \([^)]*\))?) times as long", ours)
        texts[name] = ratio[1] if ratio else "(not run)"
    for power in ("measured", "production", "renewable"):
        (ours,) = [
            f.ours for c, f in findings if c.figure.startswith(f"Fig 12, {power}") and "remains" in c.says
        ]
        ratio = re.search(r"([^,]+) times fixed radius", ours)
        texts[f"{power}, radius"] = ratio[1].strip() if ratio else "(not run)"
    last = {
        label: [int(run.rounds["num_sites"].iloc[-1]) for run in evidence["fig09"][label]]
        for label in ("highest power", "fixed radius")
    }
    sizes = sorted(Counter(last["highest power"]).items(), reverse=True)
    texts["highest, sites"] = ", ".join(f"{k} sites with {counted(n, 'seed')}" for k, n in sizes)
    texts["radius, sites"] = f"{min(last['fixed radius'])} to {max(last['fixed radius'])}"
    return texts
