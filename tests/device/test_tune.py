"""`tune`: which settings are tried and chosen, and which files are written. All but the last tests use fake costs."""

import itertools
import math
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.device.meter import Meter
from hpctrip.record.formats import csv_bytes
from hpctrip.runner.experiment import read_input
from hpctrip.tune import report, tuner
from hpctrip.tune.search import better_half, golden_section, pareto_front, successive_halving, zeus_cost
from hpctrip.tune.spaces import CAP, CLOCK, candidates, default_spaces, read_space
from hpctrip.tune.trial import Trial, TrialRunner
from hpctrip.tune.tuner import TuneResult

LINES = ("sites.num_sites=4", "workload.train_samples=80", "workload.test_samples=40")


def trial(sample_s, sample_j=math.nan, accuracy=0.5, failure="", **keys):
    return Trial(keys, 3, sample_s, 0.01, sample_j, accuracy, failure)


seconds, joules = attrgetter("sample_s"), attrgetter("sample_j")


@pytest.mark.parametrize("lowest", [0.0, 3.1, 7.77, 10.0])
def test_golden_section_finds_the_minimum_with_few_trials(lowest):
    calls = {}

    def at(x):
        return calls.setdefault(x, replace(trial((x - lowest) ** 2), error=0.0))

    low, high = golden_section(at, seconds, 0.0, 10.0, width=0.1)
    assert low - 1e-9 <= lowest <= high + 1e-9 and high - low <= 0.1 and len(calls) <= 12
    assert all(0 <= x <= 10 for x in calls)


def test_noise_ends_the_golden_section_search_early():
    calls = {}

    def at(x):
        return calls.setdefault(x, replace(trial(10 + abs(x - 2) / 10), error=0.02))

    low, high = golden_section(at, seconds, 0.0, 10.0, width=0.5)
    assert len(calls) <= 6 and at((low + high) / 2).sample_s < 10 * (1 + 2 * 0.02 * math.sqrt(2))


def test_halving_doubles_the_rounds_of_the_remaining_candidates_and_keeps_the_baseline():
    calls = []

    def run(keys, rounds):
        calls.append((keys.get("x", 0), rounds))
        return trial(10.0 - keys.get("x", 0), **keys)  # the original input is the slowest

    final, out = successive_halving([{}, *({"x": x} for x in range(1, 9))], run, [seconds], 2, 8)
    assert [keys for keys, rounds in calls if rounds == 2] == list(range(9))
    assert [keys for keys, rounds in calls if rounds == 4] == [0, 5, 6, 7, 8]
    assert [keys for keys, rounds in calls if rounds == 8] == [0, 7, 8]
    assert [t.keys.get("x", 0) for t in final] == [0, 7, 8]
    assert sorted(t.keys["x"] for t in out) == [1, 2, 3, 4, 5, 6]


def test_the_better_half_takes_the_best_by_each_measured_cost_in_turn_and_no_failed_trial():
    fast, frugal, slow = trial(1, 9, a=1), trial(5, 2, a=2), trial(6, 8, a=3)
    broken = trial(0, 0, failure="memory is full", a=4)
    first = trial(9, 9)
    assert better_half([first, slow, broken, frugal, fast], [seconds, joules]) == [first, frugal, fast]
    slow, fast, first = trial(6, a=1), trial(1, a=2), trial(9)
    assert better_half([first, slow, fast], [seconds, joules]) == [first, fast]


def test_the_pareto_front_has_the_trials_that_no_other_beats_in_both_costs():
    trials = [trial(1, 9), trial(2, 5), trial(3, 6), trial(4, 1), trial(0.5)]
    assert [(t.sample_s, t.sample_j) for t in pareto_front(trials)] == [(1, 9), (2, 5), (4, 1)]


def test_zeus_cost_is_time_for_eta_0_and_energy_for_eta_1():
    one = trial(2.0, 30.0)
    assert [zeus_cost(eta, 100.0)(one) for eta in (0, 0.5, 1)] == [200, 115, 30]


def test_candidates_are_all_combinations_without_duplicates_and_their_number_is_bounded():
    spaces = [read_space('engine.precision=["float32","bfloat16"]'), [{}, {"train.batch_size": 40}]]
    assert len(candidates(spaces)) == 5 and candidates(spaces)[0] == {}
    with pytest.raises(InputError, match="10,000 combinations, the most is 128"):
        candidates([[{"a": i} for i in range(100)]] * 2)


@pytest.mark.parametrize(
    ("line", "message"), [("a.b=3", "not a list"), ("a.b=[", "not valid TOML"), ("a.b=[]", "not a list")]
)
def test_a_search_line_without_a_list_of_values_is_refused(line, message):
    with pytest.raises(InputError, match=message):
        read_space(line)


@pytest.fixture
def runner():
    return TrialRunner((), LINES, (), accuracy_round=1, error=1.0, max_rounds=3)


