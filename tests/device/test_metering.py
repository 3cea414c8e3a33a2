"""Runs that meter themselves: joules by phase beside the wall times, and the same results with and without."""

from dataclasses import replace

import pytest

from hpctrip.device.counters import MICRO, Counters, Unavailable
from hpctrip.device.nvml import Gpu
from hpctrip.device.recovery_log import RecoveryNote
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.show import drawn, facts_of, summary
from hpctrip.record.verify import _arithmetic, verify

JOULES = ["record_wall_j", "train_wall_j", "exchange_wall_j", "evaluate_wall_j"]
ASSUMED = "meter.assumed_w=50"


@pytest.fixture(scope="module")
def plain(trained):
    return trained("meter.enabled=false")


@pytest.fixture(scope="module")
def metered(trained):
    return trained(ASSUMED)


def test_joules_are_columns_whose_phases_sum_to_the_rounds(metered):
    rounds = metered.rounds
    assert (rounds[["wall_j", "train_wall_j"]] > 0).all(axis=None) and rounds["record_wall_j"][0] == 0
    assert rounds["wall_j"].tolist() == pytest.approx(rounds[JOULES].sum(axis=1).tolist(), rel=1e-12)
    # planning of the first round comes before the count, the end of the last one after it
    assert rounds["wall_j"].sum() <= 50 * rounds["wall_s"].sum()
    assert (rounds["samples_per_wall_j"] * rounds["wall_j"]).tolist() == pytest.approx(
        rounds["num_samples"].tolist()
    )
    assert verify(metered) == []


def test_without_counters_the_columns_and_the_lines_of_show_are_absent(plain):
    stored = [name for name in plain.rounds if name not in plain.rounds.attrs["added"]]
    assert not any("wall_j" in name for name in stored) and plain.rounds["wall_j"].isna().all()
    assert "energy drawn" not in summary(plain) and "not recorded" not in summary(plain)
    assert plain.meta["meters"][0].endswith(": switched off (meter.enabled)")


def test_metering_changes_no_result(plain, metered):
    assert diff(plain, metered) == []
    assert plain.meta["params_digest"] == metered.meta["params_digest"]


def test_joules_that_contradict_each_other_are_a_fault(metered):
    rounds = metered.rounds.assign(train_wall_j=-1.0, samples_per_wall_j=2.0)
    rounds.attrs = metered.rounds.attrs
    changed = replace(metered, rounds=rounds)
    first, second, third, *others = [str(fault) for fault in _arithmetic(changed)]
    assert "its phases' sum is" in first and "samples_per_wall_j is 2" in second and len(others) == 6
    assert "train_wall_j is -1, and a machine draws no less than nothing" in third


def test_show_says_why_nothing_was_measured(trained, rapl_tree):
    rapl_tree.zone("0", "package-0")
    rapl_tree.still = {"0"}
    shown = summary(trained("stop.max_rounds=1"))
    assert "energy drawn" not in shown
    assert (
        f"nothing (not counted: {rapl_tree.folder}/intel-rapl:0/energy_uj: stands still at 0)"
        in (shown["measured by"])
    )


def test_show_says_why_the_energy_of_a_round_is_not_known(trained, monkeypatch, caplog):
    from hpctrip.device import meter

    class Gaps:
        place, most_w, range_uj, readings = "gaps", 500.0, 0, 0

        def read_uj(self):
            Gaps.readings += 1
            if Gaps.readings in (6, 7):  # in round 2
                raise Unavailable("gaps: not read for 200 s")
            return Gaps.readings * MICRO

    monkeypatch.setattr(meter, "cpus", lambda: Counters("gaps", [Gaps()]))
    shown = summary(trained())
    assert " J in 2 of the rounds: " in shown["energy drawn"]
    assert shown["measured by"].endswith(": gaps; not known in some rounds: gaps: not read for 200 s")
    assert caplog.messages == ["the energy of this round is not known: gaps: not read for 200 s"]


def test_counters_that_did_not_advance_in_a_run_have_no_shares(metered):
    facts = facts_of(metered) | {"wall_j": 0.0}
    assert drawn(facts) == {"energy drawn": "0 J: the counters did not advance"}


def test_show_prints_the_energy_and_what_measured_it(metered):
    shown = summary(metered)
    assert "J: train " in shown["energy drawn"] and shown["energy drawn"].endswith(" samples/J")
    assert "assumed 50 W" in shown["measured by"]


def test_a_run_that_goes_on_without_a_meter_keeps_the_joules_it_has(hpctrip, tiny, tmp_path):
    out = tmp_path / "run.h5"
    assert hpctrip("run", tiny, "-o", "stop.max_rounds=2", "-o", ASSUMED, "--out", out).code == 0
    before = open_run(out).rounds["wall_j"].tolist()
    assert hpctrip("resume", out, "-o", "stop.max_rounds=3", "-o", "meter.assumed_w=0.001").code == 0
    rounds = open_run(out).rounds
    assert rounds["wall_j"].tolist()[:2] == before and rounds["wall_j"][2] < 0.001 * before[0]


