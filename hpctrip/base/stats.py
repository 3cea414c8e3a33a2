"""Statistics over seeds: means, ratios of times, and bounds where runs did not reach their target; intervals are 95 %.

How two configurations are compared (`compare`), everywhere in tables, figures and claims:

* Over the seeds that both have. Each gives one ratio of hours; the answer is their geometric mean with the interval of
  Student's t over logarithms. One seed has no interval.
* A seed that did not reach the target counts with the hours that it spent, so its ratio is a bound: "at least" where it
  is a seed of the first configuration, "at most" where it is one of the second. The mean is then a bound in the same
  direction and has no interval, because the values behind it are not known.
* Where both configurations have such seeds, be it the same seed or different ones, the ratio is "unknown". Seeds are
  never left out for that: the others would be the easy ones.
* One of the two is faster where the interval lies on one side of 1. A bound decides in its own direction only, by a
  sign test over the seeds whose order is certain: six of six are needed, or nine of ten. Otherwise the difference is
  not significant.
* Equal times are a tie, whatever the order of the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

UNKNOWN = "unknown"
NOT_SIGNIFICANT = "not significant"
"""Verdict where the seeds do not decide which of two is faster."""
Z_975 = 1.959964
"""The two-sided 95 % quantile of the normal distribution."""
TIE = 1e-9
"""Relative difference below which two times are equal."""

# Student's t at 97.5 % for 1 to 9 degrees of freedom; above, the expansion of `student_t` is good to 2e-4.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


def student_t(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t (Abramowitz & Stegun 26.7.5 from 10 degrees of freedom on)."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = Z_975
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and half width of its interval (Student t); the half width of one value is NaN."""
    x = np.asarray(values, dtype=float)
    mean = x.mean(axis=0)
    if len(x) < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, student_t(len(x) - 1) * x.std(axis=0, ddof=1) / np.sqrt(len(x))


