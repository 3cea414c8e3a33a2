"""From power fraction to throughput fraction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.hardware.base import MEASURED_CURVES, Capped, Gpus, Linear

POWER = np.linspace(0, 1, 1001)


@pytest.mark.parametrize("kind", sorted(THROUGHPUT_MODELS))
def test_every_model_maps_power_to_throughput_without_ever_falling(kind):
    throughput = THROUGHPUT_MODELS[kind]().fraction(POWER)
    assert throughput.shape == POWER.shape and throughput.dtype == np.float64
    assert throughput[0] == 0 and throughput[-1] == 1
    assert (np.diff(throughput) >= 0).all()


def test_linear_throughput_is_the_power_fraction():
    assert Linear().fraction(np.array([0.1, 0.5, 1])).tolist() == [0.1, 0.5, 1]
    assert THROUGHPUT_MODELS.default == "linear"


def test_gpus_run_whole_or_not_at_all():
    gpus = Gpus(num_gpus=4, gpu_power_w=100.0, pue=1.25)  # 500 W of site power run all four
    assert gpus.fraction(np.array([0, 0.24, 0.25, 0.74, 0.75, 1])).tolist() == [0, 0, 0.25, 0.5, 0.75, 1]


@given(st.integers(1, 5000), st.floats(1, 5000), st.floats(1, 3), st.data())
def test_power_for_exactly_n_gpus_runs_n_gpus(num_gpus, gpu_power_w, pue, data):
    n = data.draw(st.integers(0, num_gpus))
    gpus = Gpus(num_gpus=num_gpus, gpu_power_w=gpu_power_w, pue=pue)
    assert gpus.fraction(np.array([n / num_gpus, 1.0])).tolist() == [n / num_gpus, 1.0]


def test_a_site_with_more_power_than_its_gpus_need_keeps_them_all_for_longer():
    gpus = Gpus(num_gpus=10, gpu_power_w="1 kW", pue=1.0, site_power_w="20 kW")
    assert gpus.fraction(np.array([0.25, 0.5, 1])).tolist() == [0.5, 1, 1]


def test_a_site_with_less_power_than_its_gpus_need_never_runs_them_all():
    gpus = Gpus(num_gpus=10, gpu_power_w=1000.0, pue=1.0, site_power_w=5500.0)
    assert gpus.fraction(np.array([1.0])).tolist() == [0.5]


def test_a_site_that_cannot_power_one_gpu_is_refused():
    with pytest.raises(ValidationError, match="does not power one GPU"):
        Gpus(gpu_power_w=400.0, pue=1.1, site_power_w=430.0)


def test_the_measured_v100_keeps_most_of_its_throughput_at_half_power():
    """100 W and 125 W of 250 W: epochs of 6781.17 s and 5064.97 s instead of 3514.99 s."""
    throughput = Capped(gpu="V100").fraction(np.array([0.2, 0.4, 0.5, 1]))
    assert throughput == pytest.approx([0.51835 / 2, 0.51835, 0.69398, 1], abs=1e-5)


@pytest.mark.parametrize("gpu", sorted(MEASURED_CURVES))
def test_a_measured_curve_passes_the_checks_of_a_users_curve(gpu):
    points = [list(point) for point in MEASURED_CURVES[gpu]]
    own = Capped(gpu="copy", curve=points)
    assert np.array_equal(own.fraction(POWER), Capped(gpu=gpu).fraction(POWER))


def test_ones_own_curve_is_linear_between_its_points_and_down_to_zero():
    capped = Capped(gpu="mine", curve=[[0.5, 0.8], [1, 1]])
    assert capped.fraction(np.array([0, 0.25, 0.5, 0.75, 1])) == pytest.approx([0, 0.4, 0.8, 0.9, 1])


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"gpu": "V1000"}, "did you mean 'V100'"),
        ({"gpu": "V100", "curve": [[1, 1]]}, "name your own"),
        ({"gpu": "mine", "curve": []}, "must end at"),
        ({"gpu": "mine", "curve": [[0.5, 0.8]]}, "must end at"),
        ({"gpu": "mine", "curve": [[0.5, 0.8], [0.5, 0.9], [1, 1]]}, "must rise"),
        ({"gpu": "mine", "curve": [[0.5, 0.8], [0.7, 0.7], [1, 1]]}, "must rise"),
        ({"gpu": "mine", "curve": [[0.5, 1.2], [1, 1]]}, "less than or equal to 1"),
        ({"gpu": "mine", "curve": [[0.5], [1, 1]]}, "at least 2 items"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(keys, problem):
    with pytest.raises(ValidationError, match=problem):
        Capped(**keys)