class FakeRunner:
    """A runner whose trials cost what `cost(keys)` returns."""

    gpus, accuracy_round = ["GPU-aaaa-0"], 4

    def __init__(self, cost):
        self.cost, self.meter = cost, Meter(description="made up")

    def run(self, keys, rounds):
        return replace(self.cost(keys), keys=keys, num_rounds=rounds)


def tuned(fake, accuracy_bound=0.01, eta=1.0, choices=({},), knobs=True):
    """The result of tuning with a fake runner, or one that costs what a function says."""
    fake = fake if isinstance(fake, FakeRunner) else FakeRunner(fake)
    return tuner.tune(fake, accuracy_bound, eta, [choices], knobs, report=print)


def test_a_setting_that_loses_too_much_accuracy_is_measured_but_not_chosen():
    def cost(keys):
        wide = keys.get("train.batch_size") == 80
        return trial(0.5 if wide else 1.0, 3.0, accuracy=0.4 if wide else 0.5)

    choices = [{}, {"train.batch_size": 80}]
    strict, lax = (tuned(cost, bound, choices=choices, knobs=False) for bound in (0.05, 0.2))
    assert strict.best["time"].keys == {} and lax.best["time"].keys == {"train.batch_size": 80}
    assert len(strict.trials) == 2


def test_an_input_that_cannot_be_trained_is_an_error():
    with pytest.raises(HpctripError, match="cannot be trained here: memory is full"):
        tuned(lambda keys: trial(1, 1, failure="memory is full"))


def measured(keys):
    """A GPU that idles at 60 W, with throughput (P - 60 W)^0.6: the energy per sample is least at P = 150 W."""
    watts = keys.get(CAP, 60 + keys.get(CLOCK, 1500) * 340 / 1500)
    sample_s = 1 / (watts - 60) ** 0.6  # 0.6 P = P - 60
    return replace(trial(sample_s, watts * sample_s), error=0.0)


def test_power_caps_and_clocks_are_searched_around_the_best_and_make_a_curve(fake_nvml, tmp_path):
    fake_nvml()  # which takes 100 to 400 W and 300 to 1500 MHz
    result = tuned(measured)
    best = result.best["joules"]
    assert best.watts == pytest.approx(150, abs=15) and len(result.trials) <= 2 * 16
    for key in (CAP, CLOCK):
        assert min((t for t in result.trials if key in t.keys), key=joules).watts == pytest.approx(
            150, abs=15
        )
    curve = report.curve(result.curve)
    assert list(curve) == ["watts", "samples_per_second", "clock_mhz", "cap_watts"]
    assert curve["watts"].is_monotonic_increasing and {100, 200, 300, 400} <= {*curve["cap_watts"]}
    assert {300, 705, 1095, 1500} <= {*curve["clock_mhz"].dropna()} <= {*range(300, 1501, 15)}
    files = report.write(result, tmp_path, "a fake GPU", overwrite=False)
    assert {path.name for path in files} == {
        *("trials.csv", "trials.png", "curve.csv"),
        *("best_time.toml", "best_joules.toml", "best_eta.toml"),
    }
    knobs = read_input([tmp_path / "best_joules.toml"]).experiment.knobs
    assert (knobs.power_cap_w, knobs.clock_mhz) == (best.keys.get(CAP), best.keys.get(CLOCK))
    lines = ["throughput.kind='curve'", f"throughput.path='{tmp_path / 'curve.csv'}'"]
    watts, rate = read_input([], lines).experiment.throughput.points()
    assert watts.max() == pytest.approx(400)
    assert rate == pytest.approx((watts - 60) ** 0.6)


@pytest.mark.parametrize("seed", range(5))
def test_noise_costs_little_energy_and_no_more_trials(fake_nvml, seed):
    fake_nvml()
    draw = np.random.default_rng(seed)

    def noisy(keys):
        """Costs with uniform noise of 4 % and that error."""
        true = measured(keys)
        return replace(true, sample_j=true.sample_j * (1 + 0.04 * draw.uniform(-1, 1)), error=0.04)

    result = tuned(noisy)
    assert measured(result.best["joules"].keys).sample_j <= 1.08 * measured({CAP: 150.0}).sample_j
    assert len(result.trials) <= 2 * 10


def test_a_machine_whose_speed_drifts_is_reported():
    """Each trial takes twice as long as the one before."""
    number, choices = itertools.count(), [{}, {"train.batch_size": 40}]
    drifting = tuned(lambda keys: trial(2.0 ** next(number)), choices=choices, knobs=False)
    assert "at the end the original input takes 4.00 times as long" in drifting.notes[-1]
    assert tuned(lambda keys: trial(1.0), choices=choices, knobs=False).notes == ["energy: made up"]


def test_without_energy_counters_time_alone_decides_and_no_power_cap_is_tried(fake_nvml):
    fake_nvml()
    result = tuned(lambda keys: trial(1.0))
    assert len(result.trials) == 1 and list(result.best) == ["time"] and result.curve == []


