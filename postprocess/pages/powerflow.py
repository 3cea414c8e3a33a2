"""Numbers of the page of PowerFlow, from the rows of the benchmarks cluster_claim.py and cluster_front.py."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from hpctrip.base.units import HOUR_S
from pages import table

PAGES = ("docs/results/powerflow.md",)
QUOTED_ON = ()
END = "## Repeat"
STATED = frozenset(
    {
        "1.57",
        "3.39",
        "0.8",
        "1.3",
        "1.25",
        "0.6",
        "50",
        "100 %",
        "60 %",
        "50 %",
        "45 %",
        "40 %",
        "0.9",
        "0.300",
        "0.465",
        "5 %",
    }
)
"""The abstract's numbers, loads, etas, caps and shares of energy."""
OFF, ON = "off+hosts", "always-on+hosts"
ELASTIC = ("elasticflow-like", "pollux-greedy")
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4)
"""Energy as shares of what `elasticflow-like` needs without caps."""
FRONTS = (
    ("195 jobs", "195job", 1, OFF),
    ("195 jobs", "195job", 1, ON),
    ("195 jobs", "195job", 2, OFF),
    ("Philly", "philly", 1, OFF),
)
"""(trace, file, load, account)."""


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    loads = {name: pd.read_csv(results / f"powerflow_{name}.csv") for name in ("195job", "philly")}
    fronts = {name: pd.read_csv(results / f"powerflow_{name}_front.csv") for name in loads}
    texts = {
        f"{name} {account}": _by_load(runs, account) for name, runs in loads.items() for account in (OFF, ON)
    }
    both = pd.concat(loads)
    for name, runs in loads.items():
        texts[f"{name} fifo"] = _span(runs[runs["baseline"] == "fifo"]["ratio"])
    texts["elastic"] = _span(both[both["baseline"].isin(ELASTIC)]["ratio"])
    texts["optimus"] = _span(both[both["baseline"] == "optimus"]["ratio"])
    queue = loads["philly"].query("load == 1.3 and account == @OFF").set_index("baseline")["ratio"]
    texts |= {f"queue {name}": f"{queue[name]:.2f}" for name in ("fifo", "fifo+backfill")}
    cells = {front: _front(fronts[front[1]], *front[2:]) for front in FRONTS}
    texts["front"] = _front_table(cells)
    texts |= _gains(cells)
    texts |= _at_energy_of_fifo(loads["195job"], fronts["195job"])
    fit = pd.read_csv(results / "powerflow_fit.csv")
    texts["fit"] = f"{100 * fit['mean_error'].min():.1f} to {100 * fit['mean_error'].max():.1f} %"
    texts["fit, largest"] = f"{100 * fit['largest_error'].max():.0f} %"
    return texts | _carbon(fronts["195job"]) | {"published": _published(results), "placed": _placed(results)}


def _placed(results: Path) -> str:
    """Energy and average completion time of other placements over those of buddy allocation, means over seeds."""
    runs = pd.read_csv(results / "powerflow_placement.csv")
    means = runs.groupby(["scheduler", "load", "placement"])[["kwh", "jct_s"]].mean().unstack("placement")
    cells = [(what, other) for what in ("kwh", "jct_s") for other in ("first-fit", "random")]
    rows = [
        (*map(str, at), *(_ratio(own[what, other] / own[what, "buddy"]) for what, other in cells))
        for at, own in means.iterrows()
    ]
    names = {"kwh": "energy", "jct_s": "JCT"}
    return table(("scheduler", "load", *(f"{names[what]}, {other}" for what, other in cells)), rows)


def _by_load(runs: pd.DataFrame, account: str) -> str:
    """Baselines by load: the baseline's average completion time over PowerFlow's."""
    own = runs[runs["account"] == account]
    by_load = own.pivot(index="baseline", columns="load", values="ratio").loc[own["baseline"].unique()]
    rows = [[name, *map(_ratio, row)] for name, *row in by_load.itertuples()]
    return table(["baseline", *(f"load {load:g}" for load in by_load)], rows)


