"""Draw the scenarios of the random league by their numbers, and write its studies.

    python benchmarks/league_random.py plateaus 0..39 --to results/random
    python -m hpctrip study results/random/plateaus.toml --out results/random
    python benchmarks/league_random.py league 0..39 --to results/random
    python -m hpctrip study results/random/league.toml --out results/random
    python benchmarks/league_random.py rows 0..39 --to results/random      # writes rows.csv: one row a run
    python benchmarks/league_random.py finalists 0..39 --seeds 1..2 --to results/random
    python -m hpctrip study results/random/finalists.toml --out results/random
    python benchmarks/league_random.py rows 0..39 --to results/random

A scenario is a function of its number alone: sites, data, partition, size of updates, compute, clock, power, outages,
and the share of the plateau that is the target. The plateau is the accuracy that all sites reach together in 80
rounds; the first study measures it, and the second reads it from `plateaus.csv`. The finalists are goodput,
the PowerTrips and, of the fixed cohorts, the two that were the fastest with the league's seed, which run with more
seeds. Scenarios 0 to 39 are for development. Those from 40 on are not to be run before the selectors that they judge
are frozen.

Scenarios from 70 on are tested on more samples, and their runs are cut by simulated time instead of at 160 rounds,
which would punish policies whose rounds are short:

    python benchmarks/league_random.py plateaus 70..99 --seeds 0..2 --to results/random
    python benchmarks/league_random.py whole 70..99 --to results/random        # all sites
    python benchmarks/league_random.py grid 70..99 --to results/random         # the other fixed cohorts
    python benchmarks/league_random.py judged 70..99 --seeds 0..2 --to results/random

each followed by its `study` and `rows`. A fixed cohort is cut when all sites have reached the target, as one that
takes longer is not the best; what is judged at three times the time of the best fixed cohort; and all at 2,000 rounds.

Everything is synthetic, also `varying.csv` beside the studies, which results files take for data: power traces of a
made-up cell of twelve domains, whose power varies strongly and without correlation.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from hpctrip.base.rng import stream
from hpctrip.base.units import HOUR_S
from hpctrip.studies.file import parse_range

NAME = "random-league"
SHARES = (0.8, 0.97)
"""Targets as shares of the plateau."""
FIXED = (0.04, 0.08, 0.15, 0.25, 0.4, 0.65, 1.0)
"""The grid of fixed cohorts, as shares of the sites: those that are back first."""
PLATEAU_ROUNDS, LAST_ROUNDS = 80, 10
"""Rounds that all sites train for the plateau, and of those the last ones whose mean accuracy it is."""
MAX_ROUNDS = 160
LARGE_TESTS = 70
"""The first scenario with at least 1,000 test samples and runs that are cut by simulated time."""
LATEST, MOST_ROUNDS = 3.0, 2000
"""Where such runs end: at this multiple of the best fixed cohort's time, and at this number of rounds."""
STUDIES = ("league", "finalists", "whole", "grid", "judged")
EARLIER = {"finalists": ("league",), "grid": ("whole",), "judged": ("whole", "grid")}
"""{study: those by which it is cut, or its fixed cohorts are chosen}: its own runs change neither."""
POLICIES: dict[str, dict[str, Any]] = {
    "PowerTrip": {"kind": "powertrip"},
    "PowerTrip, clock": {"kind": "powertrip", "round_time": "clock"},
    "PowerTrip, prefix": {"kind": "powertrip", "search": "prefix"},
    "PowerTrip, clock, prefix": {"kind": "powertrip", "round_time": "clock", "search": "prefix"},
    "goodput": {"kind": "goodput"},
    "goodput, exponential": {"kind": "goodput", "progress": "exponential"},
}
"""A fair PowerTrip is the best of its four: the two round times of its count (Eq. 7 at the mean power, or the clock's)
and the two ways in which the paper's search can be read."""


class Draw:
    """Draws the facts of one scenario, each from a stream of its own."""

    def __init__(self, number: int):
        self.number = number

    def _stream(self, fact: str) -> np.random.Generator:
        return stream(self.number, f"{NAME} {fact}")

    def log_uniform(self, fact: str, low: float, high: float) -> float:
        """Uniform in the logarithm."""
        return float(np.exp(self._stream(fact).uniform(math.log(low), math.log(high))))

    def choice(self, fact: str, **weights: float) -> str:
        """One of these names, by weight."""
        chances = np.array([*weights.values()]) / sum(weights.values())
        return [*weights][int(self._stream(fact).choice(len(chances), p=chances))]

    def chance(self, fact: str, probability: float) -> bool:
        """Whether something is the case."""
        return bool(self._stream(fact).uniform() < probability)


