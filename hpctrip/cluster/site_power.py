"""Power model of sites that are GPU clusters: a federated job gets the capacity that the cluster's own jobs leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError, faults_at
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.inputs import folder_of, read_layers, validate
from hpctrip.config.sources import Reads, named_files, seen_from_here
from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply


def cluster_files(value: str) -> list[Path]:
    """The input file of a cluster, and the files that it names. Raises InputError if it is invalid."""
    references = named_files(read_cluster(value))
    return [Path(value), *(path for files in references for path in files.find(files.value))]


def read_cluster(path: str) -> ClusterScenario:
    """Read the scenario in an input file of `hpctrip cluster`. InputError names the file and the key."""
    (tables, _) = read_layers([path], [])
    tables = seen_from_here(tables, folder_of(path), ClusterScenario)
    if tables.get("plugins"):
        raise InputError(
            f"power.path = {path!r}", "names plug-ins, which are not run", "name them in the run's own input"
        )
    with faults_at(path):
        return validate(tables, ClusterScenario).resolve()


@POWER_MODELS.add
class ClusterPower(PowerModel):
    """Every site is a GPU cluster, whose own jobs have priority; the federated job uses the remaining capacity.

    P_i(t) = min(free GPUs, (limit - drawn) / w) / GPUs, averaged over the cluster's intervals (its clock.sample_s),
    where limit is the power that the cluster's budget permits, drawn the power of the cluster, and w the power of a GPU
    at full load with its share of a host. Boot times of nodes are neglected, and the federation slows no job of the
    cluster. The cluster is simulated until its last job is submitted; then the series starts again.
    """

    kind = "cluster"
    path: Annotated[PathName, Reads(find=cluster_files)]
    """Input file of the cluster, in the format of `hpctrip cluster`."""
    num_clusters: int = Field(4, ge=1, le=1000)
    """Number of simulated clusters, which differ only in their random draws. Each site follows one of them."""
    offsets: bool = True
    """Whether each site starts at a random time of its cluster; false: all start with the first job."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """One more than the cluster's: it restarts no job that cannot grow, and keeps its budget without jobs, too."""
        return 1 + read_cluster(self.path).rules

    def supply(self, num_sites: int, seed: int) -> ClusterSupply:
        """Simulate the clusters and draw the cluster and the offset of each site.

        The draws come from the streams (seed, "site-cluster") and (seed, "cluster-offset"). Raises InputError if the
        input of the cluster is invalid.
        """
        scenario = read_cluster(self.path)
        spare = [simulate_spare(scenario.replica(number)) for number in range(self.num_clusters)]
        cluster = stream(seed, "site-cluster").integers(self.num_clusters, size=num_sites)
        lengths = np.array([len(fraction) for fraction in spare])
        offset = stream(seed, "cluster-offset").integers(lengths[cluster])
        offset = offset if self.offsets else np.zeros_like(offset)
        return ClusterSupply(spare, scenario.clock.sample_s, scenario.jobs.synthetic, cluster, offset)


class ClusterSupply(PowerSupply):
    """Supply of N sites: site i has the spare capacity of cluster `cluster[i]`, shifted by `offset[i]` intervals."""

    def __init__(
        self,
        spare: Sequence[np.ndarray],
        step_s: float,
        synthetic: bool,
        cluster: np.ndarray,
        offset: np.ndarray,
    ):
        """`spare`: of each cluster, the fraction [T] of its GPUs that is left in each interval of `step_s` seconds."""
        self.step_s, self.synthetic = step_s, synthetic
        self._spare, self._cluster, self._offset = spare, cluster, offset

    def at(self, clock_s: float) -> np.ndarray:
        """[N] power fractions at `clock_s`. After its end a series starts again."""
        step = int(clock_s // self.step_s)
        fraction = np.empty(len(self._cluster))
        for number, series in enumerate(self._spare):
            here = self._cluster == number
            fraction[here] = series.take(self._offset[here] + step, mode="wrap")
        return fraction

    def describe(self) -> dict[str, np.ndarray]:
        """Columns of the sites table: each site's cluster, [N], and offset in intervals, [N]."""
        return {"cluster": self._cluster, "cluster_offset": self._offset}


def simulate_spare(scenario: ClusterScenario) -> np.ndarray:
    """Simulate a cluster until its last job is submitted, for at least one interval.

    Returns the fraction of the cluster's GPUs that is left in each interval, [T].
    """
    simulator, step_s = scenario.simulator(), scenario.clock.sample_s
    machine, gpu = scenario.cluster, scenario.gpu
    num_steps = max(int(simulator.jobs.submit_s[-1] // step_s), 1)
    rows = simulator.run(stop_s=num_steps * step_s).intervals[:num_steps]
    busy, limit_w, drawn_w = np.array([(row.busy_gpus, row.limit_w, row.power_w) for row in rows]).T
    one_w = float(gpu.full_power_w(gpu.frequencies[-1])) + machine.host_w / machine.gpus_per_node
    powered = np.maximum(limit_w - drawn_w, 0.0) / one_w
    fraction = np.ones(num_steps)  # the whole cluster is free once its last job is completed
    fraction[: len(rows)] = np.minimum(np.maximum(machine.num_gpus - busy, 0.0), powered) / machine.num_gpus
    return fraction
