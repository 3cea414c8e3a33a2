"""Policies over many scenarios, as ratios of time.

A scenario is all of an input but its seed, its policy and its forecast. In each, the hours of a policy are divided by
those of the baseline with the same seed (geometric mean over seeds), and by those of the best static cohort in
hindsight: the runs of `static` or of `first-back` with the fixed k of the smallest ratio to the baseline. A dot is a
scenario; the bar is the geometric mean over scenarios with its 95 % interval (Student t over logarithms), and the table
has the same interval over the seeds of each scenario. A seed that did not reach the target counts with all the time it
spent, so that ratio is a bound, an open arrow head to the right (at least) or to the left (at most); where both have
such seeds, it is unknown and has no mark. A scenario is won, and a fixed cohort is the best, among those that reached
the target with every seed and share the most seeds with the baseline: few seeds may be the easy ones. Equal times all
win.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

import click

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.stats import TIE, UNKNOWN, Estimate, Times, compare, shared_seeds
from hpctrip.base.text import aligned
from hpctrip.config.component import is_own
from hpctrip.config.identity import differing, flat, identity, without
from hpctrip.config.inputs import resolved, validate
from hpctrip.figures.common import reading, style
from hpctrip.figures.common.grouping import refuse_repeated_seeds, times_of
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import RUNS
from hpctrip.record.reader import Run
from hpctrip.sim.forecast import FORECASTS
from hpctrip.sim.policies import POLICIES

FIXED = ("static", "first-back")
DYNAMIC = "dynamic"
"""Last word of the name of such a ranking where Algorithm 1 chooses the number of sites: it is no fixed cohort."""
HINDSIGHT = "best static"
APART = ("seed", "policy", "forecast", "label", "name")


BASELINE = click.Option(
    ["--baseline"], default="powertrip", show_default=True, help="Policy by whose times others are divided."
)
SPLIT = click.Option(
    ["--split"],
    metavar="PREFIX",
    help="Also compare scenarios whose names begin with this with the others.",
)


@figure(RUNS, BASELINE, SPLIT)
def plot(runs: Sequence[Run], baseline: str = "powertrip", split: str | None = None) -> Drawing:
    """Every policy over all scenarios in which it and the baseline ran."""
    scenarios = entries(runs)
    rows = [row for name, by_policy in scenarios.items() for row in ratios(name, by_policy, baseline)]
    if not rows:
        problem = f"have no scenario in which {baseline} ran"
        raise InputError("the runs", problem, "give them, or name another --baseline")
    table = pd.DataFrame(rows)
    order = table.groupby("policy")["ratio"].median().sort_values(kind="stable").index.tolist()
    numbers = [int((table["policy"] == policy).sum()) for policy in order]
    names = [style.counted_name(policy, n, 22) for policy, n in zip(order, numbers, strict=True)]
    picture, axes = style.rows(names, 1.3)
    axes.axvline(1, color="black", linewidth=0.8)
    for y, policy in enumerate(order):
        own = table[table["policy"] == policy]
        for ratio, how, place in zip(own["ratio"], own["is"], style.beside_mean(len(own)), strict=True):
            name = "one scenario" if how == "exact" else f"one scenario: {how}"
            look = style.one_seed(how == "exact", "<" if how == "at most" else ">")
            axes.plot(ratio, y + place, **look | {"label": name if math.isfinite(ratio) else None})
        style.mean_bar(axes, y, over_scenarios(own, "ratio", "is"))
        if own["ratio"].isna().all():
            style.say_empty(axes, "target not reached by either", y)
    axes.set_xlabel(style.wrapped(f"Time-to-accuracy over that of {baseline}", 36))
    style.log_axis(axes)
    style.grid(axes, "x")
    style.finish(picture, f"{style.counts(numbers, 'scenario')}; {reading.provenance(runs)}")
    lines = [*summaries(table, order), *(f"scenario {name}" for name in scenarios)]
    if split is not None:
        begins = table["scenario"].str.partition(": ")[2].str.startswith(split)
        for which, part in ((f"begins with {split}", begins), (f"does not begin with {split}", ~begins)):
            lines += [f"scenarios whose name {which}:{'' if part.any() else ' none'}"]
            lines += summaries(table[part], order) if part.any() else []
    return Drawing(picture, table, lines)


def summaries(table: pd.DataFrame, order: Sequence[str]) -> list[str]:
    """A line for every policy, in this order, that ran in these scenarios."""
    head = ("policy", "scenarios", "mean ratio (95 %)", "worst", "wins", f"to {HINDSIGHT} (95 %)", "worst")
    rows = []
    for policy in order:
        own = table[table["policy"] == policy]
        if len(own):
            bounds = (own["is"] != "exact").sum()
            count = f"{len(own)} ({bounds} bounds)" if bounds else str(len(own))
            to_best = _cells(own, "ratio_to_best_static", "is_to_best_static")
            rows.append((policy, count, *_cells(own, "ratio", "is"), str(own["is_win"].sum()), *to_best))
    return aligned(head, rows)


def entries(runs: Sequence[Run]) -> dict[str, dict[str, Times]]:
    """{scenario: {policy: its times}}, in the order of first appearance."""
    cells: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run, name in zip(runs, policies(runs), strict=True):
        scenario = without(run.settings, [*APART, *run.meta["policy_keys"]])
        cells[identity(scenario)][name].append(run)
    titled = [(_title([run for same in cell.values() for run in same]), cell) for cell in cells.values()]
    return {
        f"{number}: {title}".rstrip(": "): {name: _times(name, same) for name, same in cell.items()}
        for number, (title, cell) in enumerate(titled, 1)
    }


def policies(runs: Sequence[Run]) -> list[str]:
    """The name of each run's policy: its kind, and, of the keys in which runs of this kind differ, those that do not
    have their default value. A number of sites, `k`, always stays."""
    settings: dict[str, list[dict[str, object]]] = defaultdict(list)
    for run in runs:
        own = {key: value for key, value in run.settings.items() if key.startswith(("policy.", "forecast."))}
        settings[run.meta["policy"]].append(own)
    telling = {policy: differing(of_kind) for policy, of_kind in settings.items()}
    defaults = {policy: _defaults(policy) for policy in settings}
    names = []
    for run in runs:
        policy = run.meta["policy"]
        named = [
            f"{key.removeprefix('policy.')}={value}"
            for key in telling[policy]
            if (value := run.settings.get(key)) not in (None, defaults[policy].get(key))
        ]
        if policy in FIXED and run.settings.get("policy.k") is None:
            named.append(DYNAMIC)
        names.append(" ".join([policy, *named]))
    return names


def _defaults(policy: str) -> dict[str, object]:
    """The values that a name leaves out: the policy's defaults, unless it is a plug-in's, and the default forecast."""
    own = POLICIES.get(policy)
    values = flat(resolved(validate({}, own)), "policy.") if own and is_own(own) else {}
    return {**without(values, ["policy.k"]), "forecast.kind": FORECASTS.default}


def _title(runs: Sequence[Run]) -> str:
    """The common beginning of the labels of a scenario's runs, in whole words."""
    labels = [run.meta["label"].split() for run in runs]
    common = takewhile(lambda words: len(set(words)) == 1, zip(*labels, strict=False))
    return " ".join(words[0] for words in common)


