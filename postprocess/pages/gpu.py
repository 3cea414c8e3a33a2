"""Numbers of the page of a GPU, from the rows of `benchmarks/gpu_day.py` on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from pages import table

PAGES = ("docs/results/gpu.md",)
QUOTED_ON = ()
END = "\0"
STATED = frozenset({"3.12", "8.5", "1 %", "10 %", "50 %", "0.02"})
"""The version of Python, minutes, and bounds."""
BLOCKS = (8, 16, 32, 64, 128)
SHAPES = {"W1s": 100, "W1": 100, "W4": 1000, "FLUTE": 10, "W2": 20, "KWT-1": 20}
"""{shape: sites of a round}."""
ENERGY = {
    "plain": ("plain", "float32"),
    "sequential": ("sequential", "float32"),
    "stacked": ("stacked", "float32"),
    "stacked, tf32": ("stacked", "tf32"),
    "stacked, bfloat16": ("stacked", "bfloat16"),
}
"""{row of the table: (contender, precision)}."""


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    rows = pd.read_csv(results / "gpu_h100.csv", keep_default_na=False)
    energy = rows[rows["part"] == "energy"]
    idle_w = energy[energy["contender"] == "idle"]["value"].iloc[0]
    return {
        "rounds": table(
            ("shape", "sites", "plain loop", "sequential", *(f"blocks of {block}" for block in BLOCKS)),
            _rounds(rows),
        ),
        "fastest": table(
            ("shape", "block", "samples per second", "times the plain loop", "peak memory, MB"),
            _fastest(rows),
        ),
        "whole": table(("shape", "sites", "hpctrip", "pfl 0.6", "plain loop", "pfl / hpctrip"), _whole(rows)),
        "limit": table(
            ("shape", "GPU busy", "in matrix products", "share of a large product's rate", "waits"),
            _limit(rows),
        ),
        "energy": table(
            ("", "W1s: J per round", "samples per J", "W", "W1: J per round", "samples per J", "W"),
            [
                (name, *_joules(energy, "W1s", *of), *_joules(energy, "W1", *of))
                for name, of in ENERGY.items()
            ],
        ),
        "idle": f"{idle_w:.0f}",
        **{f"per joule, {precision}": _per_joule(energy, precision) for precision in ("tf32", "bfloat16")},
        **_checks(rows),
    }


def _one(rows: pd.DataFrame, metric: str, contender: str, block: int | None = None) -> float | None:
    """The one value of that kind, None where there is none."""
    found = rows[(rows["metric"] == metric) & (rows["contender"] == contender)]
    if block is not None:
        found = found[found["block"].astype(str).str.removesuffix(".0") == str(block)]
    return float(found["value"].iloc[0]) if len(found) else None


def _text(value: float | None, form: str = "{:.3g}") -> str:
    return "" if value is None else form.format(value)


def _rounds(rows: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Seconds of training and summing."""
    for shape, sites in SHAPES.items():
        own = rows[rows["part"] == f"speed-{shape}-{sites}"]
        times = [_one(own, "round_s", contender) for contender in ("plain", "sequential")]
        times += [_one(own, "round_s", "stacked", block) for block in BLOCKS]
        yield shape, f"{sites:,}", *map(_text, times)


def _fastest(rows: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    for shape, sites in SHAPES.items():
        own = rows[rows["part"] == f"speed-{shape}-{sites}"]
        stacked = own[(own["metric"] == "train_samples_per_s") & (own["contender"] == "stacked")]
        best = stacked.loc[stacked["value"].idxmax()]
        block = int(float(best["block"]))
        times, peak = (_one(own, metric, "stacked", block) for metric in ("times_plain", "peak_mb"))
        yield shape, str(block), f"{best['value']:,.0f}", _text(times, "{:.1f}"), _text(peak, "{:,.0f}")


def _whole(rows: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    for shape, sites in (("W1s", 100), ("FLUTE", 10)):
        own = rows[rows["part"] == f"rounds-{shape}"]
        ours, pfl, plain = (_one(own, "round_s", name) for name in ("hpctrip stacked", "pfl", "plain loop"))
        ratio = _one(own, "times_ours", "pfl")
        yield shape, str(sites), *map(_text, (ours, pfl, plain)), _text(ratio, "{:.1f}")


def _limit(rows: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    metrics = ("gpu_busy_share", "products_share", "share_of_peak")
    for shape in ("W1s", "W1"):
        own = rows[rows["part"] == f"limit-{shape}"]
        shares = [_text(_one(own, metric, "stacked"), "{:.2f}") for metric in metrics]
        yield shape, *shares, _text(_one(own, "host_waits", "stacked"), "{:.0f}")


def _joules(energy: pd.DataFrame, shape: str, contender: str, precision: str) -> tuple[str, str, str]:
    known = ("", precision) if contender == "plain" else (precision,)
    own = energy[(energy["shape"] == shape) & energy["precision"].isin(known)]
    forms = {"round_j": "{:.1f}", "samples_per_j": "{:,.0f}", "watts": "{:.0f}"}
    texts = [_text(_one(own, metric, contender), form) for metric, form in forms.items()]
    return texts[0], texts[1], texts[2]


def _per_joule(energy: pd.DataFrame, precision: str) -> str:
    """Samples per joule over those of float32, W1s with the stacked engine."""
    own = energy.query("shape == 'W1s' and contender == 'stacked' and metric == 'samples_per_j'")
    by_precision = own.set_index("precision")["value"]
    return f"{by_precision[precision] / by_precision['float32']:.2f}"


def _checks(rows: pd.DataFrame) -> dict[str, str]:
    """The numbers of the table of checks."""
    errors = rows[rows["metric"] == "relative_error"]

    def worst(part: str, precision: str = "") -> float:
        own = errors[errors["part"].str.startswith(part)]
        return float(own[own["precision"] == precision]["value"].max())

    sameness = rows[rows["metric"].str.startswith("same_bits") & rows["part"].str.startswith("agree")]
    apart = rows[rows["metric"] == "accuracy_from_float32"]["value"].max()
    accuracy = rows[(rows["metric"] == "accuracy") & (rows["precision"] == "float32")]["value"].iloc[0]
    w1_tf32 = errors[
        (errors["part"] == "precisions") & (errors["shape"] == "W1") & (errors["precision"] == "tf32")
    ]
    texts = {
        "agree": f"{worst('agree', 'float32'):.2%}",
        "graphs": f"{int(sameness['value'].sum())} of {len(sameness)}",
        "devices": f"{worst('devices'):.2%}",
        "memory": f"{worst('memory'):.1%}",
        "tf32": f"{w1_tf32['value'].min():.1%} and {w1_tf32['value'].max():.1%}",
        "bfloat16": f"{worst('precisions', 'bfloat16'):.0%}",
        "accuracy": f"{accuracy:.3f}",
        "accuracy apart": f"{apart:.3f}",
    }
    return {name: text.replace("%", " %") for name, text in texts.items()}
