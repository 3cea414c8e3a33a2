"""Invariants of layouts and simulations, checked independently of their code."""

import itertools
import math

import numpy as np
import pytest


def check_layout(layout):
    """Assert that no GPU has two jobs and that the other GPUs are marked as free."""
    taken = [0] * layout.machine.num_nodes
    for job, parts in layout.parts.items():
        assert [node for node, _ in parts] == sorted({node for node, _ in parts})
        for node, mask in parts:
            assert mask and not mask & taken[node], "a GPU has two jobs"
            assert job in layout.jobs_on[node]
            taken[node] |= mask
    assert layout.free_mask == [layout.full & ~mask for mask in taken]
    assert layout.free.tolist() == [mask.bit_count() for mask in layout.free_mask]


class CheckedSimulation:
    """Runs a simulation and checks its invariants after every event."""

    def __init__(self, simulator):
        self.simulator, self.energy_j, self.peak_w = simulator, 0.0, 0.0

    def run(self):
        """Return the result; raises AssertionError after the first event that violates an invariant."""
        simulator, state = self.simulator, self.simulator.state
        all_jobs = np.arange(len(simulator.jobs))
        left, reason = state.left_at(all_jobs, 0.0), ""
        while not reason:
            watts, before_s = simulator.draw().total_w, simulator.clock_s
            reason = simulator.step(simulator.clock.stop_s)
            self.energy_j += watts * (simulator.clock_s - before_s)
            assert simulator.clock_s >= before_s
            now = state.left_at(all_jobs, simulator.clock_s)
            assert np.all(now <= left * (1 + 1e-12)), "work was lost"
            left = now
            self._check()
        result = simulator.run()
        self._check_result(result)
        return result

    def _check(self):
        state, allocator = self.simulator.state, self.simulator.allocator
        layout, nodes = allocator.layout, allocator.nodes
        check_layout(layout)
        running = np.flatnonzero(state.gpus)
        assert sorted(layout.parts) == running.tolist()
        for job in running.tolist():
            assert sum(mask.bit_count() for _, mask in layout.parts[job]) == state.gpus[job]
            assert all(layout.powered[node] for node, _ in layout.parts[job])
            if state.power_w[job]:
                assert all(nodes.up[node] for node, _ in layout.parts[job]), (
                    "it runs on a node that is not up"
                )
        assert nodes.num_powered == layout.powered.sum() and nodes.num_up == nodes.up.sum()
        assert not np.any(nodes.up & ~layout.powered)
        done = ~np.isnan(state.end_s)
        assert not state.gpus[done].any(), "a job that is done has GPUs"

    def _check_result(self, result):
        jobs, rows = result.jobs, result.intervals
        assert result.energy_j == pytest.approx(self.energy_j, rel=1e-9)
        assert sum(row.job_energy_j for row in rows) == pytest.approx(jobs.energy_j.sum(), rel=1e-9)
        ends = [rows[0].clock_start_s, rows[-1].clock_s] if rows else [0, 0]
        assert ends == [0, self.simulator.clock_s]
        assert all(a.clock_s == b.clock_start_s for a, b in itertools.pairwise(rows))
        busy_s = sum(row.busy_gpus * (row.clock_s - row.clock_start_s) for row in rows)
        assert busy_s <= jobs.gpu_s.sum() * (1 + 1e-9), "booting counts as having GPUs, not as drawing power"
        done = ~np.isnan(jobs.end_s)
        assert np.all(jobs.work_left[done] == 0) and np.all(jobs.work_left[~done] > 0)
        assert np.all(jobs.jct_s[done] >= jobs.run_s[done] * (1 - 1e-9))
        assert sum(row.starts for row in rows) == jobs.starts.sum()
        assert sum(row.migrations for row in rows) == jobs.migrations.sum()
        if result.stop_reason == "all jobs are done":
            assert done.all() and math.isfinite(result.mean_jct_s)
