"""`check` refuses what `run` would refuse, wherever that costs no computing."""

from __future__ import annotations

import importlib.util
import tomllib

import pytest

import hpctrip as library

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


@pytest.mark.parametrize("place", ["~", "tr[2019]", "a*b?"])
def test_every_path_may_hold_signs_of_a_pattern_or_begin_in_the_home_folder(
    place, hpctrip, tiny, folder, monkeypatch
):
    monkeypatch.setenv("HOME", str(folder / "home"))
    at = folder / place.replace("~", "home")
    at.mkdir()
    times = "".join(f"{600_000_000 + 300_000_000 * step},a,pdu1,0.{step}\n" for step in range(3))
    for name, text in {
        "sites.csv": "distance_m\n" + "5\n" * 10,
        "curve.csv": "watts,samples_per_second\n100,1\n200,2\n",
        "cella.csv": f"time,cell,pdu,production_power_util\n{times}",
        "grid.csv": "time,per_kwh\n2022-06-01T00:00,300\n2022-06-01T01:00,200\n",
        "outages.csv": "site,start_s,end_s\n1,5,6\n",
    }.items():
        (at / name).write_text(text)
    tables = (
        f"sites={{kind='csv', path='{place}/sites.csv'}}",
        f"throughput={{kind='curve', path='{place}/curve.csv'}}",
        f"power={{kind='trace', path='{place}'}}",
        f"carbon={{kind='csv', path='{place}/grid.csv'}}",
        f"price={{kind='csv', path='{place}/gr*.csv'}}",
        f"faults={{outages='{place}/outages.csv', deadline_s=1000}}",
        f"callbacks.jsonl={{path='{place}/lines.jsonl'}}",
        "stop.max_rounds=1",
    )
    out = f"{place}/run.h5"
    made = hpctrip("run", tiny, *(word for line in tables for word in ("-o", line)), "--out", out)
    assert made.code == 0, made.err
    assert {"run.h5", "lines.jsonl"} <= {file.name for file in at.iterdir()}
    for runs in (place, out, f"{place}/*.h5"):
        assert hpctrip("show", "--status", runs).out == "finished\n"
    assert hpctrip("verify", out, "--data", place).out.endswith("run.h5: ok\n")
    drawn = hpctrip("plot", "power_utilisation", f"{place}/cell*.csv", "--out", f"{place}/power.png")
    assert drawn.code == 0 and (at / "power.png").exists(), drawn.err
    assert library.open(out).status == "finished"
    assert not (folder / "~").exists()


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


def test_zones_of_the_sites_names_that_the_sites_do_not_have_are_warned_of(hpctrip, tiny, tmp_path):
    power, price, sites = (tmp_path / f"{name}.csv" for name in ("power", "price", "sites"))
    power.write_text("time_s,oslo_kw,porto_kw,riga_kw\n0,20,30,25\n60,22,31,26\n")
    price.write_text("time_s,Oslo,Porto,Riga\n0,31.5,90,60\n60,31.5,90,60\n")
    sites.write_text("name,region\noslo,x\nporto,x\nriga,x\n")

    def warned(of_sites):
        lines = f"power={{kind='csv', path='{power}'}}", of_sites, "price.kind=csv", f"price.path={price}"
        words = [
            word for line in (*lines, "price.unit=per MWh", 'price.value_column="*"') for word in ("-o", line)
        ]
        (line,) = (line for line in hpctrip("check", tiny, *words).err.splitlines() if "at random" in line)
        return line.removeprefix("warning: price: its zones are named as the sites or their power are, but ")

    random, key = "sites drew their zones at random; ", 'set price.site_column = "name"'
    assert warned("sites.num_sites=3") == f'{random}name the sites in a file (sites.kind = "csv"), and {key}'
    assert warned(f"sites={{kind='csv', path='{sites}'}}") == random + key


def test_check_and_run_warn_of_sites_in_wrong_units_and_name_what_ends_a_round(
    hpctrip, tiny, tmp_path, monkeypatch
):
    for module in ("timing", "world"):
        monkeypatch.setattr(f"hpctrip.sim.{module}.MOST_STEPS", 1000)
    (tmp_path / "sites.csv").write_text("name,rtt_s,bandwidth_bps\nOslo,10,100\nOslo,20,1e9\n")
    (tmp_path / "power.csv").write_text("time_s,a_kw,b_kw,c_kw\n0,11,22,0\n60,22,44,0\n")
    power = ["-o", f"power={{kind='csv', path='{tmp_path / 'power.csv'}'}}"]
    sites = [tiny, "-o", f"sites={{kind='csv', path='{tmp_path / 'sites.csv'}'}}"]
    run = ["-o", "policy.kind=all", "-o", "stop.max_rounds=1", "--out", tmp_path / "run.h5"]
    checked = hpctrip("check", *sites).err
    assert "above 1 s at 2 of 2 sites, such as 10 s at site 0 (Oslo); name its column rtt_ms" in checked
    assert "a transfer takes more than an hour at 1 of 2 sites" in checked
    assert "several sites have the name 'Oslo'" in checked
    hpctrip("run", *sites, "-o", "power.kind=trace", *run).check_refused(
        ["a transfer takes 1.2e+08 s at 100 bit/s at site 0 (Oslo) in the round"]
    )
    (tmp_path / "sites.csv").write_text("power_trace\nb\na\n")
    assert "# power: P at the start 0.25 to 0.5; no site follows c\n" in hpctrip("check", *sites, *power).out
    (tmp_path / "sites.csv").write_text("power_trace\nb\nc\n")
    hpctrip("run", *sites, *power, *run).check_refused(
        ["1 of the 2 site(s) of the cohort have no power from 0 s"]
    )


BUFFERED = "rounds={kind='buffered', num=2, concurrency=3"


@pytest.mark.parametrize(
    ("below", "above", "warned"),
    [
        (
            "[rounds]\nwork_s = 60",
            BUFFERED + "}",
            "rounds.work_s = 60 was given for another kind of its table",
        ),
        ("[rounds]\nwork_s = 60", BUFFERED + ", work_s=60}", ""),
        ("[sites]\nnum_sites = 7", "sites={kind='uniform', num_sites=9}", ""),
        ("[sites]\nnum_sites = 7", "sites.kind=uniform", "sites.num_sites = 7 was given for another kind"),
        ("[rounds]\nkind = 'quorum'\ngrace_s = 60.0", BUFFERED + "}", ""),  # buffered rounds have no grace
    ],
)
def test_a_value_that_is_lost_with_the_kind_of_its_table_is_named(
    below, above, warned, hpctrip, tiny, folder
):
    (folder / "more.toml").write_text(below)
    checked = hpctrip("check", tiny, "more.toml", "-o", above)
    assert checked.code == 0
    assert checked.err.startswith(f"warning: {warned}") if warned else not checked.err


def test_a_run_and_a_sweep_name_each_lost_value_once(hpctrip, tiny, folder):
    (folder / "more.toml").write_text("[rounds]\nwork_s = 60")
    words = tiny, "more.toml", "-o", BUFFERED + "}", "-o", "stop.max_rounds=1"
    for more in (("--out", "run.h5"), ("--sweep", "seed=3,4", "--out", "sweep")):
        assert hpctrip("run", *words, *more).out.count("rounds.work_s = 60 was given") == 1