@pytest.mark.mpi
def test_the_joules_of_a_machine_are_counted_once_however_many_ranks_it_has(launch, tiny, tmp_path, plain):
    out = tmp_path / "run.h5"
    ended = launch(3, "run", tiny, "-o", ASSUMED, "--out", out)
    assert ended.code == 0, ended.err
    run = open_run(out)
    assert len(run.meta["meters"]) == 1 and diff(run, plain) == []
    assert 0 < run.rounds["wall_j"].sum() <= 50 * run.rounds["wall_s"].sum()


def test_a_cpus_counter_is_read_at_the_ends_of_phases_alone(trained, monkeypatch):
    """Four times a round, whatever is trained in between."""
    from hpctrip.device import meter

    class Steps:
        place, most_w, range_uj, readings = "steps", 500.0, 0, 0

        def read_uj(self):
            Steps.readings += 1
            return Steps.readings * MICRO

    monkeypatch.setattr(meter, "cpus", lambda: Counters("steps", [Steps()]))
    rounds = trained("stop.max_rounds=2").rounds
    assert Steps.readings == 2 * 4
    assert rounds[["wall_j", *JOULES]].to_numpy().tolist() == [[3, 0, 1, 1, 1], [4, 1, 1, 1, 1]]


GPU = "GPU-aaaa-0"


@pytest.fixture
def on_a_gpu(fake_nvml, rapl_tree, tmp_path, monkeypatch):
    """As far as meter and knobs can tell, this process trains on the first of the played GPUs."""
    monkeypatch.setattr("hpctrip.runner.session.gpu_identity", lambda device: "aaaa-0")
    monkeypatch.setenv("HPCTRIP_KNOBS", str(tmp_path / "notes"))
    return fake_nvml()


def test_a_run_meters_its_gpu_sets_its_knobs_and_records_both(trained, on_a_gpu):
    run = trained("stop.max_rounds=2", "knobs.power_cap_w=200")
    assert run.meta["meters"][0].partition(": ")[2].startswith("1 GPU (NVML) (not counted: no CPU counters")
    assert run.rounds["wall_j"].tolist() == [3, 4]  # which count a joule for every reading
    assert run.meta["knobs"][0].endswith(f"{GPU}: power cap 200 W") and run.meta["refused_knobs"] == []
    assert (on_a_gpu / "cap0").read_text() == "350000\n"


def test_without_permission_the_run_warns_once_and_goes_on(hpctrip, tiny, tmp_path, on_a_gpu):
    (on_a_gpu / "denied").touch()
    out = tmp_path / "run.h5"
    ended = hpctrip("run", tiny, "-o", "stop.max_rounds=2", "-o", "knobs={clock_mhz=900}", "--out", out)
    assert ended.code == 0 and ended.out.count(f"not set: {GPU}: Insufficient Permissions") == 1
    assert open_run(out).meta["refused_knobs"][0].endswith(f"{GPU}: Insufficient Permissions")


@pytest.fixture
def left_by_a_killed_run(on_a_gpu):
    note = RecoveryNote.take(Gpu.of(GPU))
    note.write(process=4242, cap_mw=200_000, cap_before_mw=350_000)
    note.file.close()  # its process is gone
    (on_a_gpu / "cap0").write_text("200000")


WARNING = f"warning: {GPU}: power cap 200 W (before: 350 W), left by process 4242"


def test_settings_left_by_a_killed_run_are_named_and_put_back_on_request(
    hpctrip, tiny, tmp_path, left_by_a_killed_run
):
    ended = hpctrip("run", tiny, "-o", "stop.max_rounds=1", "--out", tmp_path / "run.h5")
    assert WARNING in ended.out
    assert "left: " in hpctrip("gpu-settings").out
    shown = hpctrip("gpu-settings", "--restore")
    assert shown.code == 0 and "put back: " in shown.out and "power cap 350 W of 100 to 400 W" in shown.out
    assert "left" not in hpctrip("gpu-settings").out


def test_a_run_on_that_gpu_with_settings_of_its_own_puts_them_back_too(
    hpctrip, tiny, tmp_path, left_by_a_killed_run, on_a_gpu
):
    lines = ("-o", "stop.max_rounds=1", "-o", "knobs.power_cap_w=120", "--out", tmp_path / "run.h5")
    ended = hpctrip("run", tiny, *lines)
    assert WARNING in ended.out and f"set {GPU}: power cap 120 W" in ended.out
    assert (on_a_gpu / "cap0").read_text() == "350000\n" and "left" not in hpctrip("gpu-settings").out


def test_knobs_without_a_gpu_are_recorded_as_refused(trained):
    assert (
        trained("stop.max_rounds=1", "knobs.power_cap_w=200")
        .meta["refused_knobs"][0]
        .endswith("no GPU trains here")
    )
