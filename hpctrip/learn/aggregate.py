"""Eq. 1: the weighted average of the updates, as a sum that does not depend on its order.

Shapes: P parameters, T tail integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# A weighted update p_i * delta_i is summed as the integer rint(p_i * delta_i * 2^40): integer addition is associative,
# so any grouping of sites over ranks gives the same bits (a float64 reduce was seen to differ between 2, 3 and 5
# ranks). The resolution 2^-40 = 9e-13 lies far below a float32 update's own rounding. As sum p_i = 1 and
# |delta| < 2^20, the sum stays below 2^60: no overflow, whatever the number of sites.
FIXED_POINT = 2.0**40
LARGEST_UPDATE = 2.0**20


class PartialSum:
    """One rank's share of a round: sum p_i delta_i in fixed point and a tail of plain counters, in one int64 vector.

    One vector travels per rank and round, whatever the number of sites. Up to `most_tail` counters of the caller's
    choice follow the P parameters. The memory serves one round after another: new pages for 1.7 million parameters
    would cost more than adding a site's update.
    """

    def __init__(self, num_params: int, most_tail: int, device: torch.device):
        import torch

        self._memory = torch.empty(num_params + most_tail, dtype=torch.int64, device=device)
        self._sum = self._memory[:num_params]
        self._scaled = torch.empty(num_params, dtype=torch.float64, device=device)
        self._integer = torch.empty(num_params, dtype=torch.int64, device=device)
        self.begin(0)  # counters of sites beyond the largest cohort take no memory

    def begin(self, num_tail: int) -> None:
        """A new round: all zero, with so many counters."""
        self.vector = self._memory[: len(self._sum) + num_tail]
        self.tail = self.vector[len(self._sum) :]
        self.vector.zero_()

    def add(self, delta: torch.Tensor, weight: float, magnitude: float | None = None) -> bool:
        """Add weight * delta; `delta` is float32 [P]. Returns False and adds nothing where training diverged: an entry
        is not finite or beyond LARGEST_UPDATE. `magnitude` is `largest(delta)`, computed here where it is None.

        The check comes before the cast: rint(nan) as an integer is silently a number.
        """
        magnitude = float(largest(delta)) if magnitude is None else magnitude
        if not magnitude < LARGEST_UPDATE:
            return False
        self._sum += self._integer.copy_(self._scaled.copy_(delta).mul_(weight * FIXED_POINT).round_())
        return True


def largest(deltas: torch.Tensor) -> torch.Tensor:
    """Largest magnitude in every update, [..., P] -> [...]; NaN where there is one."""
    # aminmax over a dimension takes ten times as long
    return (-deltas.amin(-1)).maximum(deltas.amax(-1))


def mean_update(total: torch.Tensor) -> torch.Tensor:
    """Averaged update, float64 [P], from the summed fixed-point vector [P]."""
    return total.double() / FIXED_POINT
