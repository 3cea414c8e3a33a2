"""Make the tables in hpctrip/sim/hardware/curves and fit the model of gpu_power.py beside them (traces/SOURCES.md).

    python traces/gpu_curves.py DATA                   # fits and residuals; DATA holds perseus/ and zeus/
    python traces/gpu_curves.py DATA --out FOLDER      # and writes the tables

A table is a mean over workloads, each relative to its own speed at the highest clock or cap: of GPT-3 and BLOOM over
all pipeline stages at locked clocks (Perseus), of six networks under power caps (Zeus).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click
import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.io import replace_file

CLOCKS = {"A100": ("a100_sxm", np.inf), "A40": ("a40", 290.0)}
"""{GPU: (how the files call it, watts up to which its power is not capped)}."""
CAPS = {"V100": "v100", "A40": "a40", "RTX6000": "rtx6000", "P100": "p100"}
EVERY = 3
"""Of the clocks, which lie 15 MHz apart, every so many are kept."""


@click.command(help=__doc__.split("\n")[0])
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write the tables here.")
def main(data: Path, out: Path | None) -> None:
    """Print what was found, and write the tables if asked to."""
    for gpu, (file_name, uncapped_w) in CLOCKS.items():
        table, curves = at_clocks(sorted((data / "perseus").glob(f"*+{file_name}_bf16.csv")))
        for name, (clock, watts, speed) in curves.items():
            click.echo(f"{gpu} {name}: {fitted(clock / clock.max(), watts, speed, uncapped_w)}")
        write(out, gpu, "clock_mhz", table, "Perseus (Chung et al., SOSP 2024), locked clocks")
    for gpu, file_name in CAPS.items():
        table, spread = under_caps(data / "zeus" / f"summary_power_{file_name}.csv")
        said = ", ".join(f"{cap:g} W {100 * s:.1f} %" for cap, s in zip(table[:, 2], spread, strict=True))
        click.echo(f"{gpu}-caps: standard deviation of the relative speed over workloads: {said}")
        write(out, f"{gpu}-caps", "cap_watts", table, "Zeus (You et al., NSDI 2023), power caps")


def write(out: Path | None, gpu: str, knob: str, table: np.ndarray, source: str) -> None:
    """A table of `watts`, `samples_per_second` and the knob, by rising power."""
    if out is None:
        return
    lines = [f"# {source}; ml-energy/zeus, Apache-2.0; means over workloads by traces/gpu_curves.py"]
    lines.append(f"watts,samples_per_second,{knob}")
    lines += [
        f"{watts:.2f},{speed:.5f},{setting:g}" for watts, speed, setting in table[table[:, 0].argsort()]
    ]
    replace_file(out / f"{gpu}.csv", ("\n".join(lines) + "\n").encode())


def at_clocks(paths: list[Path]) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """([rows, (watts, speed, clock)], {workload: (clock, watts, speed)}) of one GPU."""
    curves = {}
    for path in paths:
        table = read_table(path)
        clocks = table.numbers("frequency")
        clock = np.unique(clocks)
        time_s, energy_j = (
            np.array([table.numbers(name)[clocks == c].sum() for c in clock]) for name in ("time", "energy")
        )
        curves[path.name.split("+")[0]] = (clock, energy_j / time_s, time_s[-1] / time_s)
    clock, watts, speed = (np.mean(parts, axis=0) for parts in zip(*curves.values(), strict=True))
    return np.stack([watts, speed, clock], axis=1)[::-1][::EVERY], curves


def fitted(x: np.ndarray, watts: np.ndarray, speed: np.ndarray, uncapped_w: float) -> str:
    """P0 + c x V(x)^2 and a + (1 - a) / x with the least relative squares, in words."""
    used = watts < uncapped_w
    x, watts, time = x[used], watts[used], 1 / speed[used]
    best = None
    for knee in np.arange(0.5, 0.95, 0.005):
        for top in np.arange(1.0, 1.6, 0.01):
            voltage = 1 + (top - 1) * np.maximum(x - knee, 0) / (1 - knee)
            (static, dynamic), error = _least_squares(x * voltage**2, watts)
            if best is None or error @ error < best[0] @ best[0]:
                best = error, f"P0 {static:.1f} W, c {dynamic:.1f} W, x0 {knee:.3f}, V1 {top:.2f}"
    (memory, rest), late = _least_squares(1 / x, time)
    least = int(np.argmin(watts * time))
    return (
        f"{best[1]} (rms {_rms(best[0]):.2f} %); a {memory / (memory + rest):.3f} (rms {_rms(late):.2f} %); "
        f"least energy at x = {x[least]:.3f}"
    )


def _least_squares(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(constant, slope) and the relative errors of the line."""
    lines = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    found = np.linalg.lstsq(lines, np.ones_like(y), rcond=None)[0]
    return found, lines @ found - 1


def _rms(errors: np.ndarray) -> float:
    return 100 * float(np.sqrt(np.mean(errors**2)))


def under_caps(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """([rows, (watts, speed, cap)], standard deviation of the speed over the workloads [rows]).

    A workload is a network on its data: the mean over the batch sizes and optimisers that ran under every cap.
    """
    table = read_table(path)
    caps = np.unique(cap := table.numbers("power_limit"))
    time_s, watts = table.numbers("time_per_epoch"), table.numbers("average_power")
    names = ("dataset", "network", "batch_size", "optimizer")
    runs: dict[tuple[str, ...], dict[float, tuple[float, float]]] = defaultdict(dict)
    for row, key in enumerate(zip(*(table.texts(name) for name in names), strict=True)):
        runs[key][cap[row]] = (watts[row], time_s[row])
    workloads = defaultdict(list)
    for key, run in runs.items():
        if len(run) == len(caps):
            drawn, took = np.array([run[c] for c in caps]).T
            workloads[key[:2]].append((drawn, took[-1] / took))
    means = np.array([np.mean(found, axis=0) for found in workloads.values()])  # [workload, 2, cap]
    drawn, speed = means.mean(axis=0)
    return np.stack([drawn, speed, caps], axis=1), means[:, 1].std(axis=0)


if __name__ == "__main__":
    main()
