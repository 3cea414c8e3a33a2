"""Renders the checked claims as text, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpctrip.base.text import markdown_table
from paper.claim import Claim, Finding, Verdict

HEAD = ("figure", "claim", "paper", "ours (95 % interval)", "ordering", "magnitude", "seeds", "study")
METHOD = (
    "Ordering: met or not met where the 95 % interval (Student t) over seeds lies on one side of the statement, else "
    "undecided at this number of seeds. Ratios are geometric means, paired by seed. Where seeds did not reach the "
    "target, the ratio is a bound and has no interval: a sign test over the seeds decides, in one direction only. "
    "Intervals are not corrected for the number of claims: of twenty that are not true, one may be met by chance."
)
PICTURES = "claims"
"""Name of the folder of pictures, beside the page."""


@dataclass(frozen=True)
class Section:
    """Facts and pictures of one study."""

    title: str
    facts: Sequence[str]
    """One line each: number of finished runs, synthetic inputs, constants that not all studies share."""
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """{file name in `PICTURES`: PNG}."""


@dataclass(frozen=True)
class Page:
    """All claims with their findings, and the facts about the studies behind them."""

    findings: Sequence[tuple[Claim, Finding]]
    facts: Sequence[str]
    """Facts about all studies, one line each: shared constants, commands."""
    sections: Sequence[Section] = ()
    preface: str = ""
    """Markdown text of the user, below the title."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row per claim, with the columns of `HEAD`."""
        return [
            (c.figure, c.says, c.paper, f.ours, str(f.ordering), f.magnitude, str(f.num_seeds or ""), c.study)
            for c, f in self.findings
        ]

    @property
    def summary(self) -> str:
        """Number of claims by verdict, as text."""
        counts = Counter(finding.ordering for _, finding in self.findings)
        text = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        return f"{len(self.findings)} claims: {text}"

    @property
    def lines(self) -> list[str]:
        """The findings as lines for a terminal."""
        lines = []
        for claim, finding in self.findings:
            paper = f" (paper: {claim.paper})" if claim.paper else ""
            lines += [f"{finding.ordering:9}  {claim.figure}: {claim.says}{paper}", f"{'':11}{finding.ours}"]
            lines += [f"{'':11}{finding.magnitude}"] if finding.magnitude else []
        return [*lines, self.summary]

    @property
    def plain(self) -> list[dict[str, str | int]]:
        """One object per claim, for JSON output."""
        names = [name.partition(" (")[0] for name in HEAD]
        return [
            dict(zip(names, row, strict=True)) | {"seeds": finding.num_seeds}
            for row, (_, finding) in zip(self.rows, self.findings, strict=True)
        ]

    @property
    def pictures(self) -> dict[str, bytes]:
        """{file name in `PICTURES`: PNG} of all studies."""
        return {name: png for section in self.sections for name, png in section.pictures.items()}

    @property
    def markdown(self) -> str:
        """The page as Markdown, with links to the pictures."""
        lines = ["# The paper's claims, checked", "", *([self.preface, ""] if self.preface else [])]
        lines += ["## Claim by claim", "", f"{self.summary}. {METHOD}", ""]
        lines += [markdown_table(HEAD, self.rows)]
        lines += ["", "## What was run", "", *(f"* {fact}" for fact in self.facts)]
        for section in self.sections:
            lines += ["", f"### {section.title}", "", *(f"* {fact}" for fact in section.facts)]
            for name in section.pictures:
                caption = name.removesuffix(".png").replace("_", " ")
                lines += ["", f"![{caption}]({PICTURES}/{name})"]
        return "\n".join(lines) + "\n"
