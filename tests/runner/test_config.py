"""The input of an experiment: what its tables mean together, and what is stored repeats the run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from hpctrip.base.errors import InputError
from hpctrip.cli.keys_reference import described_fields
from hpctrip.config.identity import flat, neutral_keys
from hpctrip.config.inputs import read_layers, resolved
from hpctrip.runner.experiment import Experiment, experiment_of, merge_layers, read_input, resolve
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.times import moment_us

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize(
    "start",
    [
        "2024-05-01",
        "2024-05-01T00:30:00",
        "2024-05-01 00:30:00.5",
        "2024-05-01T00:30:00Z",
        "2024-05-01T02:30:00+02:00",
    ],
)
def test_a_date_is_taken_with_and_without_quotes_in_a_file_and_on_the_command_line(start, files, folder):
    """As `check` prints it; TOML has dates of its own."""
    tables = 'carbon = {kind = "csv", path = "c.csv", start = %s}\npower = {kind = "csv", path = "p.csv", start = %s}'
    for name in ("c.csv", "p.csv"):
        (folder / name).touch()
    for text in (start, f"'{start}'"):
        found = [
            read_input(files(tables % (text, text))),
            read_input(
                [],
                [
                    "carbon.kind=csv",
                    "carbon.path=c.csv",
                    f"carbon.start={text}",
                    "power.kind=csv",
                    "power.path=p.csv",
                    f"power.start={text}",
                ],
            ),
        ]
        for made in found:
            experiment = made.experiment
            assert moment_us(experiment.carbon.start) == moment_us(experiment.power.start) == moment_us(start)
            assert experiment_of(tomllib.loads(made.toml)) == experiment


@pytest.mark.parametrize("path", sorted((ROOT / "inputs").glob("*.toml")), ids=lambda path: path.stem)
def test_every_scenario_in_inputs_is_valid_and_named_like_its_file(path):
    experiment = read_input([str(path)]).experiment
    assert experiment.name == path.stem.replace("_", "-")
    assert experiment.checked_num_sites() >= 1


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
    assert hpctrip("check", everything).out == printed.out
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


def test_a_policy_of_ones_own_is_one_file(trained, tmp_path):
    (tmp_path / "nearest.py").write_text(NEAREST)
    run = trained(
        f"plugins=['{tmp_path / 'nearest.py'}']", "policy.kind=nearest", "policy.at_most_m='9e5 km'"
    )
    nearest = run.sites["distance_m"].argsort()[:2].tolist()
    assert run.cohorts["site"].tolist() == nearest * 3
    assert run.input["policy"] == {"kind": "nearest", "k": 2, "at_most_m": 9e8}


RECIPE = ("warmup_steps", "cosine_steps", "final_lr_fraction", "clip_norm", "decay_vectors")


def test_these_keys_change_no_result_and_a_results_file_says_so(trained):
    keys = ["name", "label", "plugins", "ranks.transport", "ranks.device", "stop.deadline_s"]
    keys += ["checkpoint", "interrupt", "watchdog", "meter", "knobs", "callbacks", "store"]
    assert neutral_keys(Experiment()) == keys
    run = trained("stop.max_rounds=2")
    added = ["rounds.work_by_speed", "rounds.work_s", "availability"]  # later, at their defaults
    added += [*(f"train.{key}" for key in RECIPE), "overlap", "stop.max_samples"]
    assert run.meta["neutral_keys"] == [*keys, *added]
    assert not run.added
    assert "stop.max_rounds" in run.settings and "watchdog.limit_s" not in run.settings


def test_a_plug_in_cannot_replace_what_is_built_in(tiny, tmp_path):
    (tmp_path / "mine.py").write_text(NEAREST.replace("Nearest", "Static").replace("nearest", "static"))
    before = POLICIES["static"]
    with pytest.raises(
        InputError, match=r"kind 'static' is already taken by hpctrip\.sim\.policies\.baselines"
    ):
        read_input([str(tiny)], [f"plugins=['{tmp_path / 'mine.py'}']", "policy.kind=static"])
    assert POLICIES["static"] is before


def test_a_plug_in_is_validated_like_any_other(tiny, tmp_path):
    (tmp_path / "nearest.py").write_text(NEAREST)
    plugins = f"plugins=['{tmp_path / 'nearest.py'}']"
    with pytest.raises(InputError, match=r"policy.k = 0: must be greater than or equal to 1"):
        read_input([str(tiny)], [plugins, "policy.kind=nearest", "policy.k=0"])
    assert described_fields(POLICIES["nearest"])["k"].description == "Cohort size."


# Resolved inputs: an absent key has the value that follows from the others

MEANT = {
    # workload: (lines, what [train] means)
    "emnist": ((), (0.01, 20, 1.0, "sgd", 0.0)),
    "femnist": ((), (0.01, 20, 1.0, "sgd", 0.0)),
    "shakespeare": ((), (0.8, 20, 1.0, "sgd", 0.0)),
    "speech": ((), (0.001, 16, 1.0, "adamw", 0.1)),
    "llm": (("train.local_steps=3",), (0.001, 8, None, "adamw", 0.0)),
}
SAME = {
    # explicitly what is in force anyway
    "a learning rate": ("train.lr=0.01",),
    "all of [train]": (
        "train={lr=0.01, batch_size=20, local_epochs=1.0, optimizer='sgd', weight_decay=0.0}",
    ),
    "as many glyphs as there are": ("workload.train_samples=60_000", "workload.test_samples=10_000"),
    "blocks": ("engine.sites_per_block=auto",),
}


def settings(*lines):
    return flat(resolved(resolve(merge_layers({}, read_layers([], lines))).experiment))


@pytest.mark.parametrize("kind", MEANT)
def test_absent_training_keys_have_the_defaults_of_the_workload(kind):
    lines, expected = MEANT[kind]
    work = read_input([], [f"workload={{kind='{kind}'}}", *lines]).experiment.train
    assert (work.lr, work.batch_size, work.local_epochs, work.optimizer, work.weight_decay) == expected


@pytest.mark.parametrize("name", SAME)
def test_an_explicit_default_is_the_same_input(name):
    assert settings(*SAME[name]) == settings()


def test_defaults_that_follow_from_their_neighbours_are_spelled_out():
    gpus = settings("throughput={kind='gpus', num_gpus=10, pue=1.0}")
    assert gpus["throughput.site_power_w"] == 4000
    assert gpus == settings("throughput={kind='gpus', num_gpus=10, pue=1.0, site_power_w='4 kW'}")
    every = settings("workload={kind='shakespeare', predict='every'}")
    assert every["workload.stride"] == 80 and every["train.lr"] == 0.8


def test_keys_that_depend_on_the_machine_stay_auto():
    open_keys = ("engine.name", "engine.sites_per_block", "ranks.device", "ranks.transport")
    assert {settings()[key] for key in open_keys} == {"auto"}


def test_check_plan_show_and_the_file_have_the_resolved_training_keys(hpctrip, tiny, trained):
    checked = hpctrip("check", tiny).out
    for line in ("lr = 0.01", "batch_size = 20", "local_epochs = 1.0", 'optimizer = "sgd"'):
        assert line in checked.splitlines()
    words = "sgd, learning rate 0.01, batches of 20, 1 epoch(s) a round"
    assert words in hpctrip("plan", tiny, "--samples-per-second", "100", "--rounds", "1").out
    run = trained("stop.max_rounds=1")
    assert run.input["train"]["lr"] == 0.01 and run.input["train"]["optimizer"] == "sgd"
    shown = re.sub(r"\s+", " ", hpctrip("show", run.path).out)
    assert words in shown and "engine sequential, blocks of 1 site" in shown
