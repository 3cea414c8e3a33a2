"""What a published pilot of training while the grid is clean would have taken under other policies and rounds.

    python postprocess/pilot.py FOLDER            # prints the table
    python postprocess/pilot.py FOLDER --out docs/results/waiting/pilot.csv

The pilot is arXiv 2602.22760. Its data, mci.csv (marginal carbon intensity of three zones), events.csv and
client_steps.csv.gz (its log), are not part of hpctrip. Its world is simulated by timing alone, without training, until
as many steps are done as the log has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd
from paper.script import run_script

from hpctrip.base.io import replace_file
from hpctrip.base.units import HOUR_S
from hpctrip.runner.experiment import read_input
from hpctrip.sim.arrivals import ROUNDS, Rounds
from hpctrip.sim.flights import RoundTimes, State
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies.base import Decision
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.world import World

ZONES = ("CAISO_NORTH", "SPP_TX", "NEM_SA")
"""Of the sites 0, 1 and 2 (paper)."""
STEP_S = (2.724, 2.724, 3.066)
"""Seconds of a training step at each site: means of steps without a gap above 25 s, of the third while it
trains alone (client_steps.csv.gz)."""
WORK_S, EXCHANGE_S = 515.0, 131.0
"""Of a round of two sites: seconds of training, and from its end to the first step of the next (same file)."""
BELOW, PROVISION_S, HOLD_S = 100.0, 300.0, 600.0
"""g/kWh; seconds to provision, and from the mark to the release (paper; the log has 240 s to provision)."""
TRAINING_W, IDLE_W = 2024.0, 468.0
"""Of a site (paper)."""
BEGIN = "2026-01-11T17:00"
"""Moment of the intensities at which the log starts (paper)."""
BETWEEN_S = 15
"""Seconds between values of the intensities where they are linear between the published ones."""
ROWS: Mapping[str, tuple[str, ...]] = {
    "the pilot's rule": ('rounds.kind="pilot"', 'policy.kind="while-clean"'),
    "the rule, rounds of equal length": ('policy.kind="while-clean"',),
    "PowerTrip": ('policy.kind="powertrip"',),
    "goodput": ('policy.kind="goodput"',),
    "quorum of 1": ('policy.kind="while-clean"', f'rounds={{kind="quorum", num=1, work_s={WORK_S}}}'),
    "buffered, each update": (
        'policy.kind="while-clean"',
        f'rounds={{kind="buffered", num=1, concurrency=3, work_s={WORK_S}}}',
    ),
    "all sites, always": ('policy.kind="all"', f"availability.clean.below={1e6}"),
}
"""{name: lines of the input}."""


@ROUNDS.add
class Pilot(Rounds):
    """The rounds of the pilot: they end when a site joins or is released, and where several train, after a time."""

    kind = "pilot"
    leaves_flights = False

    def times(self, world: World, state: State, decision: Decision, work_s: np.ndarray) -> RoundTimes:
        """Each site trains the steps that it can until the end, and at least one. `work_s` [N] is that of a step."""
        cohort, clock_s = decision.cohort, state.clock_s
        length_s = min(_joins_s(world, clock_s), world.available_s(clock_s)[cohort].min()) - EXCHANGE_S
        if len(cohort) > 1 or not np.isfinite(length_s):
            length_s = min(length_s, WORK_S)
        steps = np.maximum(np.ceil(length_s / work_s), 1).astype(np.int64)
        return world.times(state.round + 1, clock_s, cohort, steps * work_s, steps[cohort])


def _joins_s(world: World, clock_s: float) -> float:
    """Seconds until another site can train, as far as the day goes; inf: none."""
    present, at_s = world.available(clock_s) > 0, clock_s
    while at_s < 24 * HOUR_S:
        at_s = min(part.next_change_s(at_s) for part in world.availability)
        if ((world.available(at_s) > 0) & ~present).any():
            return at_s - clock_s
    return np.inf


class Log(NamedTuple):
    """The published run."""

    trace: pd.DataFrame
    """Intensities [times, zones], g/kWh."""
    steps: pd.DataFrame
    events: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Log:
        """Read the three files."""
        trace = pd.read_csv(folder / "mci.csv", index_col="point_time", parse_dates=True)[[*ZONES]]
        return cls(trace, pd.read_csv(folder / "client_steps.csv.gz"), pd.read_csv(folder / "events.csv"))

    def linear(self) -> pd.DataFrame:
        """The intensities, linear between their values."""
        return self.trace.resample(f"{BETWEEN_S}s").interpolate()

    def spent(self) -> Spent:
        """What the log says: a site waits at idle power from provisioning to release where it does not train."""
        events = self.events.assign(site=self.events["client"].str[-1:])
        end_s = float(self.steps["time_s"].max())
        load = Load(end_s)
        for site, own in events[events["site"] != ""].groupby("site"):
            since_s = own.loc[own["event_type"] == "PROVISION_COMPLETE", "elapsed_s"]
            until_s = [*own.loc[own["event_type"] == "DEPROVISION", "elapsed_s"], end_s]
            for begin_s, released_s in zip(since_s, until_s, strict=False):
                load.add(int(site), begin_s, released_s, IDLE_W)
        for site, own in self.steps.groupby("client"):
            times_s = own["time_s"].to_numpy(float)
            pauses = np.flatnonzero(np.diff(times_s) > 60)
            bounds = zip(times_s[[0, *(pauses + 1)]], times_s[[*pauses, -1]], strict=True)
            for begin_s, stopped_s in bounds:
                load.add(site, begin_s, stopped_s, TRAINING_W)
        return load.spent(self)


class Spent(NamedTuple):
    """What a run took."""

    hours: float
    kwh: float
    kg: float
    clean: float
    """Share of its energy while the intensity at the site was below the bound."""


class Load:
    """The watts of the sites over a run, in values of `STEP` seconds."""

    STEP = 5.0

    def __init__(self, end_s: float):
        self.at_s = np.arange(0.0, end_s, self.STEP)
        self.watts = np.zeros((len(ZONES), len(self.at_s)))
        self._end_s = end_s

    def add(self, site: int, begin_s: float, end_s: float, watts: float) -> None:
        """A site draws so much in a span of time, whatever it drew there."""
        self.watts[site, (self.at_s >= begin_s) & (self.at_s < end_s)] = watts

    def spent(self, log: Log) -> Spent:
        """The account of it."""
        trace = log.trace
        known_s = (trace.index - pd.Timestamp(BEGIN, tz="UTC")).total_seconds()
        grams = np.array([np.interp(self.at_s, known_s, trace[zone]) for zone in ZONES])
        kwh = self.watts * self.STEP / 3.6e6
        clean = float(kwh[grams < BELOW].sum() / kwh.sum())
        return Spent(self._end_s / HOUR_S, float(kwh.sum()), float((kwh * grams).sum() / 1e3), clean)


def load_of(history: History) -> Load:
    """The watts of a run: its sites train, and wait otherwise from their start, or provisioning, to the round's end."""
    load = Load(history.last.clock_s)
    trained = []
    for row in history.rows:
        for site, status, start_s, compute_s, comm_s in zip(
            *(getattr(row.billed, name) for name in ("site", "status", "start_s", "compute_s", "comm_s")),
            strict=True,
        ):
            if status == Status.IDLE:
                load.add(site, row.clock_s - comm_s, row.clock_s, IDLE_W)
            elif status in (Status.ARRIVED, Status.UNDER_WAY):
                load.add(site, start_s, row.clock_s, IDLE_W)
                trained.append((site, start_s, start_s + compute_s))
    for site, start_s, end_s in trained:
        load.add(site, start_s, end_s, TRAINING_W)
    return load


