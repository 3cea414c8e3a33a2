"""Fits the form of a step's time to a table of measured throughputs, and says how well it does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.cluster.step_time import StepTime
from hpctrip.cluster.tables import Measured

_STEPS = 60
"""Of each start; the errors stop falling after about twenty."""
_DELTA = 1e-6
_FLOOR_S = 1e-9
"""No parameter in seconds is fitted below this."""


@dataclass(frozen=True)
class Fit:
    """Parameters and what they leave unexplained."""

    step_time: StepTime
    mean_error: float
    """Mean over the measurements of |fitted - measured| / measured."""
    max_error: float


def fit(measured: Measured) -> Fit:
    """The parameters with the least mean square of log(fitted / measured).

    Levenberg's and Marquardt's method from several starts; the parameters in seconds stay positive and gamma within
    1 to 10 by a change of variables. InputError where there are fewer measurements than parameters.
    """
    if len(measured.step_s) < len(StepTime.__annotations__):
        raise InputError(
            measured.place,
            f"holds {len(measured.step_s)} measurements, the form has {len(StepTime.__annotations__)} parameters",
            "give more batch sizes or numbers of GPUs",
        )
    starts = (_start(measured, share, gamma) for share in (0.05, 0.5) for gamma in (1.2, 2.0, 4.0))
    found = min((_descended(measured, start) for start in starts), key=lambda pair: pair[0])[1]
    step_time = _parameters(found)
    error = np.abs(_predicted(measured, step_time) / measured.step_s - 1)
    return Fit(step_time, float(error.mean()), float(error.max()))


def _predicted(measured: Measured, step_time: StepTime) -> np.ndarray:
    return step_time.seconds(measured.batch / measured.gpus, measured.gpus, measured.nodes)


def _parameters(free: np.ndarray) -> StepTime:
    """Of seven free numbers: exponentials, and a logistic curve from 1 to 10 for gamma."""
    seconds = (np.exp(free[:6]) + _FLOOR_S).tolist()
    return StepTime(*seconds, gamma=float(1 + 9 / (1 + np.exp(-free[6]))))


def _start(measured: Measured, constant: float, gamma: float) -> np.ndarray:
    """Computing from the measurements of the fewest GPUs, with this share of it constant; a fifth of it for
    the network."""
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


def _descended(measured: Measured, free: np.ndarray) -> tuple[float, np.ndarray]:
    """(sum of squares, free numbers) at the end of the descent."""

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.log(_predicted(measured, _parameters(at)) / measured.step_s)

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
