"""What the figure scripts share: command line, style, groups of runs, intervals over seeds, tables, saving."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpctrip.base.identity import differing, identity, without
from hpctrip.base.units import HOUR_S
from hpctrip.record.reader import InputError, Run, open_runs

SUFFIXES = (".png", ".pdf", ".svg")
COLUMN_INCHES = 3.35
"""Width of one column of a two-column paper."""

# Okabe and Ito's palette: told apart with every common colour blindness and in grey.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PINK, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#8A8A8A"
CYCLE = (BLUE, VERMILLION, GREEN, ORANGE, PINK, SKY, "#000000")

matplotlib.rcParams.update(
    {
        "font.size": 8,
        "axes.titlesize": 7,
        "axes.titlelocation": "left",
        "axes.titlecolor": "#555555",
        "axes.labelsize": 8,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "legend.fontsize": 7,
        "legend.frameon": False,
        "lines.linewidth": 1.2,
        "hatch.linewidth": 0.6,
        "savefig.dpi": 300,
        "text.parse_math": False,  # labels are the user's: a $ is a $
        "pdf.fonttype": 42,  # text stays text in a PDF
        "svg.fonttype": "none",
    }
)


# ---------------------------------------------------------------------------------------------- command line


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message} (--help says more)\n")


def run_parser(doc: str, out: str | None) -> argparse.ArgumentParser:
    """A parser with the results files `runs` and `--out`; `out` is the picture's default name."""
    made = _parser(doc, out)
    made.add_argument("runs", nargs="+", metavar="RUNS", help="results files, folders or quoted patterns")
    return made


def trace_parser(doc: str, out: str) -> argparse.ArgumentParser:
    """A parser with the power traces `traces`, how to read them, and `--out`."""
    made = _parser(doc, out)
    made.add_argument(
        "traces", metavar="TRACES", help="a folder of cell*.csv(.gz), a file or a quoted pattern"
    )
    made.add_argument(
        "--column",
        choices=("production", "measured"),
        default="production",
        help="which utilisation; some published files hold the measured one only (default: %(default)s)",
    )
    made.add_argument(
        "--flags",
        choices=("true-is-bad", "true-is-good"),
        default="true-is-bad",
        help="what true means in the flag columns (default: %(default)s)",
    )
    return made


def _parser(doc: str, out: str | None) -> argparse.ArgumentParser:
    made = _OneLineParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--out",
        type=_picture,
        default=out and Path(out),
        metavar="FILE",
        help=f"picture to write, {' '.join(SUFFIXES)} (default: {out or 'beside the results file, .png'})",
    )
    return made


def target_option(made: argparse.ArgumentParser) -> None:
    """Add `--target`: the accuracy that time-to-accuracy is measured at."""
    made.add_argument(
        "--target",
        type=_fraction,
        metavar="FRACTION",
        help="measure the time to this accuracy on the recorded curves (default: the runs' own target)",
    )


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text} does not end in {', '.join(SUFFIXES)}")
    return path


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a fraction in (0, 1], such as 0.45")
    return value


def script(main: Callable[[Sequence[str] | None], None]) -> Callable[..., int]:
    """A main function whose bad input is one line on stderr and exit code 2."""

    @functools.wraps(main)
    def guarded(argv: Sequence[str] | None = None) -> int:
        try:
            main(argv)
        except InputError as error:
            line = " | ".join(str(error).splitlines())
            print(f"{Path(sys.modules[main.__module__].__file__).name}: {line}", file=sys.stderr)
            return 2
        return 0

    return guarded