def test_a_gpu_whose_cap_may_not_be_set_is_tuned_by_its_clock(fake_nvml):
    fake_nvml()

    def refused(keys):
        return trial(1, 1, failure="Insufficient Permissions") if CAP in keys else measured(keys)

    result = tuned(refused)
    assert result.notes[1:] == ["not tried: Insufficient Permissions"]
    assert {key for t in result.curve for key in t.keys} == {CLOCK}


def test_a_gpu_that_takes_no_setting_is_tuned_without(fake_nvml):
    fake_nvml()
    fake = FakeRunner(measured)
    fake.gpus = ["GPU-cccc"]
    result = tuned(fake)
    assert result.notes[1:] == ["not tried: GPU-cccc: Not Found"] * 2 and result.curve == []


def test_the_lines_of_the_figure_name_the_chosen_trials(hpctrip, tmp_path):
    fast, frugal = trial(0.5, 2.0, a=1), trial(1.0, 1.0, a=2)
    broken = trial(math.nan, failure="memory is full", a=4)
    result = TuneResult([fast, frugal], [broken, trial(9, 9, a=3)], {"time": fast, "joules": frugal}, [])
    (tmp_path / "trials.csv").write_bytes(csv_bytes(report.table(result)))
    ended = hpctrip("plot", "tuning", tmp_path / "trials.csv", "--out", tmp_path / "front.png")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines[1] == "1 a = 1 2.0 0.5 time" and lines[3] == "4 a = 3 0.1 0.1111"


def test_a_real_trial_succeeds_and_an_impossible_one_has_a_failure(runner):
    # the fewest rounds are precise enough, however noisy this machine is
    runner.error = math.inf
    good, bad = runner.run({"train.batch_size": 5}, 2), runner.run({"train.lr": -1}, 2)
    assert good.num_rounds == 2 and good.sample_s > 0 and good.accuracy >= 0 and not good.failure
    assert "train.lr" in bad.failure and math.isnan(bad.sample_s)
    assert runner.run({"knobs.power_cap_w": 100.0}, 1).failure == "no GPU trains here"


def test_a_counter_that_does_not_advance_yields_no_energy(runner):
    """As on many virtual machines."""
    still = SimpleNamespace(place="still", most_w=1.0, range_uj=0, read_uj=lambda: 7)
    runner.meter = Meter([still])
    stuck = runner.run({}, 1)
    assert math.isnan(stuck.sample_j) and stuck.sample_s > 0 and stuck.num_rounds == 3


def test_an_early_trial_ends_after_few_rounds_and_the_last_one_at_the_wanted_error(monkeypatch):
    """Rounds last 1 s and 2 s in turn, so an error of 25 % takes about ten rounds."""
    columns = {"num_samples": 1, "train_wall_j": math.nan, "accuracy": 0.5}
    rows = [SimpleNamespace(train_wall_s=1.0 + number % 2, **columns) for number in range(1000)]
    monkeypatch.setattr(TrialRunner, "_rounds", lambda self, keys: (row for row in rows))
    runner = TrialRunner((), LINES, (), accuracy_round=20, error=0.25, max_rounds=200)
    assert runner.run({}, 2).num_rounds == 8
    assert runner.run({}, 20).num_rounds == 20 and runner.run({}, 20).error < 0.25
    strict = TrialRunner((), LINES, (), accuracy_round=20, error=0.001, max_rounds=200)
    assert strict.run({}, 20).num_rounds == 200


def test_an_overlay_states_its_gain_with_the_error():
    fast, before = trial(0.5, 2.0, a=1), trial(1.0, 8.0)
    text = report.overlay("time", replace(fast, error=0.03), replace(before, error=0.04), "a device")
    assert "2.0 samples/s, 2.00 times those of the original input (+-5%)" in text and "4.00 times" in text
    assert "1.0 samples/s, by the original input" in report.overlay("time", before, before, "a device")


def test_the_default_spaces_of_a_cpu_are_valid_settings(runner):
    for keys in candidates(default_spaces(runner)):
        runner.experiment(keys)


def test_the_command_writes_its_files_once(hpctrip, tmp_path):
    lines = [part for line in (*LINES, "meter.assumed_w=40") for part in ("-o", line)]
    out = tmp_path / "tuned"
    over = ("--over", "train.batch_size=[5]", "--rounds", 1, "--error", 1, "--accuracy-bound", 1)
    ended = hpctrip("tune", *lines, *over, "--out", out)
    assert ended.code == 0, ended.err
    table = pd.read_csv(out / "trials.csv")
    assert len(table) == 2 and (out / "trials.png").exists()
    assert (table["watts"] > 39.9).all()  # the meter's phase holds the time that is taken, and a little more
    hpctrip("tune", *lines, *over, "--out", out).check_refused(
        ["trials.csv", "exists already", "--overwrite"]
    )


@pytest.mark.parametrize("option", [("--eta", "nan"), ("--error", 0), ("--rounds", 0), ("--over", "seed")])
def test_a_bad_option_is_refused_before_anything_is_measured(hpctrip, tmp_path, option):
    ended = hpctrip("tune", *option, "--out", tmp_path / "tuned")
    assert ended.code == 2 and option[0] in ended.err and ended.out == ""
