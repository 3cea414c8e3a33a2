"""A power model of sites that are GPU clusters: a federated job gets what the jobs of the cluster leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.cluster.rows import IntervalRow
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.inputs import read_layers, validate
from hpctrip.config.sources import Reads, named_files
from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply


def cluster_files(value: str) -> list[Path]:
    """The input of a cluster, and the files that it names. InputError where it is not what it should be."""
    named = named_files(read_cluster(value))
    return [Path(value).expanduser(), *(path for files in named for path in files.find(files.value))]


def read_cluster(path: str) -> ClusterScenario:
    """The cluster of an input file of `hpctrip cluster`. InputError names the file and the key."""
    (tables, _) = read_layers([path], [])
    if tables.get("plugins"):
        raise InputError(
            f"power.path = {path!r}", "names plug-ins, which are not run", "name them in the run's own input"
        )
    try:
        return validate(tables, ClusterScenario).resolve()
    except InputError as error:
        raise InputError(
            faults=[Fault(f"{path}: {f.place}", f.problem, f.way_out) for f in error.faults]
        ) from None


class Spare(NamedTuple):
    """What the jobs of one simulated cluster leave."""

    fraction: np.ndarray
    """[T] share of all GPUs, at full power, in each interval."""
    step_s: float
    synthetic: bool


@POWER_MODELS.add
class ClusterPower(PowerModel):
    """Every site is a GPU cluster, whose own jobs come first; the federated job trains on what they leave.

    P_i(t) = min(free GPUs, (limit - drawn) / w) / GPUs, averaged over the cluster's intervals (its clock.sample_s),
    where limit is the power that the cluster's budget allows, drawn what it draws, and w that of a GPU at full power
    with its share of a host. Nobody waits for a node that boots, and no job of the cluster is slowed by the
    federation. The cluster is simulated until its last job is submitted; then it starts again.
    """

    kind = "cluster"
    path: Annotated[PathName, Reads(find=cluster_files)]
    """Input file of the cluster, as `hpctrip cluster` takes it."""
    num_clusters: int = Field(4, ge=1, le=1000)
    """Clusters that are simulated, alike but for what is drawn at random. Each site is one of them."""
    offsets: bool = True
    """Whether each site starts at its own random time; false: all start with the first job."""

    def supply(self, num_sites: int, seed: int) -> ClusterSupply:
        """Simulates the clusters, and draws each site's cluster and offset from (seed, "site-cluster" /
        "cluster-offset")."""
        scenario = read_cluster(self.path)
        spare = [spare_of(scenario.replica(number)) for number in range(self.num_clusters)]
        cluster = stream(seed, "site-cluster").integers(self.num_clusters, size=num_sites)
        lengths = np.array([len(found.fraction) for found in spare])
        offset = stream(seed, "cluster-offset").integers(lengths[cluster])
        return ClusterSupply(spare, cluster, offset if self.offsets else np.zeros_like(offset))


class ClusterSupply(PowerSupply):
    """Site i has what cluster[i] leaves, `offset[i]` intervals later."""

    def __init__(self, spare: list[Spare], cluster: np.ndarray, offset: np.ndarray):
        self.step_s = spare[0].step_s
        self.synthetic = any(found.synthetic for found in spare)
        self._spare, self._cluster, self._offset = spare, cluster, offset

    def at(self, clock_s: float) -> np.ndarray:
        """P_i, [N]. Past its end a simulation starts again."""
        step = int(clock_s // self.step_s)
        found = np.empty(len(self._cluster))
        for number, spare in enumerate(self._spare):
            here = self._cluster == number
            found[here] = spare.fraction.take(self._offset[here] + step, mode="wrap")
        return found

    def describe(self) -> dict[str, np.ndarray]:
        """The number of each site's cluster, [N], and its offset in intervals, [N]."""
        return {"cluster": self._cluster, "cluster_offset": self._offset}


def spare_of(scenario: ClusterScenario) -> Spare:
    """What the jobs of a cluster leave until the last one is submitted, and at least for one interval."""
    simulator, step_s = scenario.simulator(), scenario.clock.sample_s
    num_steps = max(int(simulator.jobs.submit_s[-1] // step_s), 1)
    rows = simulator.run(stop_s=num_steps * step_s).intervals[:num_steps]
    fraction = np.ones(num_steps)  # a cluster whose last job is done is free
    fraction[: len(rows)] = [_left(row, scenario) for row in rows]
    return Spare(fraction, step_s, simulator.jobs.synthetic)


def _left(row: IntervalRow, scenario: ClusterScenario) -> float:
    """P in one interval."""
    machine, gpu = scenario.cluster, scenario.gpu
    one_w = float(gpu.full_power_w(gpu.frequencies[-1])) + machine.host_w / machine.gpus_per_node
    free, powered = machine.num_gpus - row.busy_gpus, max(row.limit_w - row.power_w, 0.0) / one_w
    return min(max(free, 0.0), powered) / machine.num_gpus
