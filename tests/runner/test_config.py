"""The input of an experiment: what its tables mean together, and what is stored repeats the run."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hpctrip.base.errors import InputError
from hpctrip.cli.keys_reference import described_fields
from hpctrip.config.identity import neutral_keys
from hpctrip.runner.experiment import Experiment, experiment_of, read_input
from hpctrip.sim.policies import POLICIES

ROOT = Path(__file__).parents[2]


def test_the_sequential_engine_may_be_asked_for_by_its_old_name(files):
    experiment = read_input(files('[engine]\nname = "loop"\n')).experiment
    assert experiment.engine.name == "sequential"
    # as in older results files
    assert experiment_of({"engine": {"name": "loop"}}).engine == experiment.engine


def test_without_a_file_the_embedded_scenario_is_used():
    assert read_input().experiment.name == "demo"
    assert read_input([], ["seed=7"]).experiment.sites.num_sites == 40


def test_an_empty_file_is_all_defaults(files):
    experiment = read_input(files("")).experiment
    assert experiment == Experiment().resolve()
    assert (experiment.policy.kind, experiment.power.kind, len(experiment.sites.distances_m(0))) == (
        "powertrip",
        "uniform",
        100,
    )


def test_units_reach_the_components_as_si(files):
    network = read_input(
        files('network = {update_bytes = "2 GB", near_distance_m = "10 mi"}\n')
    ).experiment.network
    assert network.update_bytes == 2e9 and network.near_distance_m == pytest.approx(16093.44)


@pytest.mark.parametrize("path", sorted((ROOT / "inputs").glob("*.toml")), ids=lambda path: path.stem)
def test_every_scenario_in_inputs_is_valid_and_named_like_its_file(path):
    experiment = read_input([str(path)]).experiment
    assert experiment.name == path.stem.replace("_", "-")
    assert experiment.num_sites() >= 1


def test_the_stored_input_repeats_the_run(trained, hpctrip, tmp_path):
    run = trained("seed=3", "policy.kind=random", "policy.k=3", "partition.kind=iid")
    stored, again = tmp_path / "stored.toml", tmp_path / "again.h5"
    stored.write_text(run.input_toml)
    ended = hpctrip("run", stored, "--out", again)
    assert ended.code == 0, ended.err
    assert f"model digest {run.meta['params_digest']}" in ended.out
    assert run.input["policy"] == {"kind": "random", "k": 3} and run.input["seed"] == 3


def test_what_check_prints_is_an_input_that_means_the_same(hpctrip, tiny, tmp_path):
    printed = hpctrip("check", tiny, "-o", "policy.kind=static", "-o", "policy.k=4")
    assert printed.code == 0, printed.err
    everything = tmp_path / "everything.toml"
    everything.write_text(printed.out)
    assert tomllib.loads(printed.out)["policy"]["k"] == 4
    run_input = read_input([str(tiny)], ["policy.kind=static", "policy.k=4"])
    assert read_input([str(everything)]).experiment == run_input.experiment


def test_centralized_is_a_world_of_its_own(tiny):
    run_input = read_input(
        [str(tiny)], ["policy.kind=centralized", "policy.power_fraction=0.5", "compression.kind=top-k"]
    )
    e = run_input.experiment
    assert e.sites.distances_m(e.seed).tolist() == [0.0]
    assert e.power.kind == "constant" and e.power.fraction == 0.5
    assert e.compression.kind == "none"
    assert e.network.update_bytes == 0 and e.train.local_epochs == 0.01
    assert run_input.tables["sites"] == {"num_sites": 10}  # stored as it was given


def test_centralized_trains_one_site_on_all_the_data(trained):
    run = trained("policy.kind=centralized", "policy.rounds_per_epoch=4")
    assert run.sites["num_samples"].tolist() == [400] and run.rounds["num_samples"].tolist() == [100] * 3
    assert run.cohorts["comm_s"].tolist() == [0.0] * 3
    # 100 samples x 0.02 s at a quarter of the power
    assert run.rounds["makespan_s"].tolist() == pytest.approx([8.0] * 3)


NEAREST = '''
from __future__ import annotations

from pydantic import Field

from hpctrip.base.units import Metres
from hpctrip.sim.policies import POLICIES, Decision, Policy


@POLICIES.add
class Nearest(Policy):
    """The k nearest sites."""

    kind = "nearest"
    k: int = Field(2, ge=1)
    """Cohort size."""
    at_most_m: Metres = 1e9
    """None beyond."""

    def select(self, sites, history, rng):
        return Decision(sites.distance_m.argsort()[: self.k])
'''


def test_a_policy_of_ones_own_is_one_file(own_components, trained, tmp_path):
    (tmp_path / "nearest.py").write_text(NEAREST)
    run = trained(
        f"plugins=['{tmp_path / 'nearest.py'}']", "policy.kind=nearest", "policy.at_most_m='9e5 km'"
    )
    nearest = run.sites["distance_m"].argsort()[:2].tolist()
    assert run.cohorts["site"].tolist() == nearest * 3
    assert run.input["policy"] == {"kind": "nearest", "k": 2, "at_most_m": 9e8}


def test_these_keys_change_no_result_and_a_results_file_says_so(trained):
    keys = ["name", "label", "plugins", "ranks.transport", "ranks.device"]
    keys += ["checkpoint", "interrupt", "watchdog", "meter", "knobs", "callbacks", "store"]
    assert neutral_keys(Experiment()) == keys
    run = trained("stop.max_rounds=2")
    assert run.meta["neutral_keys"] == keys and not run.added
    assert "stop.max_rounds" in run.settings and "watchdog.limit_s" not in run.settings


def test_a_plug_in_cannot_replace_what_is_built_in(own_components, tiny, tmp_path):
    (tmp_path / "mine.py").write_text(NEAREST.replace("Nearest", "Static").replace("nearest", "static"))
    before = POLICIES["static"]
    with pytest.raises(
        InputError, match=r"kind 'static' is already taken by hpctrip\.sim\.policies\.baselines"
    ):
        read_input([str(tiny)], [f"plugins=['{tmp_path / 'mine.py'}']", "policy.kind=static"])
    assert POLICIES["static"] is before


def test_a_plug_in_is_validated_like_any_other(own_components, tiny, tmp_path):
    (tmp_path / "nearest.py").write_text(NEAREST)
    plugins = f"plugins=['{tmp_path / 'nearest.py'}']"
    with pytest.raises(InputError, match=r"policy.k = 0: must be greater than or equal to 1"):
        read_input([str(tiny)], [plugins, "policy.kind=nearest", "policy.k=0"])
    assert described_fields(POLICIES["nearest"])["k"].description == "Cohort size."
