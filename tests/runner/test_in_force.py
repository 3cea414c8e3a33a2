"""Resolved inputs are shown and stored: an absent key has the value that follows from the others."""

from __future__ import annotations

import re

import pytest

from hpctrip.config.identity import flat
from hpctrip.config.inputs import read_layers, resolved
from hpctrip.runner.experiment import merge_layers, read_input, resolve

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
def test_what_a_site_does_is_the_workloads_own_where_the_input_is_silent(kind):
    lines, expected = MEANT[kind]
    work = read_input([], [f"workload={{kind='{kind}'}}", *lines]).experiment.train
    assert (work.lr, work.batch_size, work.local_epochs, work.optimizer, work.weight_decay) == expected


@pytest.mark.parametrize("name", SAME)
def test_saying_what_is_in_force_anyway_is_the_same_run(name):
    assert settings(*SAME[name]) == settings()


def test_defaults_that_follow_from_their_neighbours_are_spelled_out():
    gpus = settings("throughput={kind='gpus', num_gpus=10, pue=1.0}")
    assert gpus["throughput.site_power_w"] == 4000
    assert gpus == settings("throughput={kind='gpus', num_gpus=10, pue=1.0, site_power_w='4 kW'}")
    every = settings("workload={kind='shakespeare', predict='every'}")
    assert every["workload.stride"] == 80 and every["train.lr"] == 0.8


def test_what_only_the_machine_decides_stays_open():
    open_keys = ("engine.name", "engine.sites_per_block", "ranks.device", "ranks.transport")
    assert {settings()[key] for key in open_keys} == {"auto"}


def test_check_plan_show_and_the_file_say_it(hpctrip, tiny, trained):
    checked = hpctrip("check", tiny).out
    for line in ("lr = 0.01", "batch_size = 20", "local_epochs = 1.0", 'optimizer = "sgd"'):
        assert line in checked.splitlines()
    words = "sgd, learning rate 0.01, batches of 20, 1 epoch(s) a round"
    assert words in hpctrip("plan", tiny, "--samples-per-second", "100", "--rounds", "1").out
    run = trained("stop.max_rounds=1")
    assert run.input["train"]["lr"] == 0.01 and run.input["train"]["optimizer"] == "sgd"
    shown = re.sub(r"\s+", " ", hpctrip("show", run.path).out)
    assert words in shown and "engine sequential, blocks of 1 site" in shown


def test_an_option_that_does_not_fit_is_refused_by_check_too(hpctrip, tiny):
    ended = hpctrip("check", tiny, "-o", "train.momentum=0.9", "-o", "train.optimizer=adamw")
    ended.check_refused(["train.momentum = 0.9: the optimiser is adamw, which has none"])