def wilson(correct: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval (1927) of the share of which `correct` of `seen` samples are a draw: lower and upper bounds.

    Any shape; NaN where nothing was seen. It is about the test samples alone: other seeds may differ by more.
    """
    n = np.where(np.asarray(seen) > 0, seen, np.nan).astype(float)
    share, z2 = correct / n, Z_975**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_975 * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def on_front(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether a point is on the Pareto front, [n] bool: no other is as good in both and better in one, less being
    better; never where one of its numbers is NaN. Numbers that differ by less than TIE are equal."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    same_x, same_y = (np.isclose(v[None], v[:, None], rtol=TIE, atol=0) for v in (x, y))
    less_x, less_y = ((v[None] < v[:, None]) & ~same for v, same in ((x, same_x), (y, same_y)))
    beaten = (less_x & (less_y | same_y)) | (less_y & same_x)
    return ~beaten.any(axis=1) & ~np.isnan(x) & ~np.isnan(y)


@dataclass(frozen=True, eq=False)
class Estimate:
    """The mean of one number a seed, with its interval; or a bound of it, which has none."""

    value: float
    """NaN where it is unknown or there is no seed."""
    low: float
    high: float
    """The ends of the interval; NaN for one seed, and for a bound."""
    bound: str
    """Empty: the value is exact. "at least", "at most", or "unknown"."""
    by_seed: np.ndarray = field(repr=False)
    """[n] the numbers behind it."""

    @classmethod
    def mean(
        cls,
        by_seed: Sequence[float] | np.ndarray,
        at_least: Sequence[bool] | np.ndarray = (),
        at_most: Sequence[bool] | np.ndarray = (),
    ) -> Estimate:
        """The arithmetic mean, with the interval of Student's t. `at_least`, `at_most` [n]: whether a number is only a
        lower or an upper bound."""
        x = np.asarray(by_seed, dtype=float)
        words = {(True, True): UNKNOWN, (True, False): "at least", (False, True): "at most"}
        bound = words.get((bool(np.any(at_least)), bool(np.any(at_most))), "")
        value = math.nan if bound == UNKNOWN or not len(x) else float(x.mean())
        half = float(mean_interval(x)[1]) if len(x) and not bound else math.nan
        return cls(value, value - half, value + half, bound, x)

    @classmethod
    def geometric_mean(
        cls,
        by_seed: Sequence[float] | np.ndarray,
        at_least: Sequence[bool] | np.ndarray = (),
        at_most: Sequence[bool] | np.ndarray = (),
    ) -> Estimate:
        """The geometric mean of numbers above 0, with the interval of Student's t over their logarithms."""
        logs = cls.mean(np.log(np.asarray(by_seed, dtype=float)), at_least, at_most)
        value, low, high = (float(np.exp(x)) for x in (logs.value, logs.low, logs.high))
        return replace(logs, value=value, low=low, high=high, by_seed=np.exp(logs.by_seed))

    @property
    def n(self) -> int:
        """The number of seeds."""
        return len(self.by_seed)

    @property
    def bars(self) -> np.ndarray:
        """[2, 1] lengths of the interval below and above the value, for error bars; 0 where there is none."""
        return np.nan_to_num([[self.value - self.low], [self.high - self.value]])

    @property
    def complement(self) -> Estimate:
        """1 less the number: the share of the time that is saved, of a ratio of times."""
        bound = {"at most": "at least", "at least": "at most"}.get(self.bound, self.bound)
        ends = 1 - self.value, 1 - self.high, 1 - self.low
        return Estimate(*ends, bound, 1 - self.by_seed)

    def lies_above(self, value: float) -> bool | None:
        """Whether the number lies above a value; None where the seeds do not decide it (see the module)."""
        if not self.bound:
            return True if self.low > value else False if self.high < value else None
        if self.bound == "at least" and sign_test((self.by_seed > value).sum(), self.n) <= 0.025:
            return True
        if self.bound == "at most" and sign_test((self.by_seed < value).sum(), self.n) <= 0.025:
            return False
        return None

    @property
    def verdict(self) -> str:
        """Verdict of a ratio of times on the first of the two: faster, slower, or not significant, and why."""
        if self.bound == UNKNOWN or not self.n:
            return UNKNOWN
        slower = self.lies_above(1.0)
        if slower is None:
            return "no interval" if self.n == 1 else NOT_SIGNIFICANT
        return "slower" if slower else "faster"

    def text(self, form: str = "{:.3g}") -> str:
        """`0.62 (0.55 to 0.7)`, or the bound: `at least 1.5`, `unknown`; `-` where there is no seed. An interval that
        `Times.mean` has cut says so: `2 (cut at 0, to 4.5)`."""
        if math.isnan(self.value):
            return self.bound or "-"
        low = "cut at 0," if self.low == 0 < self.value else form.format(self.low)
        spread = "" if math.isnan(self.low) else f" ({low} to {form.format(self.high)})"
        return f"{self.bound} {form.format(self.value)}{spread}".strip()


def sign_test(num_signs: int, n: int) -> float:
    """Probability that at least `num_signs` of n fair coins fall on one side."""
    return sum(math.comb(n, k) for k in range(num_signs, n + 1)) / 2**n


@dataclass(frozen=True, eq=False)
class Times:
    """Time-to-accuracy of one configuration over its seeds, in ascending order of the seeds. Arrays [n].

    A seed that did not reach the target counts with the time it spent, so the mean is then a lower bound: leaving such
    seeds out would make the configuration look faster than it is.
    """

    seeds: tuple[int, ...]
    spent_h: np.ndarray
    """Hours to the target, or in all where it was not reached."""
    arrived: np.ndarray
    """Whether the target was reached, bool."""
    accuracies: np.ndarray
    """The highest accuracy recorded; NaN where none was evaluated."""

    @classmethod
    def of(cls, by_seed: Iterable[tuple[int, float, bool, float]]) -> Times:
        """From one (seed, hours, whether the target was reached, highest accuracy) a seed, in any order."""
        seeds, spent_h, arrived, accuracies = zip(*sorted(by_seed), strict=True)
        return cls(seeds, np.array(spent_h), np.array(arrived, dtype=bool), np.array(accuracies, dtype=float))

    def of_seeds(self, seeds: Iterable[int]) -> Times:
        """The same over some of its seeds."""
        wanted = sorted(seeds)
        at = [self.seeds.index(seed) for seed in wanted]
        return Times(tuple(wanted), self.spent_h[at], self.arrived[at], self.accuracies[at])

    @property
    def num_seeds(self) -> int:
        """The number of seeds."""
        return len(self.seeds)

    @property
    def num_reached(self) -> int:
        """The number of those that reached the target."""
        return int(self.arrived.sum())

    @property
    def reached(self) -> bool:
        """Whether every seed reached the target."""
        return bool(self.arrived.all())

    @property
    def mean(self) -> Estimate:
        """The mean hours, or their lower bound. The interval does not reach below 0, where no time is."""
        mean = Estimate.mean(self.spent_h, at_least=~self.arrived)
        return replace(mean, low=float(np.maximum(mean.low, 0.0)))

    @property
    def best_accuracy(self) -> float:
        """Mean over the seeds of the highest accuracy recorded; NaN where none was evaluated."""
        recorded = self.accuracies[~np.isnan(self.accuracies)]
        return float(recorded.mean()) if len(recorded) else math.nan

    @property
    def place(self) -> tuple[float, float]:
        """Sorts those first that arrive with a greater share of their seeds, then the faster; where none arrived, the
        higher accuracy."""
        if not self.num_reached:
            return 0.0, -np.nan_to_num(self.best_accuracy)
        return -self.num_reached / self.num_seeds, self.mean.value

    def ties_with(self, other: Times) -> bool:
        """Whether neither of the two stands before the other."""
        return self.place[0] == other.place[0] and math.isclose(
            *(t.place[1] for t in (self, other)), rel_tol=TIE
        )

    def __str__(self) -> str:
        return self.mean.text() if self.reached else f"> {self.mean.value:.3g}"

    def row(self) -> dict[str, float | int]:
        """Its numbers as they stand in a table; `mean_is` is "at least" where a seed did not reach the target."""
        hours = self.mean
        counts = {"num_seeds": self.num_seeds, "num_reached": self.num_reached}
        accuracy = {"best_accuracy": self.best_accuracy}
        interval = {"mean_h": hours.value, "low_h": hours.low, "high_h": hours.high, "mean_is": hours.bound}
        return interval | counts | accuracy


def shared_seeds(*all_times: Times) -> list[int]:
    """The seeds that all have, ascending."""
    return sorted(set.intersection(*(set(times.seeds) for times in all_times)))


def compare(one: Times, other: Times) -> Estimate:
    """Ratio of the hours of `one` to those of `other`, by the rules of this module. A configuration takes exactly as
    long as itself, whether it arrives or not."""
    if one is other:
        return Estimate.geometric_mean(np.ones(one.num_seeds))
    seeds = shared_seeds(one, other)
    one, other = one.of_seeds(seeds), other.of_seeds(seeds)
    tied = np.isclose(one.spent_h, other.spent_h, rtol=TIE, atol=0)
    ratios = np.where(tied, 1.0, one.spent_h / other.spent_h)
    return Estimate.geometric_mean(ratios, ~one.arrived, ~other.arrived)


def in_order(named: Iterable[tuple[str, Times]], by_verdict: bool = False) -> str:
    """Names from the fastest to the slowest, `a < b = c`, ties by name; `by_verdict`: ` ≈ ` between neighbours that
    their seeds do not tell apart."""
    ranked = sorted(named, key=lambda pair: (*pair[1].place, pair[0]))
    text, before = "", None
    for name, times in ranked:
        if before is not None:
            is_close = by_verdict and compare(times, before).verdict == NOT_SIGNIFICANT
            text += " = " if times.ties_with(before) else " ≈ " if is_close else " < "
        text, before = text + name, times
    return text
