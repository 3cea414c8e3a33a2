"""Microsoft's Philly trace (Jeon et al., ATC 2019) as summarised by AdaptDL."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.text import unknown_name
from hpctrip.base.times import moments_us
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.traces.base import TRACES, Raw, Trace, durations, gpu_counts, not_recorded
from hpctrip.config.sources import Reads


@TRACES.add
class Philly(Trace):
    """Reads simulator/traces/philly.csv of petuum/adaptdl, branch osdi21-artifact, which is not sorted.

    Columns: timestamp (ISO 8601), duration (s; a line without one is left out), num_gpus, cluster. Models are drawn.
    """

    kind = "philly"
    path: Annotated[PathName, Reads()]
    """The CSV file, plain or gzipped."""
    cluster: str | None = Field(None, max_length=100)
    """Virtual cluster whose jobs are used, e.g. "ee9e8c"; absent: all."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line with a duration is a job; it is named by its line."""
        table = read_table(self.path, f"jobs.path = {self.path!r}")
        table.require("timestamp", "duration", "num_gpus", "cluster")
        clusters = np.array(table.texts("cluster"))
        duration_s = durations(table, "duration", may_lack=True)
        submit_s = moments_us(table, "timestamp") / 1e6
        gpus = gpu_counts(table, "num_gpus")
        chosen = ~np.isnan(duration_s)
        if self.cluster is not None:
            chosen &= clusters == self.cluster
            if not chosen.any():
                hint = unknown_name(self.cluster, set(clusters.tolist()))
                raise InputError(f"jobs.cluster = {self.cluster!r}", "has no job in the trace", hint)
        rows = np.flatnonzero(chosen)
        return Raw(
            place=table.place,
            name=[f"line {table.lines[row]}" for row in rows.tolist()],
            submit_s=submit_s[rows],
            gpus=gpus[rows],
            duration_s=duration_s[rows],
            steps=not_recorded(len(rows)),
            kind=[None] * len(rows),
        )
