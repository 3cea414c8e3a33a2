"""Eq. 1: the weighted average of the updates, as a sum that does not depend on its order.

Shapes: P parameters, B entries of buffers, T tail integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctrip.learn.params import pieces

if TYPE_CHECKING:
    import torch

# A weighted update p_i * delta_i is summed as the integer rint(p_i * delta_i * 2^40): integer addition is associative,
# so any grouping of sites over ranks gives the same bits (a float64 reduce was seen to differ between 2, 3 and 5
# ranks). The resolution 2^-40 = 9e-13 lies far below a float32 update's own rounding. As sum p_i = 1 and
# |delta| < 2^20, the sum stays below 2^60: no overflow, whatever the number of sites.
FIXED_POINT = 2.0**40
LARGEST_UPDATE = 2.0**20
# Buffers, such as the variance of incomes, may be larger: their whole numbers are summed as further integers.
LARGEST_BUFFER = 2.0**60


class PartialSum:
    """One rank's share of a round: sum p_i delta_i in fixed point and a tail of plain counters, in one int64 vector:
    [P + B] sums, [T] counters, [B] whole numbers that the sums of buffers lack.

    One vector travels per rank and round, whatever the number of sites, with up to `most_tail` counters of the caller's
    choice. The memory serves one round after another: new pages for 1.7 million parameters would cost more than adding
    a site's update.
    """

    def __init__(self, num_params: int, most_tail: int, device: torch.device, num_buffers: int = 0):
        import torch

        size = num_params + num_buffers
        self._memory = torch.empty(size + most_tail + num_buffers, dtype=torch.int64, device=device)
        self._sum = self._memory[:size]
        self._num_params = num_params
        self.begin(0)  # counters of sites beyond the largest cohort take no memory

    def begin(self, num_tail: int) -> None:
        """A new round: all zero, with so many counters."""
        size, num_buffers = len(self._sum), len(self._sum) - self._num_params
        self.vector = self._memory[: size + num_tail + num_buffers]
        _, self.tail, self._whole = self.vector.split([size, num_tail, num_buffers])
        self.vector.zero_()

    def add(self, delta: torch.Tensor, weight: float, magnitude: float | None = None) -> bool:
        """Add weight * delta; `delta` is float32 [P + B]. Returns False and adds nothing where training diverged: an
        entry is not finite or beyond its bound. `magnitude` is that of `delta`, computed here where it is None.

        The check comes before the cast: rint(nan) as an integer is silently a number.
        """
        magnitude = float(magnitude_of(delta, self._num_params)) if magnitude is None else magnitude
        if not magnitude < LARGEST_UPDATE:
            return False
        params, buffers = delta[: self._num_params], delta[self._num_params :]
        for part in pieces(params):
            self._sum[part] += params[part].double().mul_(weight * FIXED_POINT).round_().long()
        if len(buffers):
            weighted = buffers.double().mul_(weight * FIXED_POINT)
            whole = (weighted / FIXED_POINT).round()
            self._whole += whole.long()
            self._sum[self._num_params :] += (weighted - whole * FIXED_POINT).round_().long()
        return True


def largest(deltas: torch.Tensor) -> torch.Tensor:
    """Largest magnitude in every update, [..., P] -> [...]; NaN where there is one."""
    # aminmax over a dimension takes ten times as long
    return (-deltas.amin(-1)).maximum(deltas.amax(-1))


def magnitude_of(delta: torch.Tensor, num_params: int) -> torch.Tensor:
    """Largest magnitude in an update [P + B], of buffers as a share of what they may be; NaN where there is one."""
    magnitude = largest(delta[:num_params])
    if len(delta) > num_params:
        scaled = largest(delta[num_params:]) * (LARGEST_UPDATE / LARGEST_BUFFER)
        magnitude = magnitude.maximum(scaled)
    return magnitude


def origin(params: torch.Tensor, num_params: int) -> torch.Tensor:
    """The vector that updates are differences from [P + B]: the global model, with 0 for buffers that are not finite,
    such as a minimum before the first sample."""
    buffers = params[num_params:]
    if buffers.isfinite().all():
        return params
    return params.clone().index_fill_(0, (~params.isfinite()).nonzero()[:, 0], 0.0)


def mean_update(total: torch.Tensor, whole: torch.Tensor | None = None) -> torch.Tensor:
    """Averaged update, float64 [P + B], from the sums [P + B] and the whole numbers of buffers [B], none by default. It
    takes the place of the sums in memory, which are lost."""
    import torch

    update = total.view(torch.float64)
    for part in pieces(total):
        torch.div(total[part].double(), FIXED_POINT, out=update[part])
    if whole is not None and len(whole):
        update[-len(whole) :] += whole
    return update
