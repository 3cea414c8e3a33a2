"""Time of one training step as a function of batch size, GPUs, nodes and frequency, and its fit to measurements.

The form is that of Pollux (Qiao et al., OSDI 2021) as fitted by AdaptDL; the frequency factor is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hpctrip.base.errors import InputError

_STEPS = 60
"""Iterations from each starting point; the errors stop falling after about twenty."""
_DELTA = 1e-6
"""Step of the finite differences."""
_FLOOR_S = 1e-9
"""Lower bound of every parameter in seconds."""


@dataclass(frozen=True)
class StepTime:
    """Time in seconds of a data-parallel training step, T = (Tc^gamma + Tn^gamma)^(1/gamma).

    Tc = alpha_c + beta_c b is the computing time of a local batch of b samples.
    Tn is the time of the gradient exchange: 0 for one GPU, alpha_r + beta_r max(n - 2, 0) for n GPUs of one node,
    alpha_n + beta_n (N - 1) for N nodes. At frequency x, a fraction of the highest, Tc is multiplied by
    a + (1 - a) / x, where a is the memory-bound share of the time. All arguments may be arrays that broadcast.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def compute_s(self, local_batch: np.ndarray | float, slowdown: np.ndarray | float = 1.0) -> np.ndarray:
        """Computing time Tc of a local batch; `slowdown`: its factor relative to the highest frequency."""
        return (self.alpha_c + self.beta_c * np.asarray(local_batch, float)) * slowdown

    def network_s(self, gpus: np.ndarray | int, nodes: np.ndarray | int) -> np.ndarray:
        """Gradient exchange time Tn on `gpus` GPUs of `nodes` nodes."""
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
    ) -> np.ndarray:
        """Time T of one step."""
        compute_s = self.compute_s(local_batch, slowdown)
        # scaled by the larger of the two, so that their powers neither underflow nor overflow
        network_s = self.network_s(gpus, nodes)
        largest = np.maximum(compute_s, network_s)
        ratio = np.minimum(compute_s, network_s) / largest
        return largest * (1 + ratio**self.gamma) ** (1 / self.gamma)

    def ratios(self, measured: Measured) -> np.ndarray:
        """[M] ratios of the time by this form to the measured time."""
        seconds = self.seconds(measured.batch / measured.gpus, measured.gpus, measured.nodes)
        return seconds / measured.step_s


@dataclass(frozen=True)
class Measured:
    """M measured step times of one model."""

    place: str
    """Name of the file in error messages."""
    batch: np.ndarray
    """[M] global batch sizes in samples."""
    gpus: np.ndarray
    """[M] numbers of GPUs."""
    nodes: np.ndarray
    """[M] numbers of nodes."""
    step_s: np.ndarray
    """[M] times of a step in seconds."""

    def of_batch(self, batch: int) -> dict[int, float]:
        """{GPUs: seconds of a step} with this global batch, by rising number of GPUs."""
        here = self.batch == batch
        return dict(sorted(zip(self.gpus[here].tolist(), self.step_s[here].tolist(), strict=True)))


def fit_step_time(measured: Measured) -> StepTime:
    """Fit the parameters that minimise the mean square of log(fitted / measured).

    The Levenberg-Marquardt method runs from several starting points. A change of variables keeps the parameters in
    seconds positive and gamma between 1 and 10. Raises InputError if there are fewer measurements than parameters.
    """
    if len(measured.step_s) < len(StepTime.__annotations__):
        problem = f"holds {len(measured.step_s)} measurements, the form has {len(StepTime.__annotations__)} parameters"
        raise InputError(measured.place, problem, "give more batch sizes or numbers of GPUs")
    columns = (measured.batch, measured.gpus, measured.nodes, measured.step_s)
    return _fit(*(tuple(column.tolist()) for column in columns))


@lru_cache(maxsize=64)
def _fit(*columns: tuple[float, ...]) -> StepTime:
    """The fit to these columns of `Measured`. Cached, as a study simulates the same models many times."""
    measured = Measured("", *map(np.array, columns))
    starts = (_start(measured, share, gamma) for share in (0.05, 0.5) for gamma in (1.2, 2.0, 4.0))
    return _parameters(min((_minimise(measured, start) for start in starts), key=lambda pair: pair[0])[1])


def _parameters(free: np.ndarray) -> StepTime:
    """Map seven unbounded variables to parameters: by exponentials, and for gamma by a logistic curve from 1 to 10."""
    seconds = (np.exp(free[:6]) + _FLOOR_S).tolist()
    return StepTime(*seconds, gamma=float(1 + 9 / (1 + np.exp(-free[6]))))


def _start(measured: Measured, constant: float, gamma: float) -> np.ndarray:
    """Starting point in the unbounded variables.

    The computing time is the median measurement on the fewest GPUs, of which the share `constant` does not depend on
    the batch; the network time is a fifth of it.
    """
    local = measured.batch / measured.gpus
    few = measured.gpus == measured.gpus.min()
    compute_s = float(np.median(measured.step_s[few]))
    network_s = 0.2 * compute_s
    seconds = [
        constant * compute_s,
        (1 - constant) * compute_s / float(np.median(local[few])),
        network_s,
        0.03 * network_s,
        network_s,
        0.1 * network_s,
    ]
    return np.append(np.log(seconds), np.log((gamma - 1) / (10 - gamma)))


def _minimise(measured: Measured, free: np.ndarray) -> tuple[float, np.ndarray]:
    """Minimise the sum of squares from a starting point; returns (sum of squares, unbounded variables)."""

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.log(_parameters(at).ratios(measured))

    damping, here = 1e-2, residuals(free)
    for _ in range(_STEPS):
        slopes = np.stack(
            [(residuals(free + _DELTA * unit) - here) / _DELTA for unit in np.eye(len(free))], axis=1
        )
        square = slopes.T @ slopes
        damped = square + damping * (np.diag(np.diag(square)) + 1e-12 * np.eye(len(free)))
        tried = np.clip(free - np.linalg.lstsq(damped, slopes.T @ here, rcond=None)[0], -30, 30)
        there = residuals(tried)
        if there @ there < here @ here:
            free, here, damping = tried, there, max(damping / 4, 1e-9)
        else:
            damping = min(damping * 4, 1e9)
    return float(here @ here), free
