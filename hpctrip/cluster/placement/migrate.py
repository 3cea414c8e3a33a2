"""Moving jobs so that a node becomes empty: it can then be switched off, or take a job that needs a whole one."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.placement.base import Layout, Move


def emptiest(layout: Layout) -> list[int]:
    """The nodes that are partly used, those with the fewest GPUs in use first."""
    used = layout.machine.gpus_per_node - layout.free
    partly = np.flatnonzero((used > 0) & (layout.free > 0))
    return partly[np.argsort(used[partly], kind="stable")].tolist()


def clear(layout: Layout, node: int, most: int) -> list[Move]:
    """Move all jobs of a node, at most so many, to other nodes that are in use. Nothing is moved, and the list is
    empty, where they do not fit or one of them lies on several nodes."""
    jobs = sorted(layout.jobs_on[node], key=lambda job: (-_gpus(layout, job), job))
    if not 0 < len(jobs) <= most or any(len(layout.parts[job]) > 1 for job in jobs):
        return []
    moves: list[Move] = []
    layout.closed = node
    for job in jobs:
        parts = layout.find(_gpus(layout, job), job, 0)
        if parts is None or any(layout.free_mask[there] == layout.full for there, _ in parts):
            for move in reversed(moves):
                layout.release(move.job)
                layout.take(move.job, move.before)
            moves = []
            break
        moves.append(Move(job, layout.release(job)))
        layout.take(job, parts)
    layout.closed = -1
    return moves


def _gpus(layout: Layout, job: int) -> int:
    return sum(mask.bit_count() for _, mask in layout.parts[job])
