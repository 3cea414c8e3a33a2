"""Spare power of real (or synthetic) power domains."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.sources import Reads
from hpctrip.sim.power.base import POWER_MODELS, PowerModel
from hpctrip.sim.synthetic_traces import synthetic_traces
from hpctrip.sim.trace_file import Flags
from hpctrip.sim.traces import TraceSet, read_trace_files, trace_files


@POWER_MODELS.add
class Trace(PowerModel):
    """P_i(t) = 1 - utilisation of a power domain, held over each step of its trace (paper Sec. 5.1, Fig. 12).

    Every site follows one domain from a circular offset of whole steps, both drawn from named streams, so that a few
    dozen domains serve any number of sites.
    """

    kind = "trace"
    path: Annotated[PathName, Reads(unless="synthetic", find=trace_files)] = "synthetic"
    """Trace files: a folder, a file or a glob, relative to the working directory. "synthetic": generated, no file."""
    column: Literal["production", "measured"] = "production"
    """Which utilisation: of production workloads, or all measured power (files without a production column)."""
    flags: Flags = "true-is-bad"
    """What `true` means in the files' flag columns. Google's PDF and notebook disagree; we follow the notebook."""
    at_end: Literal["wrap", "raise"] = "wrap"
    """When simulated time outlasts the trace: start it again, or stop with an error."""
    offsets: bool = True
    """Whether each site starts at its own random time of the trace; false: all start at its beginning."""
    synthetic_seed: int = 2019
    """Seed of the synthetic month; apart from the run's seed, so that all runs see the same month."""

    def supply(self, num_sites: int, seed: int) -> TraceSupply:
        """Reads the traces and draws each site's domain and offset from (seed, "trace-domain" / "trace-offset")."""
        traces = (
            synthetic_traces(self.synthetic_seed, self.column)
            if self.path == "synthetic"
            else read_trace_files(self.path, self.column, self.flags)
        )
        num_domains, num_steps = traces.util.shape
        domain = stream(seed, "trace-domain").integers(num_domains, size=num_sites)
        offset = stream(seed, "trace-offset").integers(num_steps, size=num_sites)
        return TraceSupply(traces, domain, offset if self.offsets else np.zeros_like(offset), self.at_end)


class TraceSupply:
    """A supply that follows `traces`: site i has the spare power of domain[i], `offset[i]` steps later."""

    def __init__(self, traces: TraceSet, domain: np.ndarray, offset: np.ndarray, at_end: str):
        self.traces = traces
        self.step_s = traces.step_s
        self.synthetic = traces.synthetic
        self._domain, self._offset, self._at_end = domain, offset, at_end
        self._num_steps = traces.util.shape[1]
        # Each trace twice in a row, [D * 2T]: a circular shift is one add and one gather, without a modulo per site.
        self._spare = np.tile(1.0 - traces.util, 2).ravel()
        self._first = domain * (2 * self._num_steps) + offset

    def fraction(self, clock_s: float) -> np.ndarray:
        """P_i of every site, [N]. Past the end of the trace: wraps, or raises InputError (`at_end`)."""
        step = int(clock_s // self.step_s)
        if step >= self._num_steps and self._at_end == "raise":
            raise InputError(
                "power.at_end",
                f"simulated time {clock_s:g} s is past the end of the power trace, {self.traces.duration_s:g} s long",
                'set at_end = "wrap" to start it again, or give longer traces',
            )
        return self._spare.take(self._first + step % self._num_steps)

    def describe(self) -> dict[str, np.ndarray]:
        """The name of each site's domain, e.g. "cella_pdu6", [N] texts, and its offset in steps, [N] integers."""
        return {"trace_domain": np.array(self.traces.names)[self._domain], "trace_offset": self._offset}