def scenario(number: int, folder: Path) -> dict[str, Any]:
    """The input of a scenario without policy and target. `folder`: that of `varying.csv`."""
    draw = Draw(number)
    workload = draw.choice("workload", emnist=4, femnist=2, speech=2, shakespeare=2)
    tables, samples = _WORKLOADS[workload](draw)
    compute_s = draw.log_uniform("compute", 3, 120)
    epochs = tables.get("train", {}).get("local_epochs", 1)
    clock = draw.choice("clock", **{"straggler": 2, "aggregate-throughput": 1})
    tables["timing"] = {"clock": clock, "seconds_per_sample": compute_s / (samples * epochs)}
    tables["network"] = {"update_bytes": draw.log_uniform("update", 1e8, 8e9)}
    power = draw.choice("power", uniform=2, trace=1, varying=2)
    tables["power"] = {
        "uniform": {"kind": "uniform"},
        "trace": {"kind": "trace"},
        "varying": {"kind": "trace", "path": str((folder / "varying.csv").resolve())},
    }[power]
    if draw.chance("outages", 0.25):
        tables["faults"] = {"mtbf_s": draw.log_uniform("mtbf", 1800, 36000), "mttr_s": 900.0}
        tables["faults"]["deadline_s"] = 5 * compute_s + 300
    return tables


def _images(draw: Draw, kind: str) -> tuple[dict[str, Any], int]:
    """Glyphs: at most 6,000 images in all, so that a round of all sites takes a second of one core."""
    sites = round(draw.log_uniform("sites", 20, 200))
    samples = round(min(120.0, draw.log_uniform("samples", 0.5, 1) * 6000 / sites))
    tables: dict[str, Any] = {
        "sites": {"num_sites": sites},
        "workload": {"kind": kind, "train_samples": samples * sites},
        "train": {"lr": 0.05},
    }
    if kind == "emnist":
        tables["workload"]["test_samples"] = 1000
    else:  # tested on all that the writers have besides, some 500
        each = round(1.3 * samples) + 12
        if draw.number >= LARGE_TESTS:  # a tenth of a writer's samples are for testing
            each = max(each, 10 * math.ceil(1000 / sites) + 10)
        tables["workload"]["glyphs"] = {"writers": sites, "samples": each}
    if kind == "femnist" and draw.chance("natural", 0.7):
        tables["partition"] = {"kind": "natural"}
    else:
        balanced = draw.chance("balanced", 0.7)
        tables["partition"] = {"alpha": draw.log_uniform("alpha", 0.05, 10), "balanced": balanced}
    return tables, samples


def _speech(draw: Draw) -> tuple[dict[str, Any], int]:
    """Chirps of 20 to 32 speakers, ten words each, twice, and the transformer with 4 of its 12 blocks."""
    sites = round(draw.log_uniform("sites", 20, 32))
    workload: dict[str, Any] = {"kind": "speech", "depth": 4}
    if draw.number >= LARGE_TESTS:  # 50 other speakers, 1,000 clips
        workload["chirps"] = {"num_speakers": sites + 50, "repetitions": 2}
        workload["test_fraction"] = 50 / (sites + 50)
    else:
        workload["chirps"] = {"num_speakers": math.ceil(1.25 * sites), "repetitions": 2}
    return {"sites": {"num_sites": sites}, "workload": workload, "partition": {"kind": "natural"}}, 20


def _shakespeare(draw: Draw) -> tuple[dict[str, Any], int]:
    """Sentences of 20 to 32 roles, some 13 windows each; eight steps a round."""
    sites = round(draw.log_uniform("sites", 20, 32))
    return {
        "sites": {"num_sites": sites},
        "workload": {
            "kind": "shakespeare",
            "predict": "every",
            "sentences": {"roles": sites, "characters": 1600},
        },
        "partition": {"kind": "natural"},
        "train": {"local_epochs": 2, "momentum": 0.9, "batch_size": 4},
    }, 13


_WORKLOADS = {
    "emnist": lambda draw: _images(draw, "emnist"),
    "femnist": lambda draw: _images(draw, "femnist"),
    "speech": _speech,
    "shakespeare": _shakespeare,
}


