"""What a calibration file says, as a component: checked as every input is, all faults in one report."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from hpctrip.base.component import Component
from hpctrip.base.io import PathName
from hpctrip.study.file import Seeds, Small, Tables, Variant

DOTTED = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"


class Bar(Variant):
    """One bar of the figure: a run, as a variant of a study is, and the time that the paper gives it."""

    hours: float = Field(gt=0)
    """To the target, in the paper."""
    dynamic: bool = False
    """Its cohorts follow the constants, so it is trained at the best points only. A bar that is not called dynamic and
    is leads to no wrong number: it is trained once, and is not known where its cohorts part from that."""


class Constant(Component):
    """A key that the paper does not state."""

    key: str = Field(pattern=DOTTED, max_length=200)
    """The dotted input key."""
    values: list[Any] = Field(min_length=1, max_length=100)
    """What is tried."""
    small: list[Any] | None = Field(None, min_length=1, max_length=100)
    """What is tried with --small."""

    def tried(self, small: bool) -> list[Any]:
        """Its values."""
        return self.small if small and self.small else self.values


class Sweep(Component):
    """The static sweep that gives the target accuracy: the lowest that any cohort size can reach."""

    inputs: list[PathName]
    """Input files, relative to the calibration file."""
    key: str = Field("policy.k", pattern=DOTTED, max_length=200)
    """The key of the cohort size."""
    values: list[int] = Field(min_length=1, max_length=100)
    """Its values. The first, which should reach least, is trained to its last round; the others need no more than to
    reach as much."""
    small: list[int] | None = Field(None, min_length=1, max_length=100)
    """The values with --small."""

    def tried(self, small: bool) -> list[int]:
        """The cohort sizes."""
        return self.small if small and self.small else self.values


class CalibrationFile(Component):
    """A whole calibration file. The points are all combinations of the constants' values."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    """Names the folder of the result."""
    title: str = ""
    """What it is about, in a line."""
    seeds: Seeds
    """Of every run: a list, or a range such as "0..2"."""
    common: Tables = {}
    """Tables laid over all inputs."""
    small: Small = Small()
    """What --small changes."""
    constant: list[Constant] = Field(min_length=1)
    """What is fitted."""
    sweep: Sweep
    bar: list[Bar] = Field(min_length=2)
    """What it is fitted to; the first is the one that the others are ratios of, and whose hours count."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for what, names in (
            ("bar", [bar.label for bar in self.bar]),
            ("constant", [constant.key for constant in self.constant]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"{what}: two have the same name")
        fixed = {"seed", self.sweep.key, "stop.target_accuracy"}
        for constant in self.constant:
            if constant.key in fixed:
                raise ValueError(f"constant: {constant.key} cannot be fitted: it is set by the calibration")
        if len(self.bar) <= len(self.constant):
            raise ValueError(f"{len(self.constant)} constants cannot be fitted to {len(self.bar)} bars")
        return self
