"""What a processor or a GPU can do at best: a large matrix product, a copy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

Clock = Callable[[], float]


def best_rate(
    work: Callable[[], object],
    amount: float,
    device: str,
    repeats: int = 5,
    clock: Clock = time.perf_counter,
) -> float:
    """The largest amount per second of `clock` of some repetitions, after one that warms up."""
    work()
    best_s = float("inf")
    for _ in range(repeats):
        if device != "cpu":
            torch.cuda.synchronize()
        began = clock()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        best_s = min(best_s, clock() - began)
    return amount / best_s


def gemm_flops(device: str = "cpu", n: int = 1536, precision: str = "float32") -> float:
    """Floating-point operations a second in a matrix product. TF32 is a GPU's.

    On a CPU a second is one of CPU time of one thread, as in engines.py, and the product that of the faster library:
    the one behind `a @ b` (MKL), or oneDNN's, a convolution of 1x1, which is twice as fast as MKL's on AMD.
    """
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
    if device != "cpu":
        return best_rate(lambda: a @ b, 2.0 * n**3, device)
    image, kernel = (
        torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
        for x in (a.t().reshape(1, n, n, 1), b.t().reshape(n, n, 1, 1))
    )
    products = (lambda: a @ b), (lambda: F.conv2d(image, kernel))
    return max(best_rate(product, 2.0 * n**3, device, clock=time.process_time) for product in products)


def copy_bytes(device: str = "cpu", megabytes: int = 256) -> float:
    """Bytes a second read and written by a copy that no cache holds."""
    torch.set_num_threads(1)
    a = torch.zeros(megabytes << 18, device=device)
    b = torch.empty_like(a)
    return best_rate(lambda: b.copy_(a), 2.0 * a.nbytes, device)
