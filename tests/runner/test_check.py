"""`check` refuses what `run` would refuse, wherever that costs no computing."""

from __future__ import annotations

import importlib.util
import tomllib

import pytest

MISSING = {
    "sites": ["sites.kind=csv", "sites.path=none.csv", "policy.kind=all"],
    "traces": ["power.kind=trace", "power.path=none"],
    "outages": ["faults.outages=none.csv", "faults.deadline_s=60"],
    "EMNIST's files": ["workload.data=none"],
    "LEAF's files": ["workload.kind=femnist", "workload.data=none"],
    "plays": ["workload.kind=shakespeare", "workload.data=none.txt"],
    "clips": ["workload.kind=speech", "workload.data=none.tar.gz"],
    "a client map": ["workload.kind=speech", "workload.client_map=none.csv"],
    "texts": ["workload.kind=llm", "workload.data=none.txt"],
    "a model": ["workload.kind=llm", "workload.model=none"],
    "natural owners": ["partition.kind=natural"],
    "a store": ["store.path=/proc/none"],
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_not_there_is_refused_by_check_in_the_words_of_run(what, hpctrip, tmp_path, monkeypatch):
    if "workload.kind=llm" in MISSING[what] and importlib.util.find_spec("peft") is None:
        pytest.skip("needs the extra [llm]")
    monkeypatch.chdir(tmp_path)
    lines = [word for line in MISSING[what] for word in ("-o", line)]
    checked = hpctrip("check", *lines)
    checked.check_refused(["none"])
    assert checked.err == hpctrip("run", *lines, "--out", "run.h5").err


TOO_FEW = {
    "for all sites": ["workload.train_samples=5"],
    "for sites that are pooled": ["policy.kind=centralized", "workload.train_samples=5"],
    "for all shards": ["partition.kind=shards", "partition.shards_per_site=1000"],
    "for sites of this size": ["partition.kind=iid", "partition.samples_per_site=1000"],
    "for the least of a site": ["partition.balanced=false", "partition.min_samples=1000"],
    "of the files": ["workload.kind=shakespeare", "workload.train_samples=7"],
}


@pytest.mark.parametrize("what", TOO_FEW)
def test_too_few_samples_are_refused_by_check_in_the_words_of_run(what, hpctrip, tiny, tmp_path):
    lines = [word for line in TOO_FEW[what] for word in ("-o", line)]
    arguments = [tiny] if "workload.kind=shakespeare" not in TOO_FEW[what] else []
    checked = hpctrip("check", *arguments, *lines)
    checked.check_refused(["partition", "samples"])
    assert checked.err == hpctrip("run", *arguments, *lines, "--out", tmp_path / "run.h5").err


NO_FIRST_ROUND = {
    "a signal that the objective needs": ["policy.objective={kind='deadline', deadline_s=3600}"],
    "a site within the radius": ["policy={kind='fixed-radius', radius_m=1}"],
    "an update that ever arrives": [
        "network={update_bytes=1e15, near_bandwidth_bps=1e6, far_bandwidth_bps=1e6}"
    ],
}


@pytest.mark.parametrize("what", NO_FIRST_ROUND)
def test_what_lacks_in_the_first_round_is_said_by_check_in_the_words_of_run(what, hpctrip, tiny, tmp_path):
    lines = [word for line in NO_FIRST_ROUND[what] for word in ("-o", line)]
    checked = hpctrip("check", tiny, *lines)
    checked.check_refused([])
    assert checked.err == hpctrip("run", tiny, *lines, "--out", tmp_path / "run.h5").err


def test_the_store_is_tried_and_left_as_it_was(hpctrip, tiny, tmp_path):
    assert hpctrip("check", tiny, "-o", f"store.path={tmp_path / 'new' / 'store'}").code == 0
    assert not list(tmp_path.iterdir())


def test_an_extra_that_is_not_installed_is_named(hpctrip, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else found(name))
    hpctrip("check", "-o", "workload.kind=llm").check_refused(["peft not installed"])


def test_an_update_of_a_few_bytes_is_doubted_by_check_plan_and_run_alike(hpctrip, tiny, tmp_path):
    """The unit was forgotten: 1.5 GB were meant."""
    arguments = [tiny, "-o", "network.update_bytes=1.5", "-o", "stop.max_rounds=1"]
    doubt = 'network.update_bytes = 1.5 is in bytes: write "1.5 GB" where gigabytes are meant'
    checked = hpctrip("check", *arguments)
    assert checked.code == 0 and checked.err == f"warning: {doubt}\n"
    assert tomllib.loads(checked.out)["network"]["update_bytes"] == 1.5
    output = hpctrip("run", *arguments, "--out", tmp_path / "run.h5").out
    assert f"warning: {doubt}" in output and "updates of 1.5 B on the simulated WAN" in output
    planned = " ".join(hpctrip("plan", *arguments, "--rounds", "1").out.split())
    assert f"! {doubt}" in planned
    assert hpctrip("check", tiny).err == ""