def plateaus(numbers: list[int], seeds: list[int], folder: Path) -> dict[str, Any]:
    """The study in which all sites train without a target, at full power and without outages."""
    variants = []
    for number in numbers:
        tables = scenario(number, folder) | {"power": {"kind": "constant"}, "policy": {"kind": "all"}}
        tables.pop("faults", None)
        stop = {"target_accuracy": "none", "max_rounds": PLATEAU_ROUNDS}
        variants.append({"label": str(number), **tables, "stop": stop})
    return {"name": "plateaus", "title": "What all sites come to", "axis": [_axis(variants)], "seeds": seeds}


def league(
    name: str, numbers: list[int], seeds: list[int], plateau: dict[int, float], folder: Path
) -> dict[str, Any]:
    """A study of all policies, of fixed cohorts, or of both. `plateau`: {scenario: accuracy}.

    `name`: league, the policies and all fixed cohorts; finalists or judged, the policies and the two fixed cohorts that
    were the fastest so far; whole, the cohort of all sites; grid, all other fixed cohorts. A run of the last three ends
    where the time says (`LATEST`), else after MAX_ROUNDS.
    """
    found = rows(numbers, folder, EARLIER[name]) if name in EARLIER else None
    fastest = {} if found is None else fastest_fixed(found)
    variants = []
    for number in numbers:
        stop: dict[str, Any] = {"target_accuracy": round(_share(number) * plateau[number], 4)}
        tables = scenario(number, folder)
        num_sites = tables["sites"]["num_sites"]
        fixed, whole = _fixed(num_sites), f"first-back-{num_sites}"
        if name in ("finalists", "judged"):
            fixed = {label: fixed[label] for label in fastest[number]}
        elif name in ("whole", "grid"):
            fixed = {
                label: policy for label, policy in fixed.items() if (label == whole) == (name == "whole")
            }
        if name in ("league", "finalists"):
            stop["max_rounds"] = MAX_ROUNDS
        else:
            stop["max_rounds"] = MOST_ROUNDS
            if fastest.get(number):
                hours = found.query("scenario == @number and policy == @fastest[@number][0] and reached")[
                    "hours"
                ].min()
                stop["max_clock_s"] = float(hours * HOUR_S * (LATEST if name == "judged" else 1))
        policies = fixed if name in ("whole", "grid") else POLICIES | fixed
        for label, policy in policies.items():
            variants.append({"label": f"{number}: {label}", **tables, "stop": stop, "policy": policy})
    return {
        "name": name,
        "title": "The random league, all synthetic",
        "axis": [_axis(variants)],
        "seeds": seeds,
    }


def _fixed(num_sites: int) -> dict[str, dict[str, Any]]:
    """{name: policy} of the grid of fixed cohorts."""
    sizes = sorted({max(2, math.ceil(part * num_sites)) for part in FIXED})
    return {f"first-back-{k}": {"kind": "first-back", "k": k} for k in sizes}


def _share(number: int) -> float:
    """The share of the plateau that is the target."""
    return SHARES[int(Draw(number).chance("target", 0.5))]


def _axis(variants: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "scenario", "variants": variants}


def varying() -> pd.DataFrame:
    """A week of twelve domains every five minutes: spare power moves around a mean of the domain's own, 0.2 to 0.8,
    with a standard deviation of 0.15 and a correlation time of an hour, each domain by itself."""
    domains, steps = 12, 7 * 288
    rng = stream(0, f"{NAME} varying")
    mean, keep = rng.uniform(0.2, 0.8, domains), math.exp(-5 / 60)
    noise = rng.normal(size=(steps, domains)) * math.sqrt(1 - keep**2)
    state, spare = rng.normal(size=domains), np.empty((steps, domains))
    for step in range(steps):
        state = keep * state + noise[step]
        spare[step] = np.clip(mean + 0.15 * state, 0.05, 1.0)
    times = 600_000_000 + np.arange(steps) * 300_000_000
    return pd.DataFrame(
        {
            "time": np.repeat(times, domains),
            "cell": "v",
            "pdu": np.tile([f"pdu{n}" for n in range(domains)], steps),
            "production_power_util": (1 - spare).round(3).ravel(),
        }
    )


