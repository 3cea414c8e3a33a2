"""How long one step of a training job takes, from the number of its GPUs, how they lie and how fast they are clocked.

The form is that of Pollux (Qiao et al., OSDI 2021) as AdaptDL fits it; the factor of the frequency is ours.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of data-parallel training, T = s Tc + (Tc^gamma + Tn^gamma)^(1/gamma), s accumulated batches.

    Tc = alpha_c + beta_c b computes a local batch of b samples. Tn exchanges gradients: 0 for one GPU,
    alpha_r + beta_r max(n - 2, 0) for n GPUs of one node, alpha_n + beta_n (N - 1) over N nodes. At the frequency x,
    a fraction of the highest, Tc is longer by a + (1 - a) / x, where a is the share of its time that memory decides.
    All arguments may be arrays that broadcast.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def compute_s(self, local_batch: np.ndarray | float, slowdown: np.ndarray | float = 1.0) -> np.ndarray:
        """Tc of a local batch; `slowdown`: how much longer computing takes than at the highest frequency."""
        return (self.alpha_c + self.beta_c * np.asarray(local_batch, float)) * slowdown

    def network_s(self, gpus: np.ndarray | int, nodes: np.ndarray | int) -> np.ndarray:
        """Tn of so many GPUs on so many nodes."""
        gpus, nodes = np.asarray(gpus, float), np.asarray(nodes, float)
        inside = self.alpha_r + self.beta_r * np.maximum(gpus - 2, 0)
        across = self.alpha_n + self.beta_n * (nodes - 1)
        return np.where(gpus <= 1, 0.0, np.where(nodes <= 1, inside, across))

    def seconds(
        self,
        local_batch: np.ndarray | float,
        gpus: np.ndarray | int,
        nodes: np.ndarray | int,
        slowdown: np.ndarray | float = 1.0,
        accumulated: np.ndarray | int = 0,
    ) -> np.ndarray:
        """T of one step; `accumulated`: local batches that are computed before the last, which is exchanged."""
        compute_s = self.compute_s(local_batch, slowdown)
        # scaled by the larger of the two, so that no power of them under- or overflows
        network_s = self.network_s(gpus, nodes)
        largest = np.maximum(compute_s, network_s)
        ratio = np.minimum(compute_s, network_s) / largest
        return accumulated * compute_s + largest * (1 + ratio**self.gamma) ** (1 / self.gamma)

    @property
    def parameters(self) -> tuple[float, ...]:
        """The seven numbers in their order."""
        return astuple(self)