def _times(policy: str, runs: Sequence[Run]) -> Times:
    """The times of a policy in a scenario, whose runs have one target."""
    refuse_repeated_seeds(policy, runs)
    return times_of(runs, float(runs[0].meta["target_accuracy"]))


def ratios(scenario: str, by_policy: dict[str, Times], baseline: str) -> list[dict[str, object]]:
    """The rows of one scenario; none where the baseline did not run."""
    if baseline not in by_policy:
        return []
    base = by_policy[baseline]
    fixed = {
        name: times
        for name, times in by_policy.items()
        if name.split()[0] in FIXED and not name.endswith(DYNAMIC)
    }
    best = next(iter(_fastest(fixed, base)), "")
    shown = {name: times for name, times in by_policy.items() if name not in fixed}
    winners = _fastest(shown, base)
    if best:
        shown[HINDSIGHT] = fixed[best]
    rows = []
    for name, times in shown.items():
        row = {"scenario": scenario, "policy": name, "num_seeds": len(shared_seeds(times, base))}
        for suffix, other in (("", base), ("_to_best_static", fixed.get(best))):
            ratio = compare(times, other) if other else Estimate.mean([])
            ends = {f"ratio{suffix}_low": ratio.low, f"ratio{suffix}_high": ratio.high}
            is_ = (ratio.bound or "exact") if other else ""
            row |= {f"ratio{suffix}": ratio.value} | ends | {f"is{suffix}": is_}
        rows.append(row | {"best_static": best, "is_win": name in winners})
    return rows


def _fastest(by_policy: dict[str, Times], base: Times) -> list[str]:
    """Names, sorted, of those with the smallest ratio to the base, among those that arrived and share the most seeds
    with it; several where they tie."""
    shared = {name: len(shared_seeds(times, base)) for name, times in by_policy.items() if times.reached}
    most = max(shared.values(), default=0)
    ratio = {name: compare(by_policy[name], base).value for name, n in shared.items() if n == most > 0}
    least = min(ratio.values(), default=math.nan)
    return sorted(name for name, value in ratio.items() if math.isclose(value, least, rel_tol=TIE))


def over_scenarios(own: pd.DataFrame, ratio: str, how: str) -> Estimate:
    """The geometric mean over scenarios of a column of ratios, of which `how` says whether they are bounds."""
    rows = own[own[ratio].notna() | (own[how] == UNKNOWN)]
    at_least, at_most = (rows[how].isin([bound, UNKNOWN]) for bound in ("at least", "at most"))
    return Estimate.geometric_mean(rows[ratio].fillna(1.0), at_least, at_most)


def _cells(own: pd.DataFrame, ratio: str, how: str) -> tuple[str, str]:
    """(mean with its interval, worst) of a column of ratios; where the mean is a bound, so is the worst."""
    mean = over_scenarios(own, ratio, how)
    if math.isnan(mean.value):
        return mean.text(), mean.text()
    return mean.text(), f"{mean.bound} {own[ratio].max():.3g}".strip()
