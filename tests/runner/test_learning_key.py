"""The learning key depends on all inputs of training and on nothing else."""

import numpy as np
import pytest
import torch

from hpctrip.config.identity import keys_not_in_training, neutral_keys
from hpctrip.config.sources import PLUGINS, Source
from hpctrip.learn import params
from hpctrip.learn.params import arithmetic
from hpctrip.ranks.base import Ranks
from hpctrip.runner.experiment import Experiment, read_input
from hpctrip.runner.host import Host
from hpctrip.runner.provenance import CODE, code_digest, learned_tables, learning_key, sources_of

LEARNED = {
    *("seed", "workload", "partition", "train", "server", "compression", "overlap", "engine", "ranks"),
    "evaluate",  # but for when it happens: which samples are counted
}


def key(*lines, sources=sources_of, machine="here", ranks=None, prepare=lambda host: None):
    """The learning key of a tiny input with these lines, of a host that was prepared."""
    run_input = read_input(
        [], ["sites.num_sites=4", "workload.train_samples=40", "workload.test_samples=20", *lines]
    )
    experiment = run_input.experiment
    task = experiment.workload.checked_task(experiment.seed)
    host = Host(experiment, experiment.checked_num_sites(), task, ranks or Ranks(), torch.device("cpu"))
    prepare(host)
    return learning_key(run_input, host, sources(run_input, task), [machine])


@pytest.fixture(scope="module")
def usual():
    return key()


def test_every_table_is_either_learned_or_marked_as_unlearned():
    """A new table is marked where it is declared (config/identity.py), or is added here: training sees it."""
    unseen = {name for name in keys_not_in_training(Experiment()) if "." not in name}
    assert unseen.isdisjoint(LEARNED) and unseen | LEARNED == set(Experiment.model_fields)
    untrained = set(keys_not_in_training(Experiment()))  # keys, and whole tables
    assert all({key, key.partition(".")[0]} & untrained for key in neutral_keys(Experiment()))


def test_keys_that_training_does_not_see_leave_the_learning_key_unchanged(usual):
    lines = """
        name=other label=other sites.kind=uniform sites.num_sites=4 timing.clock=mean-power network.round_trip=true
        power.kind=constant faults.late_fraction=0.5 policy.kind=all stop.max_rounds=3 evaluate.every_rounds=4
        checkpoint.enabled=false ranks.device=cpu store.path=x
    """
    assert key(*lines.split()) == usual


LINES = """
    seed=1 sites.num_sites=5 workload.train_samples=41 workload.split=balanced partition.alpha=0.7 train.lr=0.5
    server.momentum=0.9 compression.kind=int8 engine.sites_per_block=2 ranks.threads=2 evaluate.max_samples=3
    policy.kind=centralized
"""


@pytest.mark.parametrize("line", LINES.split())
def test_keys_that_training_sees_change_the_learning_key(usual, line):
    assert key(line) != usual


class WithAnotherHost(Ranks):
    """Ranks among which another host's GPU holds fewer sites."""

    def __init__(self, holds):
        super().__init__()
        self.holds = holds

    def largest(self, values):
        return np.maximum(values, -self.holds)


@pytest.mark.parametrize(("here", "there", "blocks"), [(5, 3, 3), (2, 3, 2), (6, 6, 32)])
def test_all_hosts_train_blocks_that_every_gpu_holds_and_the_learning_key_names_them(here, there, blocks):
    tried = []

    def prepare(host):
        host.device = torch.device("cuda")
        host.engine.fitting = lambda params, visits: tried.append(visits) or here
        host.agree()
        assert str(host.block_rule) == f"blocks of {blocks} sites"
        assert len(np.unique(host.fixed_hosts[: min(blocks, 6)])) == 1

    lines = ["sites.num_sites=6", "engine.name=stacked", "compression.kind=top-k"]
    agreed = key(*lines, ranks=WithAnotherHost(there), prepare=prepare)
    assert (agreed == key(*lines)) == (blocks == 32)
    assert [len(visits) for visits in tried] == [6] and all(len(order) for (order,) in tried[0])


def test_data_and_plug_ins_count_by_their_content_and_not_their_path(usual):
    def other(digest, path="theirs"):
        return lambda run_input, task: [
            source._replace(digest=digest or source.digest, path=path)
            for source in sources_of(run_input, task)
        ]

    assert key(sources=other("")) == usual
    assert key(sources=other("0" * 32)) != usual
    plugin = Source(PLUGINS, "mine.py", "0" * 32)
    assert key(sources=lambda run_input, task: [*sources_of(run_input, task), plugin]) != usual
    files = read_input([], ["workload.data=/data/emnist"]), read_input([], ["workload.data=/mnt/emnist"])
    one, two = (learned_tables(run_input.experiment) for run_input in files)
    assert one == two


def test_the_machine_is_part_of_the_key(usual, tmp_path, monkeypatch):
    assert key(machine="there") != usual
    assert arithmetic(torch.device("cpu")) == arithmetic(torch.device("cpu"))
    monkeypatch.setattr(params, "_processor", lambda: "another one")
    changed = arithmetic(torch.device("cpu"))
    monkeypatch.undo()
    assert changed != arithmetic(torch.device("cpu"))


def write_code(package, names):
    for name in names:
        path = package / name if name.endswith(".py") else package / name / "models" / "cnn.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_key_changes_with_the_code_that_trains(tmp_path):
    write_code(tmp_path, CODE)
    before = code_digest(tmp_path)
    (tmp_path / "learn" / "models" / "lstm.py").touch()
    code_digest.cache_clear()
    assert len({before, code_digest(tmp_path), code_digest()}) == 3


@pytest.mark.parametrize("missing", CODE)
def test_missing_code_raises(missing, tmp_path):
    write_code(tmp_path, [name for name in CODE if name != missing])
    with pytest.raises(FileNotFoundError):
        code_digest(tmp_path)
