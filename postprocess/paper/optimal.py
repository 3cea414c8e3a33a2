"""Whose times are compared: variants of studies, and static optimal (Eq. 9), the best cohort of a sweep over k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.stats import Estimate, Times, compare, shared_seeds
from hpctrip.base.text import counted
from hpctrip.record.reader import Run
from paper.claim import Evidence, Missing, times, variant


@dataclass(frozen=True)
class Optimal:
    """Static optimal (Eq. 9) of a sweep over k, at one value of its other axis if it has one."""

    sweep: str
    value: str = ""


Side = str | tuple[str, str] | Optimal
"""A variant of the claim's study by its label, one of another study by both names, or static optimal."""


def label_of(side: Side) -> str:
    """Its name in words."""
    return (
        "static optimal (Eq. 9)" if isinstance(side, Optimal) else side if isinstance(side, str) else side[1]
    )


def took(evidence: Evidence, study: str, *sides: Side) -> list[Times]:
    """Times of each, over the seeds that all of them have. Raises Missing as `times` does."""
    places = [(study, side) if isinstance(side, str) else side for side in sides]
    plain = [variant(evidence, *place) for place in places if not isinstance(place, Optimal)]
    variants = iter(times(*plain) if plain else ())
    found = [best_static(evidence, at)[0] if isinstance(at, Optimal) else next(variants) for at in places]
    if not (seeds := shared_seeds(*found)):
        raise Missing(f"{' and '.join(map(label_of, sides))} have no seed in common")
    return [each.of_seeds(seeds) for each in found]


def ratio_of(evidence: Evidence, study: str, one: Side, other: Side) -> Estimate:
    """Ratio of the times-to-accuracy of `one` to those of `other`, paired by seed. Raises Missing as `took` does."""
    return compare(*took(evidence, study, one, other))


def runs_by_k(evidence: Evidence, study: str, value: str = "") -> dict[int, Sequence[Run]]:
    """{k: its runs} of a study over fixed cohorts, k ascending, at this value of another axis if it has one. Raises
    Missing if there are fewer than three k."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    by_k: dict[int, Sequence[Run]] = {}
    wanted = [
        runs for label, runs in evidence[study].items() if label.startswith(f"{value}, " if value else "")
    ]
    for runs in filter(None, wanted):
        k = int(runs[0].rounds["num_sites"].iloc[0])
        if k in by_k:
            raise Missing(f"study {study} has two variants of k = {k}")
        by_k[k] = runs
    if len(by_k) < 3:
        raise Missing(f"study {study} has {len(by_k)} finished k, three are needed")
    return dict(sorted(by_k.items()))


def times_by_k(evidence: Evidence, study: str, value: str = "") -> dict[int, Times]:
    """{k: its times} over the seeds that all k have."""
    runs = runs_by_k(evidence, study, value)
    return dict(zip(runs, times(*runs.values()), strict=True))


def best_static(evidence: Evidence, optimal: Optimal) -> tuple[Times, str]:
    """Static optimal: (times, the sizes in words). Each seed counts with the size whose mean time over the other seeds
    is least, so that no size is chosen on the seed that it is judged on.

    A size that missed the target with two seeds cannot be the best where another size never missed it: whichever seed
    is left out, one miss remains. It needs no runs with the other seeds."""
    runs = runs_by_k(evidence, optimal.sweep, optimal.value)
    alone = {k: times(each)[0] for k, each in runs.items()}
    if any(t.reached for t in alone.values()):
        runs = {k: each for k, each in runs.items() if alone[k].num_seeds - alone[k].num_reached < 2}
    points = dict(zip(runs, times(*runs.values()), strict=True))
    seeds = next(iter(points.values())).seeds
    if len(seeds) < 2:
        raise Missing(f"study {optimal.sweep} has one seed, which cannot be left out")
    sizes, by_seed = [], []
    for seed in seeds:
        sizes.append(best_k({k: t.of_seeds(s for s in seeds if s != seed) for k, t in points.items()}))
        judged = points[sizes[-1]].of_seeds([seed])
        by_seed.append((seed, judged.mean.value, judged.reached, judged.best_accuracy))
    counts = Counter(sizes).most_common()
    return Times.of(by_seed), ", ".join(f"k = {k} for {counted(n, 'seed')}" for k, n in counts)


def best_k(points: Mapping[int, Times]) -> int:
    """The size that reaches the target with the most of its seeds; of these, that of the least geometric mean."""

    def place(took: Times) -> tuple[float, float]:
        share, second = took.place
        return share, float(np.log(took.spent_h).mean()) if took.num_reached else second

    return min(points, key=lambda k: place(points[k]))
