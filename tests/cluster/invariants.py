"""Invariants of layouts and simulations, checked independently of their code."""

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


def checked_run(simulator):
    """Run a simulation; returns the result. Raises AssertionError after the first event that violates an invariant."""
    state, energy_j, reason = simulator.state, 0.0, ""
    all_jobs = np.arange(len(simulator.jobs))
    left = state.left_at(all_jobs, 0.0)
    layout = simulator.allocator.layout
    while not reason:
        watts, before_s = simulator.draw().total_w, simulator.clock_s
        parts, starts = dict(layout.parts), state.starts - state.migrations
        reason = simulator.step(simulator.clock.stop_s)
        energy_j += watts * (simulator.clock_s - before_s)
        assert simulator.clock_s >= before_s
        now = state.left_at(all_jobs, simulator.clock_s)
        assert np.all(now <= left * (1 + 1e-12)), "work was lost"
        left = now
        check_state(state, layout, simulator.allocator.nodes)
        check_restarts(parts, np.flatnonzero(state.starts - state.migrations > starts), layout)
    result = simulator.run()
    assert result.energy_j == pytest.approx(energy_j, rel=1e-9)
    check_result(result, simulator.clock_s)
    return result


def check_state(state, layout, nodes):
    """Assert that the jobs' GPUs are those of the layout, on nodes that are on."""
    check_layout(layout)
    assert sorted(layout.parts) == np.flatnonzero(state.gpus).tolist()
    for job, parts in layout.parts.items():
        assert sum(mask.bit_count() for _, mask in parts) == state.gpus[job]
        assert all(layout.powered[node] for node, _ in parts)
        if state.power_w[job]:
            assert all(nodes.up[node] for node, _ in parts), "it runs on a node that is not up"
    assert not np.any(nodes.up & ~layout.powered)
    assert not state.gpus[~np.isnan(state.end_s)].any(), "a job that is done has GPUs"


def check_restarts(before, restarted, layout):
    """Assert that jobs that were running, with the GPUs `before`, and were restarted have another number of GPUs, or
    that another job has taken theirs."""
    for job in set(restarted.tolist()) & before.keys() & layout.parts.keys():
        numbers = [sum(mask.bit_count() for _, mask in parts) for parts in (before[job], layout.parts[job])]
        own = {node: mask for node, mask in layout.parts[job]}
        free = layout.are_free([(node, mask & ~own.get(node, 0)) for node, mask in before[job]])
        assert numbers[0] != numbers[1] or not free, f"job {job} was restarted for nothing"


def check_result(result, end_s):
    """Assert that the tables of a result agree with each other, and end at this time."""
    jobs, rows = result.jobs, result.intervals
    assert sum(row.job_energy_j for row in rows) == pytest.approx(jobs.energy_j.sum(), rel=1e-9)
    assert [0, *(row.clock_s for row in rows)] == [*(row.clock_start_s for row in rows), end_s]
    busy_s = sum(row.busy_gpus * (row.clock_s - row.clock_start_s) for row in rows)
    assert busy_s <= jobs.gpu_s.sum() * (1 + 1e-9), "booting counts as having GPUs, not as drawing power"
    done = ~np.isnan(jobs.end_s)
    assert np.all(jobs.work_left[done] == 0) and np.all(jobs.work_left[~done] > 0)
    assert np.all(jobs.jct_s[done] >= jobs.run_s[done] * (1 - 1e-9))
    assert sum(row.starts for row in rows) == jobs.starts.sum()
    assert sum(row.migrations for row in rows) == jobs.migrations.sum()
    if result.stop_reason == "all jobs are done":
        assert done.all() and math.isfinite(result.mean_jct_s)
