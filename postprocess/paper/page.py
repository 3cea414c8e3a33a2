"""The page of checked claims, as Markdown and as lines for a terminal."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hpctrip.base.errors import InputError
from hpctrip.base.text import counted, markdown_table
from hpctrip.figures.common.style import FEW
from paper.claim import Claim, Finding, Verdict
from paper.claims import CLAIMS
from paper.significance import discoveries
from paper.studies import Study

Findings = Sequence[tuple[Claim, Finding]]
"""Claims in the paper's order, each with its finding."""

HEAD = (
    "figure",
    "claim",
    "paper",
    "ours (95 % interval)",
    "ordering",
    "at a false discovery rate of 5 %",
    "magnitude",
    "seeds",
    "study",
    "caveat",
)
METHOD = (
    "A claim is met or not met if the 95 % interval (Student t) over seeds lies on one side of it, a conjunction if "
    "all its parts are met or one is not. Ratios are geometric means, paired by seed. If seeds did not reach the "
    "target, the ratio is a bound, and a sign test decides in its direction only; it needs six seeds, and "
    "three decide only large differences. The next column says which verdicts "
    "hold if 5 % of those that hold may be wrong (Benjamini-Hochberg over the p-values of these tests; of a "
    "conjunction the largest, against it Bonferroni's). A caveat says why a verdict says less than it seems to. "
    "`hpctrip study STUDY` makes the runs that a claim lacks."
)
RATE = 0.05
"""False discovery rate."""
TITLE, FINDINGS = "# The paper's claims, checked", "## Claim by claim"
"""The headings between which the preface stands."""
PICTURES = "claims"
"""Name of the folder of pictures, beside the page."""
CONSTANTS = (
    "timing.clock",
    "timing.seconds_per_sample",
    "network.near_bandwidth_bps",
    "network.bandwidth_law",
    "workload.data",
    "workload.train_samples",
    "partition.kind",
    "partition.alpha",
    "train.lr",
    "train.local_epochs",
    "power.path",
    "policy.gain",
    "policy.score",
    "policy.search",
    "stop.target_accuracy",
)
"""Keys that the paper does not state, or states in words only; the page shows their values."""
MOST_VALUES = 3
"""Maximum number of values of a constant within a study that the page lists one by one."""


def marked(name: str, text: str) -> str:
    """Text between marks by which `postprocess/audit.py` finds it."""
    return f"<!--={name}-->{text}<!--/-->"


def check_claims(studies: Sequence[Study]) -> Findings:
    """Check all claims. Raises InputError if none is about any of the studies."""
    claimed = sorted({claim.study for claim in CLAIMS})
    if not {study.name for study in studies} & set(claimed):
        folders = ", ".join(str(study.folder) for study in studies)
        raise InputError(folders, "no claim is about such a study", f"name some of {', '.join(claimed)}")
    evidence = {study.name: study.variants for study in studies}
    return [(claim, claim.finding(evidence)) for claim in CLAIMS]


def summary(findings: Findings) -> str:
    """Number of claims by verdict, apart for every kind of caveat, and of the verdicts that hold, as text."""
    by_kind: dict[str, list[Verdict]] = {}
    for claim, finding in findings:
        by_kind.setdefault(claim.caveat.partition(":")[0], []).append(finding.ordering)
    texts = {
        kind: ", ".join(f"{verdicts.count(each)} {each}" for each in Verdict if each in verdicts)
        for kind, verdicts in by_kind.items()
    }
    num, plain = len(by_kind[""]), texts.pop("")
    apart = "; ".join(f"*{kind}*: {text}" for kind, text in texts.items())
    held = Counter(holds(findings))
    decided = f"{held['holds']} of {held['holds'] + held['falls']} decided verdicts"
    return f"{num} claims: {plain}. Apart, by their caveat: {apart}. At a false discovery rate of 5 %, {decided} hold"


def holds(findings: Findings) -> list[str]:
    """For each finding, whether its verdict "holds" or "falls" at a false discovery rate of `RATE` over all findings;
    empty where no test over seeds has decided it."""
    found = discoveries([finding.judged.p for _, finding in findings], RATE)
    decided = [
        f.ordering in (Verdict.MET, Verdict.NOT_MET) and not math.isnan(f.judged.p) for _, f in findings
    ]
    return [
        "" if not test else "holds" if each else "falls" for test, each in zip(decided, found, strict=True)
    ]


def lines_of(findings: Findings) -> list[str]:
    """The findings as lines for a terminal."""
    lines = []
    for claim, finding in findings:
        paper = f" (paper: {claim.paper})" if claim.paper else ""
        lines += [f"{finding.ordering:12}  {claim.figure}: {claim.says}{paper}", f"{'':14}{finding.ours}"]
        lines += [
            f"{'':14}{text}" for text in (finding.magnitude, _few(claim, finding), claim.caveat) if text
        ]
    return lines


