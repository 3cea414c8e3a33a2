"""The report of a run by site: participation, hours and spending, from the recorded tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import json_text
from hpctrip.base.text import aligned, printable
from hpctrip.base.units import HOUR_S, figures, unit_of
from hpctrip.record.formats import csv_bytes, latex_table
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile
from hpctrip.sim.quantities import ACTIVITIES, QUANTITIES, Quantity
from hpctrip.sim.rounds import Status
from hpctrip.sim.sites import FACT

DOING = ("queued", "computing", "sending", "waiting", "idle", "given up", "away")
"""Activities of a site between the start of one flight and that of the next."""
RARE = ("queued", "idle")
"""Those of `DOING` that are shown only where a site spent time on them."""
STRAGGLER = ("straggler_compute_s", "straggler_comm_s")


def by_site(run: Run) -> pd.DataFrame:
    """The table of sites [N] with what each did and spent: how often it was in the cohort
    (rounds_in_cohort, participation_fraction) and the straggler for which others waited (rounds_straggler,
    straggler_fraction, and its times then, straggler_compute_s and straggler_comm_s); its time by activity
    (computing_s, ...), that for which the run held it, provisioned_s, and the share of that in which it computed,
    utilisation; and what it spent (energy_kwh, carbon_kg, cost), without the columns of which nothing is recorded."""
    cohorts, rounds, bars, num_sites = run.cohorts, run.rounds, bars_of(run), len(run.sites)
    waited = rounds[rounds["num_sites"] > 1]
    cohorts = cohorts.assign(energy_j=cohorts[[*ACTIVITIES]].sum(axis=1, skipna=False))

    def total(sites: pd.Series, amounts: pd.Series) -> np.ndarray:
        return np.bincount(sites, amounts.astype(float), num_sites).astype(float)  # NaN: not known in a round

    columns = {
        "rounds_in_cohort": run.flying.drop_duplicates(["round", "site"])["site"].value_counts(),
        "rounds_straggler": waited["straggler"].value_counts(),
    }
    columns = {name: counts.reindex(run.sites["site"], fill_value=0) for name, counts in columns.items()}
    columns["participation_fraction"] = columns["rounds_in_cohort"] / len(rounds)
    columns["straggler_fraction"] = columns["rounds_straggler"] / len(rounds)
    columns |= {name: total(waited["straggler"], waited[name]) for name in STRAGGLER}
    for doing in DOING[:-1]:
        those = bars[bars["doing"] == doing]
        columns[seconds_of(doing)] = total(those["site"], HOUR_S * (those["end_h"] - those["start_h"]))
    waits = () if run.setting("accounts.waiting", "") == "released" else ("waiting", "idle")
    columns["provisioned_s"] = sum(
        columns[seconds_of(name)] for name in ("computing", "sending", "given up", *waits)
    )
    columns["utilisation"] = pd.Series(columns["computing_s"]) / columns["provisioned_s"]
    for quantity in QUANTITIES:
        if (spent := cohorts[quantity.column]).notna().any():
            columns[quantity.total] = total(cohorts["site"], spent) / quantity.total_unit
    return run.sites.assign(**{name: np.asarray(values) for name, values in columns.items()})


def utilisation(report: pd.DataFrame) -> float:
    """Share of the time for which all sites were held in which they computed, from `by_site`; NaN where none was."""
    return float(report["computing_s"].sum() / (report["provisioned_s"].sum() or np.nan))


def seconds_of(doing: str) -> str:
    """The column of `by_site` with the seconds of an activity."""
    return f"{doing.replace(' ', '_')}_s"


def table_of(run: Run, report: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The report for people: the heads of its columns, and a row of texts for each site and, last, for all of them."""
    columns: dict[str, list[str]] = {}

    def add(head: str, name: str, factor: float) -> None:
        columns[head] = [figures(value / factor) for value in (*report[name], report[name].sum(skipna=False))]

    def share(head: str, name: str) -> None:
        columns[head] = [*(f"{fraction:.0%}" for fraction in report[name]), ""]

    columns["rounds"] = [f"{number:,}" for number in (*report["rounds_in_cohort"], len(run.rounds))]
    share("of all", "participation_fraction")
    for doing in DOING[:-1]:
        if doing not in (*RARE, "given up") or report[seconds_of(doing)].any():
            add(f"{doing} h", seconds_of(doing), HOUR_S)
    shares = (*report["utilisation"], utilisation(report))
    columns["utilised"] = ["-" if np.isnan(fraction) else f"{fraction:.0%}" for fraction in shares]
    for what, quantity in spent_in(report).items():
        factor, unit = unit_in(run, report, quantity)
        add(f"{what} {unit}", quantity.total, factor)
    share("straggler", "straggler_fraction")
    for name in (name for name in report if name.startswith(FACT)):
        texts = (f"{cell:.10g}" if isinstance(cell, float) else printable(cell, 24) for cell in report[name])
        columns[name.removeprefix(FACT)] = [*texts, ""]
    names = [*(printable(name, 24) for name in run.site_names), "all sites"]
    return ["site", *columns], [list(row) for row in zip(names, *columns.values(), strict=True)]


