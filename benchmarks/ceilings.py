"""What a processor or a GPU can do at best: a large matrix product, a copy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def best_rate(work: Callable[[], object], amount: float, device: str, repeats: int = 5) -> float:
    """The largest amount per second of some repetitions, after one that warms up."""
    work()
    best_s = float("inf")
    for _ in range(repeats):
        if device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        best_s = min(best_s, time.perf_counter() - began)
    return amount / best_s


def gemm_flops(device: str = "cpu", n: int = 1536, precision: str = "float32") -> float:
    """Floating-point operations a second in a matrix product, one thread on a CPU. TF32 is a GPU's."""
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
    return best_rate(lambda: a @ b, 2.0 * n**3, device)


def copy_bytes(device: str = "cpu", megabytes: int = 256) -> float:
    """Bytes a second read and written by a copy that no cache holds."""
    torch.set_num_threads(1)
    a = torch.zeros(megabytes << 18, device=device)
    b = torch.empty_like(a)
    return best_rate(lambda: b.copy_(a), 2.0 * a.nbytes, device)