def _few(claim: Claim, finding: Finding) -> str:
    """How to decide a claim that few seeds have left undecided; empty for other claims."""
    if finding.ordering is not Verdict.UNDECIDED or not 0 < finding.num_seeds <= FEW:
        return ""
    seeds = counted(finding.num_seeds, "seed")
    return (
        f"{seeds} decide only large differences; for more, repeat the study {claim.study} with -o seed=0..9"
    )


def matching(findings: Findings, only: str) -> Findings:
    """The findings about a figure or a study, or whose statement has this text. Raises InputError for none."""
    only = re.sub(r"\bfig\. ?", "Fig ", only, flags=re.IGNORECASE)
    pattern = re.compile(rf"\b{re.escape(only)}(?!\d)", re.IGNORECASE)
    found = [(c, f) for c, f in findings if pattern.search(f"{c.figure}, {c.study}: {c.says}")]
    if not found:
        figures = ", ".join(dict.fromkeys(claim.figure for claim in CLAIMS))
        raise InputError(f"--only {only}", "no claim has such a figure, study or text", f"figures: {figures}")
    return found


def rows_of(findings: Findings) -> list[dict[str, str | int]]:
    """One row per claim, {column of `HEAD` without its unit: value}."""
    names = [name.partition(" (")[0] for name in HEAD]
    cells = (
        (c.figure, c.says, c.paper, f.ours, f.ordering, held, f.magnitude, f.num_seeds, c.study, c.caveat)
        for (c, f), held in zip(findings, holds(findings), strict=True)
    )
    return [dict(zip(names, row, strict=True)) for row in cells]


def table(findings: Findings) -> str:
    """The findings as a table in Markdown."""
    return markdown_table(HEAD, [[str(cell or "") for cell in row.values()] for row in rows_of(findings)])


def preface_of(text: str) -> str:
    """The preface of an earlier page, between its title and its table; other Markdown text is returned unchanged."""
    return text.removeprefix(TITLE).partition(f"\n{FINDINGS}\n")[0].strip()


def markdown(findings: Findings, studies: Sequence[Study], command: str, preface: str = "") -> str:
    """The page, with links to the studies' pictures. `command` repeats it; `preface` is put below the title."""
    constants = {study.name: _constants(study) for study in studies}
    known = [of_study.items() for of_study in constants.values() if of_study]
    shared = dict(known[0]) if known else {}
    shared = {key: value for key, value in shared.items() if all((key, value) in each for each in known)}
    lines = [TITLE, "", *([preface, ""] if preface else [])]
    lines += [
        FINDINGS,
        "",
        f"{marked('summary', summary(findings))}. {METHOD}",
        "",
        marked("table", f"\n\n{table(findings)}\n\n"),
    ]
    lines += ["", "## What was run", ""]
    lines += [f"* in all studies: {_settings(shared)}"] if shared else []
    lines += [f"* repeat this page: {command}"]
    for study in studies:
        own = dict(constants[study.name].items() - shared.items())
        lines += ["", f"### {study.text('title')} (study {study.name})", ""]
        lines += [f"* {fact}" for fact in _facts(study, own)]
        for name in study.pictures:
            caption = name.removesuffix(".png").replace("_", " ")
            lines += ["", f"![{caption}]({PICTURES}/{name})"]
    return "\n".join(lines) + "\n"


def _constants(study: Study) -> dict[str, str]:
    """{key: value} of the finished runs of one study; keys that no run has are absent."""
    values = {key: study.settings(key) for key in CONSTANTS}
    return {
        key: " or ".join(each) if len(each) <= MOST_VALUES else "varied"
        for key, each in values.items()
        if each
    }


def _settings(constants: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {constants[key]}" for key in CONSTANTS if key in constants)


def _facts(study: Study, own: Mapping[str, str]) -> Iterator[str]:
    """Facts about one study; `own` are the constants that not all studies share."""
    yield f"{len(study.finished)} of {len(study.table.lines)} runs finished"
    if overlays := study.text("overlays"):
        yield f"config layers over its inputs: {overlays}"
    if study.finished:
        yield "; ".join(_synthetic(study)) or "real data and power"
    if own:
        yield _settings(own)


def _synthetic(study: Study) -> Iterator[str]:
    """The synthetic inputs of a study, each with its variants unless all have it."""
    for part in ("data", "power"):
        synthetic = [
            label
            for label, runs in study.variants.items()
            if any(run.meta[f"synthetic_{part}"] for run in runs)
        ]
        if synthetic:
            some = "" if len(synthetic) == len(study.variants) else f" ({', '.join(synthetic)})"
            yield f"synthetic {part}{some}"
