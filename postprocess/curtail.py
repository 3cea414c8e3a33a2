"""What the demand response of the study `curtail` cost: a row for each kind of rounds, policy and seed.

hpctrip study curtail && python postprocess/curtail.py results/studies --out docs/results/waiting/curtail.csv
"""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd
from paper.script import run_script

from hpctrip.base.io import replace_file
from hpctrip.base.units import HOUR_S
from hpctrip.record.event_report import by_event
from hpctrip.record.reader import open_run

PAIR = ["kind", "policy", "seed"]
JOULES_PER_MWH = 3.6e9


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The table.")
def main(folder: Path, out: Path) -> None:
    """Write the table. Each run is compared with that of the same seed without the event: what its sites drew
    in those hours, and the time to the target."""
    runs = pd.read_csv(folder / "curtail" / "ledger.csv")
    runs = runs[runs["status"] == "finished"]
    with_event = runs[runs["event"] == "event"].set_index(PAIR)
    without = runs[runs["event"] == "no event"].set_index(PAIR)
    rows = []
    for key in with_event.index.intersection(without.index):
        own, other = with_event.loc[key], without.loc[key]
        drawn_j, planned_j = (_drawn_j(folder / row["file"]) for row in (own, other))
        reached = min(own["accuracy"], other["accuracy"]) >= own["target_accuracy"]
        lost_h = (own["clock_s"] - other["clock_s"]) / HOUR_S
        shed_mwh = (planned_j - drawn_j) / JOULES_PER_MWH
        rows.append((*key, drawn_j / planned_j - 1, shed_mwh, lost_h, other["clock_s"] / HOUR_S, reached))
    columns = [*PAIR, "change", "shed_mwh", "lost_h", "without_h", "reached"]
    replace_file(out, pd.DataFrame(rows, columns=columns).to_csv(index=False).encode())


def _drawn_j(path: Path) -> float:
    """What the sites of the event drew in it."""
    return float(sum(event["energy_j"] for event in by_event(open_run(path))))


if __name__ == "__main__":
    run_script(main)
