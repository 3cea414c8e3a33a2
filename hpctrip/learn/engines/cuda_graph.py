"""Running one and the same step again and again: called, or captured once in a CUDA graph and replayed.

The step takes no arguments and returns nothing: everything it reads and writes lies in tensors that stay where they
are. That is what a graph needs, and why a replayed step is one launch instead of some forty.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

WARM_UP_STEPS = 3
"""Before a capture, as PyTorch's notes on CUDA graphs ask: libraries allocate and choose their kernels then."""


def called(step: Callable[[], None]) -> Callable[[], None]:
    """The step itself: what a CPU runs."""
    return step


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The replay of the step's CUDA graph. The warm-up runs it for real: its tensors hold nothing of worth before."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