def save(figure: Figure, out: Path) -> None:
    """Write the picture aside, move it into place and print where it is."""
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        figure.savefig(aside, format=out.suffix[1:])
        os.replace(aside, out)
    except OSError as error:
        raise InputError(str(out), f"cannot be written ({error.strerror})", "choose another --out") from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    print(f"picture: {out}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns, the first to the left and the others to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    for line in (head, *rows):
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  ".join((line[0].ljust(widths[0]), *rest)).rstrip())


# ----------------------------------------------------------------------------------------------- what a run is

NEEDED_ATTRIBUTES = ("policy", "label", "update_bytes")
NEEDED_SITE_COLUMNS = ("site", "distance_m", "bandwidth_bps", "comm_s", "num_samples", "power_fraction")
"""What figures use beyond what every results file is checked for by its reader."""


def read_runs(patterns: Sequence[str]) -> list[Run]:
    """The runs that files, folders and patterns name, each with at least one round and all that figures use."""
    runs = open_runs(patterns)
    for run in runs:
        if faults := run.schema_faults():
            raise InputError(faults=faults)
        missing = [name for name in NEEDED_ATTRIBUTES if name in run.added]
        missing += [f"/sites/{name}" for name in NEEDED_SITE_COLUMNS if name not in run.sites]
        if missing:
            raise InputError(
                str(run.path), f"lacks {', '.join(missing)}", "give a file that `hpctrip run` wrote"
            )
        if run.rounds.empty:
            raise InputError(str(run.path), "holds no finished round", "let it run longer, or leave it out")
    return runs


def counted(number: int, name: str) -> str:
    """1 site, 2 sites."""
    return f"{number} {name}" + ("" if number == 1 else "s")


def percent(fraction: float) -> str:
    """45 %, 45.2 %, or "none" for NaN."""
    return "none" if np.isnan(fraction) else f"{100 * fraction:.3g} %"


def provenance(runs: Sequence[Run], unlike: str = "") -> str:
    """What was made up and what was not, in a few words, and below it what `warn_of_differences` found."""
    said = []
    for what in ("data", "power"):
        made_up = sum(bool(run.meta[f"synthetic_{what}"]) for run in runs)
        some = "" if made_up in (0, len(runs)) else f" in {made_up} of {len(runs)} runs"
        said.append(("synthetic " if made_up else "real ") + what + some)
    return ", ".join(said) + (f"\n{unlike}" if unlike else "")


def common_target(runs: Sequence[Run], given: float | None) -> float:
    """The accuracy to measure at: the one given, or the runs' own where they agree."""
    if given is not None:
        return given
    targets = sorted({float(run.meta["target_accuracy"]) for run in runs})
    if len(targets) == 1 and targets[0] > 0:
        return targets[0]
    listed = ", ".join(f"{target:g}" for target in targets)
    raise InputError("runs", f"no common target accuracy ({listed})", "name one with --target")


def time_to_accuracy(rounds: pd.DataFrame, target: float) -> float:
    """Simulated seconds at the end of the first evaluated round whose accuracy is at least `target`, or NaN."""
    reached = rounds.loc[rounds["accuracy"] >= target, "clock_s"]  # NaN, not evaluated, compares false
    return float(reached.iloc[0]) if len(reached) else np.nan


def accuracy_at(rounds: pd.DataFrame, clock_s: float) -> float:
    """Accuracy after the round that ended at `clock_s`."""
    return float(rounds.loc[rounds["clock_s"] == clock_s, "accuracy"].iloc[0])


# ------------------------------------------------------------------------------------------------------ traces


def trace_title(frame: pd.DataFrame) -> str:
    """What the traces are, in a few words; synthetic ones are called so."""
    days = (frame["time_s"].max() - frame["time_s"].min()) / (24 * HOUR_S)
    size = ", ".join(counted(frame[name].nunique(), name) for name in ("cell", "domain"))
    return f"{'Synthetic' if frame.attrs['synthetic'] else 'Recorded'} traces: {size}, {days:.3g} days"


# ------------------------------------------------------------------------------------- groups: runs and seeds

APART = ("seed", "stop")
"""Input keys that change a run but make no other configuration: which draw it is, and when it ends, because what is
compared is the time to one target."""

CENTRALIZED_SETS = (
    "sites",
    "power",
    "partition.pooled_sites",
    "faults.deadline_s",
    "faults.mtbf_s",
    "faults.outages",
    "faults.lost_fraction",
    "faults.late_fraction",
    "compression",
    "network.update_bytes",
    "network.aggregator_bandwidth_bps",
    "train.local_epochs",
    "train.local_steps",
    "train.keep_optimizer",
)
"""Keys and tables that follow from the policy `centralized`, which is a world of its own: what the others have there is
nothing that it could agree in."""


@dataclass(frozen=True)
class Group:
    """Runs of one configuration that differ in their seed only."""

    label: str
    policy: str
    runs: tuple[Run, ...]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Runs by configuration, in the order of first appearance.

    A group is called what its runs are labelled (input key `label`), else by its policy with its k; where that is the
    name of several, the input keys that tell them apart follow. Raises InputError where a group has a seed twice: a
    mean over it would be no mean over seeds.
    """
    members: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        name = run.meta["label"] or run.meta["policy"]
        same = members[name, identity(configuration(run))]
        for other in same:
            if other.meta["seed"] == run.meta["seed"]:
                problem = f"is {name} with seed {run.meta['seed']}, and so is {other.path}"
                raise InputError(str(run.path), problem, "a seed counts once: leave one of them out")
        same.append(run)
    telling = {
        name: differing([configuration(same[0]) for (other, _), same in members.items() if other == name])
        for name, _ in members
    }
    return [
        Group(_label(name, same[0], telling[name]), same[0].meta["policy"], tuple(same))
        for (name, _), same in members.items()
    ]


def _label(name: str, run: Run, telling: Sequence[str]) -> str:
    """The name of a group, with the keys that tell it from others of that name."""
    settings = configuration(run)
    keys = sorted({*telling} if run.meta["label"] else {*telling, "policy.k"})
    told = [
        f"{key.removeprefix('policy.')} = {_shown(settings[key])}"
        for key in keys
        if settings.get(key) is not None
    ]
    return " ".join(filter(None, (name, ", ".join(told))))


def configuration(run: Run) -> dict[str, object]:
    """{dotted input key: value} of all that makes a configuration."""
    follows = CENTRALIZED_SETS if run.meta["policy"] == "centralized" else ()
    return without(run.settings, [*APART, *follows])


def unlike(groups: Sequence[Group]) -> dict[str, dict[str, list[str]]]:
    """{input key: {value: labels}}: in what the groups to compare are not alike, their policy apart.

    A key counts for those groups that have it: what a table of another `kind` lacks, its `kind` tells.
    """
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        for key, value in configuration(group.runs[0]).items():
            if not key.startswith("policy."):
                values[key][_shown(value)].append(group.label)
    return {key: dict(labels) for key, labels in sorted(values.items()) if len(labels) > 1}


def warn_of_differences(groups: Sequence[Group]) -> str:
    """Say on stderr in which settings, their policy apart, the groups to compare are not alike, with the values.

    Returns the same in a few words, for the picture; empty where they are alike.
    """
    found = unlike(groups)
    for key, labels in found.items():
        said = " | ".join(f"{value} ({', '.join(of)})" for value, of in labels.items())
        print(f"warning: not alike in {key}: {said}", file=sys.stderr)
    named = [*list(found)[:2], *([f"{len(found) - 2} more"] if len(found) > 2 else [])]
    return f"not alike in {', '.join(named)}" if found else ""


def _shown(value: object) -> str:
    """A value in a label: a number with as few digits as tell it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "none" if value is None else str(value)


# --------------------------------------------------------------------------------- time-to-accuracy over seeds

# Student's t at 97.5 % for 1 to 9 degrees of freedom; above, the expansion of `student_t` is good to 2e-4.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


def student_t(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t (Abramowitz & Stegun 26.7.5 from 10 degrees of freedom on)."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % confidence interval (Student t); the half width of one value is NaN."""
    x = np.asarray(values, dtype=float)
    half = student_t(len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan
    return float(x.mean()), float(half)


@dataclass(frozen=True)
class Times:
    """Time-to-accuracy of one configuration over its seeds.

    A seed that never got to the target counts with the time it spent, so `hours` is then a lower bound of the mean
    (and has no interval): leaving such seeds out would make the configuration look faster than it is.
    """

    hours: float
    half_width: float
    num_seeds: int
    num_reached: int
    accuracy: float
    """Mean over the seeds of the highest accuracy recorded."""

    @property
    def reached(self) -> bool:
        """Whether every seed got to the target."""
        return self.num_reached == self.num_seeds

    def __str__(self) -> str:
        if not self.reached:
            return f"> {self.hours:.3g}"
        return f"{self.hours:.3g}" + (f" ± {self.half_width:.2g}" if np.isfinite(self.half_width) else "")


def times(runs: Sequence[Run], target: float) -> Times:
    """Time-to-accuracy over the runs, which are the seeds of one configuration."""
    rounds = [run.rounds for run in runs]
    tta_s = np.array([time_to_accuracy(r, target) for r in rounds])
    spent_s = np.array([r["clock_s"].iloc[-1] for r in rounds])
    reached = np.isfinite(tta_s)
    hours, half_width = mean_and_interval(np.where(reached, tta_s, spent_s) / HOUR_S)
    return Times(
        hours=hours,
        half_width=half_width if reached.all() else np.nan,
        num_seeds=len(runs),
        num_reached=int(reached.sum()),
        accuracy=float(np.mean([r["accuracy"].max() for r in rounds])),
    )


# -------------------------------------------------------------------------------------------------- small shapes


def figure(height_inches: float, width_inches: float = COLUMN_INCHES) -> Figure:
    """An empty figure of a column's width whose parts never overlap."""
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def legend_below(figure: Figure) -> None:
    """A legend below everything, in as many columns as fit the figure's width."""
    labels = [label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]]
    column_inches = 0.055 * max(map(len, labels), default=0) + 0.5  # a 7 point letter, a handle and the gaps
    ncols = min(len(labels), max(1, int(figure.get_figwidth() / column_inches)))
    figure.legend(loc="outside lower center", ncols=ncols)


def grid(axes: Axes, axis: str) -> None:
    """Faint lines behind the data."""
    axes.grid(axis=axis, color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def cohort_steps(rounds: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Cohort size as a step curve: (hours [rounds + 1], sites [rounds + 1]) for `where="post"`."""
    hours = np.append(rounds["clock_start_s"], rounds["clock_s"].iloc[-1]) / HOUR_S
    return hours, np.append(rounds["num_sites"], rounds["num_sites"].iloc[-1])
