"""Power traces as a frame, for figures and people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from hpctrip.base.sources import NamedFiles, read_sources, refuse_changed
from hpctrip.record.reader import Run
from hpctrip.sim.synthetic_traces import synthetic_traces
from hpctrip.sim.trace_file import Flags
from hpctrip.sim.traces import read_trace_files, trace_files


def read_traces(
    path: str | Path, column: str = "production", flags: Flags = "true-is-bad", synthetic_seed: int = 2019
) -> pd.DataFrame:
    """Power utilisation of every domain in trace files, in long form: time_s, cell, domain, utilisation. The path
    "synthetic" means the generated month of this seed, as in an input.

    `time_s` counts from the first sample and is the start of the interval that the value holds for.
    `attrs["synthetic"]` says whether any of it was made up. Arguments and errors as in `read_trace_files`.
    """
    made_here = path == "synthetic"
    traces = synthetic_traces(synthetic_seed, column) if made_here else read_trace_files(path, column, flags)
    num_domains, num_steps = traces.util.shape
    frame = pd.DataFrame(
        {
            "time_s": np.tile(np.arange(num_steps) * traces.step_s, num_domains),
            "cell": np.repeat(traces.cells, num_steps),
            "domain": np.repeat(traces.names, num_steps),
            "utilisation": traces.util.ravel(),
        }
    )
    frame.attrs["units"] = {"time_s": "s", "cell": "1", "domain": "1", "utilisation": "1"}
    frame.attrs["synthetic"] = traces.synthetic
    return frame


def refuse_other_traces(path: str, run: Run) -> None:
    """Raise InputError where the trace files that a run's input names have changed since."""
    recorded = read_sources(run.meta["sources"], run.path)
    refuse_changed(recorded, [NamedFiles("power.path", path, trace_files).source()], run.path)
