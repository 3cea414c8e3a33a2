"""What metering costs: four readings a round, against the round itself.

    python benchmarks/metering.py [FILE.toml] [--rounds 20] [--laps 2000]

Reads this machine's own counters; where it has none, a made-up tree of two CPU packages with memory in a temporary
folder, and says so (the kernel's own counters take longer to answer). Prints the median time of a reading, the median
round of the scenario (default: the demonstration), and the share.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

import hpctrip
from hpctrip.device.counters import Zone
from hpctrip.device.meter import PHASES, Meter, Metering, open_meter
from hpctrip.device.nvml import all_uuids


def made_up(folder: Path) -> Meter:
    """Counters that stand still."""
    for number, name in (("0", "package-0"), ("0:0", "dram"), ("1", "package-1"), ("1:0", "dram")):
        zone = folder / f"intel-rapl:{number}"
        zone.mkdir()
        for file, text in (("name", name), ("energy_uj", "1"), ("max_energy_range_uj", "262143328850")):
            (zone / file).write_text(f"{text}\n")
    return Meter([Zone(zone) for zone in sorted(folder.iterdir())], "made up: 2 CPU packages with memory")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--laps", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meter = open_meter(Metering(), all_uuids() if torch.cuda.is_available() else [])
        meter = meter if meter.counters else made_up(Path(folder))
        times_s = []
        for _ in range(given.laps):
            began = time.perf_counter()
            meter.lap("train")
            times_s.append(time.perf_counter() - began)
        run = hpctrip.run(
            given.scenario,
            {"stop.max_rounds": given.rounds, "stop.target_accuracy": "none"},
            out=Path(folder) / "run.h5",
            quiet=True,
        )
    lap_s, round_s = statistics.median(times_s), float(run.rounds["wall_s"].median())
    print(f"meter: {meter.description}")
    print(f"reading: {1e6 * lap_s:.1f} us; round: {1e3 * round_s:.2f} ms (medians)")
    print(f"metering: {len(PHASES) * lap_s / round_s:.4%} of a round")


if __name__ == "__main__":
    main()