def plateaus_of(folder: Path) -> dict[int, float]:
    """{scenario: accuracy of its plateau, the mean of its seeds}, of `plateaus.csv`, which is written anew if the study
    has run here."""
    file = folder / "plateaus.csv"
    if (folder / "plateaus/runs.csv").exists():
        runs = pd.read_csv(folder / "plateaus/runs.csv")[["identity", "variant"]]
        if (num_seeds := runs.groupby("variant").size()).nunique() > 1:
            raise SystemExit(
                f"{folder / 'plateaus'}: scenario {num_seeds.idxmin()} lacks seeds; finish the study"
            )
        curves = pd.read_csv(folder / "plateaus/curves.csv").merge(runs, on="identity")
        last = curves[curves["round"] > PLATEAU_ROUNDS - LAST_ROUNDS].rename(columns={"variant": "scenario"})
        last.groupby("scenario")["accuracy"].mean().round(6).to_csv(file)
    return pd.read_csv(file, index_col="scenario")["accuracy"].to_dict()


def rows(numbers: list[int], folder: Path, studies: Sequence[str] = STUDIES) -> pd.DataFrame:
    """A row for each finished run of those studies that have run, with what its scenario is."""
    files = [file for name in studies if (file := folder / name / "runs.csv").exists()]
    if not files:
        raise SystemExit(f"{folder}: none of the studies {', '.join(studies)} has run there")
    runs = pd.concat(map(pd.read_csv, files)).query("status == 'finished'")
    labels = runs["variant"].str.split(": ", n=1, expand=True)
    runs = runs.assign(
        scenario=labels[0].astype(int),
        policy=labels[1],
        hours=runs["clock_s"] / HOUR_S,
        reached=runs["time_to_accuracy_s"].notna(),
    )
    kept = runs[runs["scenario"].isin(numbers)].merge(facts(numbers, folder), on="scenario")
    # a cohort that has run in two studies, with two ends: where it has reached the target, if it has
    once = kept.sort_values("reached").drop_duplicates(["scenario", "policy", "seed"], keep="last")
    return once[[*FACTS, *RESULTS]].sort_values(["scenario", "policy", "seed"])


FACTS = ("scenario", "workload", "sites", "clock", "power", "outages", "share", "update_gb")
RESULTS = ("target_accuracy", "policy", "seed", "identity", "num_rounds", "hours", "reached", "best_accuracy")


def facts(numbers: list[int], folder: Path) -> pd.DataFrame:
    """What the scenarios are, a row each."""
    found = []
    for number in numbers:
        tables = scenario(number, folder)
        power = "varying" if "path" in tables["power"] else tables["power"]["kind"]
        head = number, tables["workload"]["kind"], tables["sites"]["num_sites"], tables["timing"]["clock"]
        update_gb = tables["network"]["update_bytes"] / 1e9
        found.append((*head, power, "faults" in tables, _share(number), round(update_gb, 3)))
    return pd.DataFrame(found, columns=[*FACTS])


def fastest_fixed(found: pd.DataFrame) -> dict[int, list[str]]:
    """{scenario: the two fixed cohorts that reached the target first}, of the rows of one seed."""
    fixed = found[found["policy"].str.startswith("first-back") & found["reached"]].sort_values("hours")
    best = fixed.groupby("scenario")["policy"].apply(lambda policies: list(policies[:2])).to_dict()
    return {number: best.get(number, []) for number in found["scenario"].unique()}


def main() -> None:
    """Write a study, or the rows of those that have run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["plateaus", *STUDIES, "rows"])
    parser.add_argument("numbers", type=parse_range, help="i..j")
    parser.add_argument("--to", type=Path, required=True, help="folder of the studies and their results")
    parser.add_argument("--seeds", type=parse_range, default=[0], help="i..j")
    arguments = parser.parse_args()
    numbers, folder = arguments.numbers, arguments.to
    folder.mkdir(parents=True, exist_ok=True)
    varying().to_csv(folder / "varying.csv", index=False)
    if arguments.what == "rows":
        found = rows(numbers, folder)
        found.to_csv(folder / "rows.csv", index=False, float_format="%.9g")
        print(f"{folder / 'rows.csv'}: {len(found)} runs of {found['scenario'].nunique()} scenarios")
        return
    if arguments.what == "plateaus":
        study = plateaus(numbers, arguments.seeds, folder)
    else:
        study = league(arguments.what, numbers, arguments.seeds, plateaus_of(folder), folder)
    file = folder / f"{study['name']}.toml"
    file.write_text(tomli_w.dumps(study))
    print(f"{file}: {len(study['axis'][0]['variants'])} variants, {len(study['seeds'])} seeds")


if __name__ == "__main__":
    main()
