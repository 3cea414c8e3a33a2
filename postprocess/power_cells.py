"""Make the power files of two variants of Fig. 12 from public data:
`python postprocess/power_cells.py POWERDATA CARBON TO`.

POWERDATA is a folder with `cella_pdu8.csv.gz` and `cella_pdu6_pdu7_15min_measured_production.csv.gz` of Google's
PowerData2019, CARBON one with hourly files of Electricity Maps (`*_2022_hourly.csv.gz`).

* TO/production/cella.csv: production utilisation of three domains of cell a, every 15 minutes. That of pdu6 and pdu7 is
  in the data. That of pdu8, of which only measured utilisation is at hand, is its measured one less the mean difference
  of the other two at the same time.
* TO/renewable/cell_grids.csv: one power domain per electricity grid, whose spare power is the renewable share of the
  grid's generation in that hour: a cell with strongly varying, weakly correlated power. No data centre was measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

UTIL = "production_power_util"


def production(folder: Path) -> pd.DataFrame:
    """Columns datetime, cell, pdu and production utilisation of three domains."""
    both = pd.read_csv(folder / "cella_pdu6_pdu7_15min_measured_production.csv.gz", parse_dates=["datetime"])
    both = both[["datetime", "cell", "pdu", "measured_power_util", UTIL]]
    difference = (both["measured_power_util"] - both[UTIL]).groupby(both["datetime"]).mean()
    third = pd.read_csv(folder / "cella_pdu8.csv.gz")
    times = pd.to_datetime(third["time"], unit="us")  # the clock of `datetime` in the other file
    measured = third["measured_power_util"].groupby(times.dt.floor("15min")).mean()
    util = (measured - difference).dropna().rename(UTIL).rename_axis("datetime").reset_index()
    return pd.concat([both.drop(columns="measured_power_util"), util.assign(cell="a", pdu="pdu8")])


def renewable(folder: Path) -> pd.DataFrame:
    """Columns datetime, cell, pdu and 1 - renewable share of one domain per grid."""
    grids = []
    for file in sorted(folder.glob("*_2022_hourly.csv.gz")):
        table = pd.read_csv(file)
        util = (1 - table["Renewable Percentage"] / 100).round(6)
        zone = table["Zone Id"]
        grids.append(
            pd.DataFrame({"datetime": table["Datetime (UTC)"], "cell": "grids", "pdu": zone, UTIL: util})
        )
    return pd.concat(grids)


def main(powerdata: str, carbon: str, to: str) -> None:
    """Write both files."""
    for name, table in (
        ("production/cella.csv", production(Path(powerdata))),
        ("renewable/cell_grids.csv", renewable(Path(carbon))),
    ):
        file = Path(to, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(file, index=False)
        spare = (1 - table[UTIL]).groupby(table["pdu"])
        print(f"{file}: {len(table)} rows; spare power by domain, mean and standard deviation:")
        print(spare.agg(["mean", "std"]).round(3).to_string(header=False))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
