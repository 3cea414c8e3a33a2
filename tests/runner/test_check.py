"""`check` refuses what `run` would refuse, wherever that costs no computing."""

from __future__ import annotations

import importlib.util
import tomllib

import pytest

FEW = ["partition", "samples"]
REFUSED = {  # {case: (-o lines, fragments of the report)}
    "sites": (["sites.kind=csv", "sites.path=none.csv", "policy.kind=all"], ["none"]),
    "traces": (["power.kind=trace", "power.path=none"], ["none"]),
    "outages": (["faults.outages=none.csv", "faults.deadline_s=60"], ["none"]),
    "EMNIST's files": (["workload.data=none"], ["none"]),
    "LEAF's files": (["workload.kind=femnist", "workload.data=none"], ["none"]),
    "plays": (["workload.kind=shakespeare", "workload.data=none.txt"], ["none"]),
    "clips": (["workload.kind=speech", "workload.data=none.tar.gz"], ["none"]),
    "a client map": (["workload.kind=speech", "workload.client_map=none.csv"], ["none"]),
    "texts": (["workload.kind=llm", "workload.data=none.txt"], ["none"]),
    "a model": (["workload.kind=llm", "workload.model=none"], ["none"]),
    "natural owners": (["partition.kind=natural"], ["none"]),
    "a store": (["store.path=/proc/none"], ["none"]),
    "samples for all sites": (["workload.train_samples=5"], FEW),
    "samples for sites that are pooled": (["policy.kind=centralized", "workload.train_samples=5"], FEW),
    "samples for all shards": (["partition.kind=shards", "partition.shards_per_site=1000"], FEW),
    "samples for sites of this size": (["partition.kind=iid", "partition.samples_per_site=1000"], FEW),
    "samples for the least of a site": (["partition.balanced=false", "partition.min_samples=1000"], FEW),
    "samples of the files": (["workload.kind=shakespeare", "workload.train_samples=7"], FEW),
    "a signal that the objective needs": (["policy.objective={kind='deadline', deadline_s=3600}"], []),
    "a site within the radius": (["policy={kind='fixed-radius', radius_m=1}"], []),
    "an update that ever arrives": (
        ["network={update_bytes=1e15, near_bandwidth_bps=1e6, far_bandwidth_bps=1e6}"],
        [],
    ),
}


@pytest.mark.parametrize(("lines", "fragments"), REFUSED.values(), ids=REFUSED)
def test_check_refuses_missing_inputs_with_the_message_of_run(lines, fragments, hpctrip, tiny, folder):
    if "workload.kind=llm" in lines and importlib.util.find_spec("peft") is None:
        pytest.skip("needs the extra [llm]")
    arguments = [tiny, *(word for line in lines for word in ("-o", line))]
    checked = hpctrip("check", *arguments)
    checked.check_refused(fragments)
    assert checked.err == hpctrip("run", *arguments, "--out", "run.h5").err


def test_check_tries_to_write_to_the_store_and_leaves_no_file(hpctrip, tiny, tmp_path):
    assert hpctrip("check", tiny, "-o", f"store.path={tmp_path / 'new' / 'store'}").code == 0
    assert not list(tmp_path.iterdir())


def test_an_extra_that_is_not_installed_is_named(hpctrip, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else found(name))
    hpctrip("check", "-o", "workload.kind=llm").check_refused(["peft not installed"])


def test_check_plan_and_run_warn_of_an_update_of_a_few_bytes(hpctrip, tiny, tmp_path):
    """The unit was forgotten: 1.5 GB were meant."""
    arguments = [tiny, "-o", "network.update_bytes=1.5", "-o", "stop.max_rounds=1"]
    doubt = 'network.update_bytes = 1.5 is in bytes: write "1.5 GB" where gigabytes are meant'
    checked = hpctrip("check", *arguments)
    assert checked.code == 0 and checked.err == f"warning: {doubt}\n"
    assert tomllib.loads(checked.out)["network"]["update_bytes"] == 1.5
    output = hpctrip("run", *arguments, "--out", tmp_path / "run.h5").out
    assert f"warning: {doubt}" in output and "updates of 1.5 bytes on the simulated WAN" in output
    planned = " ".join(hpctrip("plan", *arguments, "--rounds", "1").out.split())
    assert f"! {doubt}" in planned
    assert hpctrip("check", tiny).err == ""
