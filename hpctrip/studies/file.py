"""Schema of study files, a component: validated as every input is, with all faults in one report."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from hpctrip.base.errors import InputError, faults_at
from hpctrip.base.io import PathName
from hpctrip.base.text import unknown_name
from hpctrip.config.component import Component
from hpctrip.config.inputs import Tables, validate

MOST_RUNS = 10_000
"""Maximum number of runs of one grid."""
COLUMNS = ("run", "seed", "identity", "status", "rounds", "clock_s", "accuracy", "digest", "wall_s")
LAST_COLUMNS = (
    "end_s",
    "target_accuracy",
    "energy_kwh",
    "carbon_kg",
    "cost",
    "synthetic",
    "made_with",
    "identity_version",
    "rules",
    "reason",
    "warnings",
    "file",
    "file_state",
    "earlier",
)
"""Columns of the ledger. The axes are further columns after the seed, so no axis may have one of these names."""


def parse_range(text: str) -> list[int]:
    """The integers i to j, both included, of the text "i..j". Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{1,18})\s*\.\.\s*(\d{1,18})\s*", text)
    if not match:
        raise ValueError("must be a list of seeds or a range such as 0..9")
    first, last = map(int, match.groups())
    if not first <= last < first + MOST_RUNS:
        raise ValueError(f"must rise and name {MOST_RUNS:,} numbers at most")
    return list(range(first, last + 1))


def _seeds(value: Any) -> list[int]:
    seeds = parse_range(value) if isinstance(value, str) else value
    if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        raise ValueError('must be a list of whole numbers, or a range such as "0..9"')
    if not seeds:
        raise ValueError("must not be empty")
    if len(set(seeds)) < len(seeds):
        raise ValueError("names a seed twice")
    return seeds


Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], BeforeValidator(_seeds)]


class _WithTables(Component):
    """A table with further keys, which are no fields."""

    model_config = ConfigDict(extra="allow")

    @property
    def tables(self) -> Tables:
        """The further keys."""
        return self.model_extra or {}


class Variant(_WithTables):
    """One choice of an axis; every further key is a table, or a dotted key, of the run's input."""

    label: str = Field(min_length=1, max_length=80)
    """Name in tables and figures."""
    inputs: list[PathName] = []
    """Input files, relative to the study file, laid over the study's own."""
    small: Tables | Literal[False] = {}
    """Tables laid over it with --small; false: left out of the small form."""
    among: list[str] = []
    """Labels of other axes. Of an axis that has one of them, it is combined with the listed labels only. Empty: with
    all."""


class Axis(Component):
    """One axis of the grid: an input key with its values, or a list of variants."""

    name: str | None = Field(None, min_length=1, max_length=80)
    """Name in tables; default: its key."""
    key: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", max_length=200)
    """The dotted input key that varies."""
    values: list[Any] | None = Field(None, min_length=1)
    """Values of the key."""
    variants: list[Variant] | None = Field(None, min_length=1)
    """Choices, instead of a key and its values."""
    small: list[Any] | None = Field(None, min_length=1)
    """The values with --small."""

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.variants is not None and (self.key, self.values, self.small) != (None, None, None):
            raise ValueError("has both variants and a key with values: use one of them")
        if self.variants is None and (self.key is None or self.values is None):
            raise ValueError("needs a key and its values, or variants")
        if self.variants is not None and self.name is None:
            raise ValueError("needs a name")
        if self.key == "seed":
            raise ValueError("the seed is not an axis: use seeds")
        if self.title in (*COLUMNS, *LAST_COLUMNS):
            raise ValueError(f"cannot be called {self.title}, as a column of the ledger is")
        labels = [v.label for v in self.variants or ()]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"has the label {twice!r} twice")
        if self.variants is not None and all(v.small is False for v in self.variants):
            raise ValueError("has no variant in the small form: leave out small = false of one")
        return self

    @property
    def title(self) -> str:
        """Name of the axis: `name`, or else its key; that of the table [rounds] is a column of the ledger."""
        return self.name or {"rounds": "rounds.kind"}.get(self.key or "", self.key) or ""