INPUT = """
[sites]
kind = "csv"
path = "{folder}/sites.csv"
[train]
local_steps = 1
batch_size = 1
[timing]
seconds_per_sample = {step_s}
[power]
kind = "constant"
[throughput]
num_gpus = 4
gpu_power_w = {gpu_w}
idle_w = {idle_w}
pue = 1.0
[network]
update_bytes = {update_bytes}
[accounts]
network_j_per_gb = 0
[carbon] # the account
kind = "csv"
path = "{folder}/account.csv"
zone_column = "zone"
site_column = "zone"
start = "{begin}"
[price] # what the rule looks at: the same intensities, as they are published or linear between their values
kind = "csv"
path = "{folder}/rule.csv"
zone_column = "zone"
site_column = "zone"
start = "{begin}"
[availability.clean]
kind = "window"
signal = "price"
below = {below}
provision_s = {provision_s}
hold_s = {hold_s}
notice_s = "1 d"
[server]
weights = "processed"
[rounds]
work_s = {work_s}
[stop]
target_accuracy = "none"
max_rounds = 100000
max_samples = {steps}
"""


def simulated(log: Log, *lines: str, linear: bool = False) -> tuple[Spent, History]:
    """The world of the pilot, with these lines of input besides, until it has made the steps of the log. The account is
    of intensities that are linear between their values; those that the rule looks at hold until the next, or are
    `linear`, too."""
    with tempfile.TemporaryDirectory() as folder:
        sites = pd.DataFrame({"name": ZONES, "zone": ZONES, "distance_m": 1.0, "seconds_per_sample": STEP_S})
        sites.to_csv(f"{folder}/sites.csv", index=False)
        for name, trace in (("account", log.linear()), ("rule", log.linear() if linear else log.trace)):
            rows = trace.rename_axis("time").melt(var_name="zone", value_name="per_kwh", ignore_index=False)
            rows.to_csv(f"{folder}/{name}.csv")
        text = INPUT.format(
            folder=folder,
            step_s=STEP_S[0],
            gpu_w=TRAINING_W / 4,
            idle_w=IDLE_W / 4,
            update_bytes=EXCHANGE_S * 1e9 / 8,
            begin=BEGIN,
            below=BELOW,
            provision_s=PROVISION_S,
            hold_s=HOLD_S,
            work_s=WORK_S,
            steps=len(log.steps),
        )
        path = Path(folder, "pilot.toml")
        path.write_text(text)
        simulation = read_input([path], lines).experiment.simulation(1, np.ones(len(ZONES), np.int64))
    state = State()
    while not state.stop_reason:
        draft = simulation.begin(state)
        state, _ = simulation.finish(draft, Outcome.assumed(np.zeros(len(draft.cohort)), np.nan))
    rows = state.history.rows
    kwh, kg = sum(row.energy_j for row in rows) / 3.6e6, sum(row.carbon_g for row in rows) / 1e3
    clean = load_of(state.history).spent(log).clean
    return Spent(state.clock_s / HOUR_S, kwh, kg, clean), state.history


def rows_of(log: Log) -> Iterator[tuple[str | float, ...]]:
    """(name, *Spent) of the log, of the rule with linear intensities, and of `ROWS`."""
    yield "the log", *log.spent()
    yield "the pilot's rule, linear intensities", *simulated(log, *ROWS["the pilot's rule"], linear=True)[0]
    for name, lines in ROWS.items():
        yield name, *simulated(log, *lines)[0]


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the table there, too.")
def main(folder: Path, out: Path | None) -> None:
    """Print the table, and write it."""
    table = pd.DataFrame(rows_of(Log.read(folder)), columns=["run", *Spent._fields])
    click.echo(table.to_string(index=False))
    if out:
        replace_file(out, table.to_csv(index=False).encode())


if __name__ == "__main__":
    run_script(main)
