"""Speed and power of jobs."""

from dataclasses import astuple

import numpy as np
import pandas as pd
import pytest

from hpctrip.base.errors import InputError
from hpctrip.cluster.models import FITTED, Catalogue, FixedBatch, Models, Speeds, read_throughputs
from hpctrip.cluster.step_time import StepTime, fit_step_time
from hpctrip.sim.hardware.gpu_power import A40, A100, GPUS

FORM = StepTime(0.02, 0.001, 0.05, 0.002, 0.01, 0.001, 2.0)


def test_a_step_is_the_norm_of_computing_and_exchanging():
    assert FORM.seconds(16, 1, 1) == pytest.approx(0.036)
    assert FORM.seconds(16, 4, 1) == pytest.approx(np.hypot(0.036, 0.012))
    assert FORM.seconds(16, 16, 3) == pytest.approx(np.hypot(0.036, 0.054))

    slow = A100().slowdown(0.5)  # computing alone
    assert slow == pytest.approx(0.146 + 0.854 / 0.5)
    assert FORM.seconds(16, 4, 1, slow) == pytest.approx(np.hypot(0.036 * slow, 0.012))


@pytest.mark.parametrize("kind", sorted(GPUS))
def test_power_and_speed_rise_with_the_frequency(kind):
    gpu = GPUS[kind]()
    assert np.all(np.diff(gpu.full_power_w(gpu.frequencies)) > 0)
    assert np.all(np.diff(gpu.slowdown(gpu.frequencies)) < 0)
    assert np.all(gpu.power_w(gpu.frequencies, 0.0) >= gpu.idle_w)


def test_the_least_energy_of_an_a100_is_a_quarter_less_for_a_fifth_more_time():
    gpu, x = A100(), np.linspace(0.6, 1, 401)
    energy = gpu.full_power_w(x) * gpu.slowdown(x)
    best = energy.argmin()
    assert 0.74 < x[best] < 0.80
    assert 0.25 < 1 - energy[best] / energy[-1] < 0.31
    assert 1.18 < gpu.slowdown(x[best]) < 1.26


@pytest.mark.parametrize(
    ("kind", "model", "power", "time"),
    [
        ("a100", "gpt3-175b", 0.022, 0.028),
        ("a100", "bloom", 0.024, 0.038),
        ("a40", "gpt3-175b", 0.015, 0.017),
        ("a40", "bloom", 0.015, 0.019),
    ],
)
def test_the_curves_miss_the_measurements_by_what_their_docstring_says(kind, model, power, time, published):
    """Root mean square of the relative error over all clocks, time relative to that at the highest clock."""
    table = {"a100": "a100_sxm", "a40": "a40"}[kind]
    rows = pd.read_csv(published(f"../gpu_power/perseus/{model}+{table}_bf16.csv"))
    sums, gpu = rows.groupby("frequency")[["time", "energy"]].sum(), GPUS[kind]()
    x = np.minimum(sums.index / sums.index.max(), gpu.frequencies[-1])  # above its cap a GPU is no faster
    modelled_s = gpu.slowdown(x) / gpu.slowdown(x[-1])
    errors = (
        gpu.full_power_w(x) / (sums["energy"] / sums["time"]) - 1,
        modelled_s / (sums["time"] / sums["time"].iloc[-1]) - 1,
    )
    assert [np.sqrt(np.mean(error**2)) for error in errors] == pytest.approx([power, time], abs=0.0005)


def test_a_capped_gpu_reaches_no_frequency_above_its_cap():
    gpu = A40()
    assert gpu.full_power_w(gpu.frequencies[-1]) <= 300 < gpu.full_power_w(gpu.frequencies[-1] + 0.001)
    assert 0.8 < gpu.frequencies[-1] < 0.9
    with pytest.raises(ValueError, match="cap_w = 100 is below what the lowest frequency draws"):
        A100(cap_w=100.0)


def test_the_form_finds_its_own_parameters_again(tmp_path):
    path = tmp_path / "own.csv"
    gpus = [1, 2, 4, 8, 16, 32]
    rows = [
        ",".join([str(batch), *(f"{1 / FORM.seconds(batch / n, n, -(-n // 8)):.12g}" for n in gpus)])
        for batch in (64, 256)
    ]
    path.write_text("\n".join(["global_batch_size," + ",".join(map(str, gpus)), *rows]))
    measured = read_throughputs(path, 8)
    form = fit_step_time(measured)
    assert np.abs(form.ratios(measured) - 1).max() < 1e-4
    assert astuple(form) == pytest.approx(astuple(FORM), rel=0.02)


@pytest.mark.parametrize("model", sorted(FITTED))
def test_elasticflows_tables_are_fitted_to_a_few_per_cent(model, published):
    measured = read_throughputs(published(f"elasticflow/throughputs_A100/{model}.csv"), 8)
    fitted, ours = (np.abs(form.ratios(measured) - 1) for form in (fit_step_time(measured), FITTED[model][1]))
    assert 0.009 < fitted.mean() < 0.032 and fitted.max() < 0.12
    assert ours.mean() == pytest.approx(fitted.mean(), abs=2e-4)


def test_what_was_measured_holds_and_the_form_says_the_rest():
    measured = {1: 0.1, 4: 0.04}
    profile, fitted = FixedBatch("m", FORM, 64, 8, 8, measured), FixedBatch("m", FORM, 64, 8, 8)
    slowdown = np.array([1.0, 1.3])
    ratios = {n: profile.speed(n, 1, slowdown)[0] / fitted.speed(n, 1, slowdown)[0] for n in (1, 2, 4)}
    for gpus, step_s in measured.items():
        assert profile.speed(gpus, 1, slowdown)[0][0] == pytest.approx(1 / step_s)
        assert ratios[gpus][0] == pytest.approx(ratios[gpus][1])
    assert min(ratios[1][0], ratios[4][0]) <= ratios[2][0] <= max(ratios[1][0], ratios[4][0])


def test_a_job_on_more_nodes_than_it_needs_is_slower_and_draws_less():
    speeds = Speeds([FixedBatch("m", FORM, 64, 8, 8)], A100(), 8, 8)
    packed, spread = speeds.at(0, 4, 1), speeds.at(0, 4, 4)
    assert np.all(spread[0] < packed[0]) and np.all(spread[1] < packed[1])
    assert speeds.rate[0, 4] == pytest.approx(packed[0])
    assert speeds.rate[0, 0].sum() == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("global_batch_size,1,two\n64,1,2\n", "column 'two' is not a number of GPUs"),
        ("batch,1\n64,1\n", "has no column 'global_batch_size'"),
        ("global_batch_size,1\n64,-1\n", "line 2: 1 = '-1' is not a number of steps per second"),
        ("global_batch_size,1\n64,0\n", "holds no measurement"),
        ("global_batch_size,1\n0,1\n", "global_batch_size = '0' is not a batch size"),
        ("global_batch_size,1,2\n64,1,nan\n", "holds 1 measurements, the form has 7 parameters"),
    ],
)
def test_a_bad_table_is_one_line(text, message, tmp_path):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(InputError) as error:
        Catalogue(Models(tables=str(tmp_path)), 8).profile("m", 64)
    assert message in str(error.value) and len(str(error.value).splitlines()) == 1