def _ratio(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _span(ratios: pd.Series) -> str:
    return f"{ratios.min():.2f} to {ratios.max():.2f}"


def _front(runs: pd.DataFrame, load: float, account: str) -> dict[str, list[float]]:
    """{scheduler: its least JCT in hours within each share of the energy}; NaN where no setting is within it."""
    own = runs[(runs["load"] == load) & (runs["account"] == account) & (runs["budget"] == "none")]
    whole = own[(own["scheduler"] == "elasticflow-like") & (own["setting"] == "x=1 n=64")]["kwh"].item()
    return {
        name: [
            own[(own["scheduler"] == name) & (own["kwh"] <= share * whole)]["jct_s"].min() / HOUR_S
            for share in SHARES
        ]
        for name in ("powerflow", "elasticflow-like")
    }


def _front_table(cells: dict[tuple[str, str, int, str], dict[str, list[float]]]) -> str:
    rows = []
    for (trace, _, load, account), front in cells.items():
        label = f"{trace}, {load}, {account.removesuffix('+hosts')}"
        rows += [[label, f"{name}, h", *map(_ratio, hours)] for name, hours in front.items()]
        rows.append(["", "ratio", *map(_ratio, _ratios(front))])
    return table(["trace, load, nodes", "", *(f"{share:.0%}".replace("%", " %") for share in SHARES)], rows)


def _ratios(front: dict[str, list[float]]) -> list[float]:
    powerflow, elastic = front.values()
    return [theirs / ours for theirs, ours in zip(elastic, powerflow, strict=True)]


def _gains(cells: dict[tuple[str, str, int, str], dict[str, list[float]]]) -> dict[str, str]:
    """The ratios that the text quotes."""
    ratios = {front: pd.Series(_ratios(each), SHARES) for front, each in cells.items()}
    off_1, on_1, off_2, philly = ratios.values()
    every = pd.concat([*ratios.values()])
    upper = pd.concat([off_1[off_1.index >= 0.5], off_2[off_2.index >= 0.5]])
    return {
        "most": f"{every.max():.2f}",
        "least": f"{every.min():.2f}",
        "upper half": _span(upper),
        "45 %": f"{off_1[0.45]:.2f} and {off_2[0.45]:.2f}",
        "Philly 60 %": f"{philly[0.6]:.2f}",
        "always on": _span(on_1),
    }


def _carbon(runs: pd.DataFrame) -> dict[str, str]:
    """Completion times under the carbon budget, and PowerFlow's gain."""
    own = runs[runs["budget"] == "carbon 104 kg/day"]
    best = own.groupby("scheduler")["jct_s"].min() / HOUR_S
    plain = (
        own[(own["scheduler"] == "elasticflow-like") & (own["setting"] == "x=1 n=64")]["jct_s"].item()
        / HOUR_S
    )
    hours = {
        "powerflow": best["powerflow"],
        "elasticflow-like, no caps": plain,
        "elasticflow-like": best["elasticflow-like"],
        "elasticflow-within-power": best["elasticflow-within-power"],
    }
    row = ["carbon 104 kg/day", *(f"{value:.2f}" for value in hours.values())]
    gain = {f"carbon {name}": f"{value / hours['powerflow']:.2f}" for name, value in hours.items()}
    return gain | {"carbon": table(["budget", *hours], [row])}


def _at_energy_of_fifo(loads: pd.DataFrame, front: pd.DataFrame) -> dict[str, str]:
    """FIFO against the elastic scheduler with clocks at 0.9 and at most 8 GPUs for a job; and PowerFlow's etas of which
    the lower needs more energy (195 jobs, load 1, nodes off)."""
    (fifo,) = loads.query("load == 1 and account == @OFF and baseline == 'fifo'").itertuples()
    own = front.query("load == 1 and account == @OFF and budget == 'none'").set_index("setting")
    capped, low, high = own.loc["x=0.9 n=8"], own.loc["eta=0.300"], own.loc["eta=0.465"]
    return {
        "capped kWh": f"{capped['kwh']:,.0f}",
        "fifo kWh": f"{fifo.kwh:,.0f}",
        "fifo to capped": f"{fifo.jct_s / capped['jct_s']:.2f}",
        "fifo to powerflow": f"{fifo.ratio:.2f}",
        "eta 0.300": f"{low['kwh']:,.0f}",
        "eta 0.465": f"{high['kwh']:,.0f}",
    }


def _published(results: Path) -> str:
    runs = pd.read_csv(results / "powerflow_workload6.csv")
    rows = [
        [
            row.scheduler,
            f"{row.published_jct_s:.1f} s",
            f"{row.jct_s:.1f} s",
            f"{row.jct_s / row.published_jct_s - 1:+.1%}",
        ]
        for row in runs.itertuples()
    ]
    return table(["scheduler", "published", "here", ""], rows)