def spent_in(report: pd.DataFrame) -> dict[str, Quantity]:
    """{heading: quantity} of the quantities that are columns of a report."""
    headings = dict(zip(QUANTITIES, ("energy", "CO2", "cost"), strict=True))
    return {text: quantity for quantity, text in headings.items() if quantity.total in report}


def unit_in(run: Run, report: pd.DataFrame, quantity: Quantity) -> tuple[float, str]:
    """The unit, in that of the report and as of `unit_of`, in which people read what its sites spent."""
    largest, currency = report[quantity.total].abs().max(), str(run.setting("accounts.currency", ""))
    factor, unit = unit_of(largest * quantity.total_unit, quantity.unit, currency)
    return factor / quantity.total_unit, unit


def rendered(runs: Sequence[ResultsFile], form: str) -> str:
    """The reports of the sites of runs as text: aligned columns, or of the form json, csv or latex (a table of
    booktabs). InputError where one has no finished round, or no sites."""
    for run in runs:
        if not isinstance(run, Run) or run.rounds.empty:
            problem = (
                "holds no finished round" if isinstance(run, Run) else "is of a cluster, which has no sites"
            )
            raise InputError(str(run.path), problem, "leave out --sites")
        if faults := run.schema_faults() or [*run.structure_faults()]:
            raise InputError(faults=faults)
    if form == "json":
        return json_text(
            {"runs": [{"path": run.path, "sites": by_site(run).to_dict("records")} for run in runs]}
        )
    if form == "csv":
        reports = [by_site(run).assign(**({"path": str(run.path)} if len(runs) > 1 else {})) for run in runs]
        return csv_bytes(pd.concat(reports, ignore_index=True)).decode().rstrip("\n")
    lines: list[str] = []
    for run in runs:
        made_up = [name for name in ("data", "power") if run.meta[f"synthetic_{name}"]]
        synthetic = ", ".join([*made_up, *run.meta["synthetic_signals"]])
        title = printable(f"{run.path}{f': synthetic {synthetic}' if synthetic else ''}; simulated time")
        table = table_of(run, by_site(run))
        lines += [f"% {title}", *latex_table(*table)] if form == "latex" else [title, *aligned(*table)]
    return "\n".join(lines)


def bars_of(run: Run) -> pd.DataFrame:
    """The activities of the sites, one row each: site, round (in which the flight started), doing (of DOING), start_h,
    end_h. Those of less than a microsecond are rounding errors and are left out."""
    flights = run.flights.sort_values(["site", "start_s"])
    start_s, status = flights["start_s"], flights["status"]
    again_s = start_s.groupby(flights["site"]).shift(-1)
    free_s = np.fmin(flights["end_s"].fillna(run.rounds["clock_s"].iloc[-1]), again_s)
    begin_s, computed_s, sent_s = (
        np.fmin(flights[name], free_s) for name in ("begin_s", "computed_s", "sent_s")
    )
    used = status.isin([Status.ARRIVED, Status.UNDER_WAY])
    parts = {
        "queued": (used, start_s, begin_s),
        "computing": (used, begin_s, computed_s),
        "sending": (used, computed_s, sent_s),
        "waiting": (used, sent_s, free_s),
        "given up": (~used & (status != Status.OUT), start_s, free_s),
        "away": (status == Status.OUT, start_s, free_s),
    }
    idle = run.cohorts[run.cohorts["status"] == Status.IDLE]
    times = {"start_h": idle["start_s"] / HOUR_S, "end_h": (idle["start_s"] + idle["comm_s"]) / HOUR_S}
    tables = [idle[["site", "round"]].assign(doing="idle", **times)]
    for doing, (those, from_s, until_s) in parts.items():
        times = {"doing": doing, "start_h": from_s / HOUR_S, "end_h": until_s / HOUR_S}
        tables.append(flights[["site", "round"]].assign(**times)[those & (until_s - from_s > 1e-6)])
    return pd.concat(tables, ignore_index=True)