class Picture(_WithTables):
    """A figure that is drawn when the study ends; every further key is an option of the figure."""

    name: str
    """Name of the figure in `hpctrip plot`."""
    format: list[Literal["png", "pdf", "svg"]] = Field(["png"], min_length=1)
    """Files that are written of it, beside its numbers in .csv."""

    def options(self) -> Tables:
        """Options of the figure, converted as its command converts them; names have _ for -. Raises ValueError."""
        from hpctrip.figures import FIGURES

        try:
            return FIGURES[self.name].converted({k.replace("-", "_"): v for k, v in self.tables.items()})
        except InputError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The figure that `NAME key=value ...` describes, as --figure has it: words as a shell's, so that quotes keep
        spaces. Raises InputError."""
        try:
            name, *words = shlex.split(text) or [""]
        except ValueError as error:
            hint = "close the quotes around the value"
            raise InputError(f"--figure {text}", f"has {str(error).lower()}", hint) from None
        with faults_at(f"--figure {text}"):
            if wrong := next((word for word in words if "=" not in word), None):
                raise InputError(
                    wrong, "is not of the form key=value", 'e.g. "policies target=0.4 format=pdf"'
                )
            values = dict(word.split("=", 1) for word in words)
            formats = {"format": values["format"].split(",")} if "format" in values else {}
            return validate({"name": name} | values | formats, cls)

    @property
    def of_whole_runs(self) -> bool:
        """Whether it needs more of its runs than their inputs, ends and curves."""
        from hpctrip.figures import FIGURES

        return FIGURES[self.name].source.whole

    @property
    def stem(self) -> str:
        """Name of its files without the suffix: its own with its options."""
        return re.sub(r"[^\w.+-]+", "-", "-".join([self.name, *(f"{k}-{v}" for k, v in self.tables.items())]))

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        from hpctrip.figures import FIGURES

        if self.name not in FIGURES:
            raise ValueError(f"no figure is called {self.name!r}; {unknown_name(self.name, FIGURES)}")
        source = FIGURES[self.name].source
        if source.of_study is None:
            raise ValueError(f"{self.name} is drawn of {source.needs}, not of a study")
        self.options()
        return self


class Small(_WithTables):
    """Changes of the small form; every key but `seeds` is a table, or a dotted key, laid over `common`."""

    seeds: Seeds | None = None
    """Seeds of the small form."""


class StudyFile(Component):
    """A study file: a grid, the product of its axes and seeds, or a list of other study files."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    """Name of the study and of its folder."""
    title: str = ""
    """Title, in one line."""
    inputs: list[PathName] = []
    """Input files, relative to the study file, merged left to right below everything else. What they leave
    out has its default."""
    overlays: list[PathName] = []
    """Config layers: input files, relative to the study file, over every run, those of the studies that it includes,
    too: above `common`, below the small form, axes and seeds."""
    seeds: Seeds | None = list(range(10))
    """A list, or a range such as "0..9"; innermost in the order of the runs. None (not possible in a file): the seed of
    the input."""
    common: Tables = {}
    """Tables laid over all inputs."""
    axis: list[Axis] = []
    """Axes of the grid; the first varies slowest."""
    figure: list[Picture] = []
    """Figures drawn when the study ends, with their numbers as CSV."""
    small: Small = Small()
    """Changes of the small form."""
    studies: list[PathName] = Field([], min_length=1)
    """Other study files, relative to this one, instead of a grid of its own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        titles = [axis.title for axis in self.axis]
        if twice := next((title for title in titles if titles.count(title) > 1), None):
            raise ValueError(f"axis: two are called {twice!r}")
        self._check_among()
        own = self.model_fields_set - {"name", "title", "overlays", "studies"}
        if self.studies and own:
            raise ValueError(
                f"studies: this file runs others, so it has no {', '.join(sorted(own))} of its own"
            )
        return self

    @property
    def has_small_form(self) -> bool:
        """Whether --small has any effect."""
        variants = [variant for axis in self.axis for variant in axis.variants or ()]
        changed = any(part.small not in (None, {}) for part in [*self.axis, *variants])
        return bool(self.small.model_fields_set) or changed

    def _check_among(self) -> None:
        """Check that all labels in `among` are labels of other axes."""
        for axis in self.axis:
            others = {v.label for other in self.axis if other is not axis for v in other.variants or ()}
            for variant in axis.variants or ():
                if unknown := [label for label in variant.among if label not in others]:
                    raise ValueError(
                        f"axis: among of {variant.label!r}: no other axis has a variant {unknown[0]!r}; "
                        f"{unknown_name(unknown[0], others)}"
                    )
