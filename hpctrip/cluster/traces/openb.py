"""Alibaba's openb trace of 2023 (Weng et al., ATC 2023): pods on a cluster that shares GPUs."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.io import PathName
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.traces.base import LONGEST_S, TRACES, Raw, Trace, not_recorded
from hpctrip.config.sources import Reads


@TRACES.add
class Openb(Trace):
    """Reads openb_pod_list_*.csv; a pod is a job if it requests GPUs and was scheduled.

    Columns: name, num_gpu, creation_time, scheduled_time, deletion_time (s). A job lasts from scheduling to deletion.
    A pod that requests a part of a GPU (gpu_milli) gets a whole one, as GPUs are not shared here. Models are drawn.
    """

    kind = "openb"
    path: Annotated[PathName, Reads()]
    """The CSV file, plain or gzipped."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """The pods that are jobs."""
        table = read_table(self.path, f"jobs.path = {self.path!r}")
        table.require("name", "num_gpu", "creation_time", "scheduled_time", "deletion_time")
        gpus = table.integers("num_gpu")
        table.refuse("num_gpu", (gpus < 0) | (gpus > 1024), "is no number of GPUs from 0 to 1,024")
        created_s, deleted_s = table.numbers("creation_time"), table.numbers("deletion_time")
        scheduled_s = table.numbers("scheduled_time", may_lack=True)
        table.refuse("creation_time", (created_s < 0) | (created_s > LONGEST_S), "is no time")
        ends_early = deleted_s < np.fmax(scheduled_s, created_s)
        table.refuse("deletion_time", ends_early, "is before the pod was there")
        rows = np.flatnonzero(
            (gpus > 0) & (deleted_s > scheduled_s)
        )  # false for a pod that was never scheduled
        names = table.texts("name")
        return Raw(
            place=table.place,
            name=[names[row] for row in rows.tolist()],
            submit_s=created_s[rows],
            gpus=gpus[rows],
            duration_s=(deleted_s - scheduled_s)[rows],
            steps=not_recorded(len(rows)),
            kind=[None] * len(rows),
        )
