"""One seed gives one result on any number of ranks, whatever carries it; a rank that fails ends the job at once."""

from __future__ import annotations

import functools
import json
import shlex
import time
from pathlib import Path

import pytest
from on_ranks import collectives

from hpctrip.base.errors import InputError
from hpctrip.ranks.nccl import choose_backend
from hpctrip.ranks.open import open_ranks
from hpctrip.ranks.serial import SerialRanks
from hpctrip.record.checkpoint import newest
from hpctrip.record.reader import open_run
from hpctrip.record.schema import TABLES

HERE = Path(__file__).parent
GLOO = {"HPCTRIP_TORCH_BACKEND": "gloo"}
ENDS_WITHIN_S = 30
"""A failing rank ends the job in less than 10 s on an idle machine; this is for one whose cores are all taken."""

SCENARIO = (
    # sites of different size, a server with memory, rounds without evaluation, batches that do not divide
    "partition.balanced=false",
    "server.momentum=0.5",
    "evaluate.every_rounds=2",
    "evaluate.batch_size=30",
    "stop.max_rounds=3",
)
FAULTY_WORKLOAD = '[workload]\nkind = "faulty"\ntrain_samples = 400\ntest_samples = 200\n'
STACKED = (*SCENARIO, "engine.name=stacked", "engine.sites_per_block=4", "stop.max_rounds=2")
ADAPTIVE = (*SCENARIO, "policy.kind=goodput", "policy.local_work=adaptive")
LANES = (*SCENARIO, "engine={name = 'stacked', lanes = 4}", "policy.kind=all", "stop.max_rounds=2")
TOP_K = (*SCENARIO, "policy.kind=all", "engine.sites_per_block=2", "compression.kind=top-k")
FEW_SITES = (*SCENARIO, "sites.num_sites=3")
FEW = 3
"""Number of scenarios that two ranks run: the first ones."""
ON_FIVE = {
    "resumed": (*TOP_K, "checkpoint.every_rounds=1", "stop.max_rounds=2"),
    "stacked": STACKED,
    "nccl": (*SCENARIO, "ranks.transport=nccl"),
    "few sites": FEW_SITES,
    "top-k": (*TOP_K, "ranks.transport=nccl"),
}
"""Further inputs that five ranks run; two ranks resume the first one."""


def facts(run):
    """Everything in a results file that must not depend on where it was made: all but wall time, to the bit."""
    results = {"digest": run.meta["params_digest"], "stop": run.meta["stop_reason"]}
    for table, names in TABLES.items():
        for name in names:
            if "wall" not in name and name != "idle_fraction":
                results[f"{table}/{name}"] = run.tables[table][name].to_numpy().tobytes()
    return results


def arguments(lines):
    return [part for line in lines for part in ("-o", line)]


def test_the_scenario_has_unlike_sites_and_rounds(in_one_process):
    serial = in_one_process["emnist"]
    assert len(serial.rounds) == 3 and serial.meta["num_ranks"] == 1 and serial.meta["transport"] == "serial"
    assert serial.rounds["accuracy"].isna().tolist() == [True, False, False]
    assert serial.sites["num_samples"].nunique() > 5
    assert serial.rounds["num_sites"].max() > 4  # more sites than hosts


@pytest.fixture(scope="module")
def scenarios(tiny_workloads):
    """Name -> `-o` lines: every workload, KWT-1 and its AdamW in stacked blocks too, blocks sized for four hosts, local
    work that is chosen by the numbers that training reports."""
    others = {name: (*lines, "stop.max_rounds=2") for name, lines in tiny_workloads.items()}
    stacked = ("engine.name=stacked", "engine.sites_per_block=4")
    return {
        "emnist": SCENARIO,
        "lanes": LANES,
        "adaptive": ADAPTIVE,
        **others,
        "speech stacked": (*others["speech"], *stacked),
    }


@pytest.fixture(scope="module")
def in_one_process(trained, scenarios):
    return {name: trained(*lines) for name, lines in scenarios.items()}


@pytest.fixture(scope="module")
def on_ranks(launch, tiny, scenarios, tmp_path_factory):
    """`on_ranks(n)`: the folder of one launch that makes several runs, and its output. Five ranks also try the
    transports, and begin a run that two resume."""

    @functools.cache
    def launched(n):
        folder = tmp_path_factory.mktemp("ranks")
        runs = scenarios | ON_FIVE if n == 5 else dict(list(scenarios.items())[:FEW])
        commands = [
            ["run", str(tiny), *arguments(lines), "--out", str(folder / f"{name}.h5")]
            for name, lines in runs.items()
        ]
        if n == 2:
            begun = launched(5)[0] / "resumed.h5"
            commands.append(["resume", str(begun), *arguments(["stop.max_rounds=3", "ranks.transport=nccl"])])
        ended = launch(n, folder, *map(shlex.join, commands), script=HERE / "on_ranks.py", env=GLOO)
        assert ended.code == 0, ended.err
        return folder, ended.out

    return launched


@pytest.mark.mpi
@pytest.mark.parametrize("n", [5, 2])
def test_the_result_is_the_same_to_the_bit_on_any_number_of_ranks(n, on_ranks, in_one_process):
    """Every workload on five ranks; on two, where blocks have other hosts, one."""
    folder, output = on_ranks(n)
    for name, expected in list(in_one_process.items())[: None if n == 5 else FEW]:
        run = open_run(folder / f"{name}.h5")
        assert run.meta["num_ranks"] == n and run.meta["transport"] == "mpi"
        assert f"model digest {expected.meta['params_digest']}" in output
        assert facts(run) == facts(expected), name


def test_a_launcher_of_one_rank_needs_no_mpi(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "1")
    assert isinstance(open_ranks(), SerialRanks)


def test_the_local_work_of_that_scenario_is_another_from_round_to_round(in_one_process):
    assert in_one_process["adaptive"].rounds["local_work"].nunique() > 1


def test_blocks_for_four_hosts_are_no_larger_than_three_of_ten_sites_and_recorded(in_one_process):
    meta = in_one_process["lanes"].meta
    assert meta["blocks"] == "blocks of at most 32 sites, to fill 4 lanes" and meta["sites_per_block"] == 3
    assert in_one_process["emnist"].meta["blocks"] == "blocks of 1 site"


@pytest.fixture(scope="module")
def on_five(on_ranks):
    """`on_five(name)`: a run of five ranks."""
    return lambda name: open_run(on_ranks(5)[0] / f"{name}.h5")


@pytest.mark.mpi
def test_a_run_says_once_how_many_hosts_have_nothing_to_train(on_ranks):
    folder, output = on_ranks(5)
    notes = {}
    for name in ON_FIVE:
        said, _, output = output.partition(f"results: {folder / name}.h5\n")
        notes[name] = [line for line in said.splitlines() if "hosts idle;" in line]
    del notes["resumed"]  # which stands behind those of other scenarios
    # the last run's blocks fill four hosts in its first round
    expected = {"stacked": 1, "nccl": 1, "few sites": 1, "top-k": 0}
    assert {name: len(lines) for name, lines in notes.items()} == expected
    assert notes["stacked"][0] == (
        "note: 4 hosts, but at most 1 block in round 1 (1 site, up to 1 in one): 3 hosts idle; "
        "use fewer ranks, unless cohorts grow"
    )


@pytest.mark.mpi
def test_stacked_blocks_of_four_give_the_same_bits_on_five_ranks(on_five, trained):
    run = on_five("stacked")
    assert run.meta["engine"] == "stacked" and run.meta["num_ranks"] == 5
    assert facts(run) == facts(trained(*STACKED))


@pytest.mark.mpi
def test_the_nccl_transport_gives_the_same_bits_as_mpi(on_five, in_one_process):
    """Over gloo, which exercises every line but the backend's own on machines without GPUs."""
    run = on_five("nccl")
    assert run.meta["transport"] == "nccl"
    assert facts(run) == facts(in_one_process["emnist"])


@pytest.mark.mpi
def test_residuals_kept_at_their_hosts_give_the_same_bits_and_move_with_their_sites(
    on_five, on_ranks, trained
):
    """On five ranks; and where two resume what five have begun."""
    expected = facts(trained(*TOP_K))
    assert facts(on_five("top-k")) == expected
    on_ranks(2)
    resumed = on_five("resumed")
    assert resumed.meta["num_ranks"] == 2 and facts(resumed) == expected


@pytest.mark.mpi
def test_hosts_without_a_block_do_no_harm(on_five, trained):
    assert facts(on_five("few sites")) == facts(trained(*FEW_SITES))


MACHINES = {  # {machines of five ranks: (index of every rank among the hosts of its machine, ranks of that of rank 0)}
    "one": ([0, 0, 1, 2, 3], 5),
    "two": ([0, 0, 0, 1, 1], 3),
    "five": ([0, 0, 0, 0, 0], 1),
    "unshared": ([0, 0, 1, 2, 3], 1),
}


@pytest.mark.mpi
@pytest.mark.parametrize("transport", ["mpi", "nccl"])
@pytest.mark.parametrize("machines", MACHINES)
def test_every_transport_keeps_the_contract(transport, machines, on_ranks):
    """Also where one rank cannot map the shared memory: every rank then counts as a machine of its own."""
    files = [on_ranks(5)[0] / f"{transport}-{machines}-{rank}.json" for rank in range(5)]
    first, *others = [json.loads(file.read_text()) for file in files]
    local_hosts, size = MACHINES[machines]
    assert first["node"] == size
    for rank, seen in enumerate([first, *others]):
        assert seen["hosts"] == [1, 2, 3, 4]
        assert seen["local_host"] == local_hosts[rank]
        assert seen["decided"] == [1, 0, 1, 2] and seen["long"] == [50_000, sum(range(50_000))]
        # ranks 1 + 2 + 3 + 4 = 10, 4 x 2^40, -10; halved by the step
        assert seen["params"] == [5.0, 2.0**41, -5.0] and seen["dtype"] == "torch.float32"
    assert first["is_aggregator"] and first["errors"] == ["policy.k: too large"] * 3
    assert first["gathered"] == [0, 1, 4, 9, 16]
    assert first["tail"] == [4, 100] and first["total"] == [5, 10]
    assert first["rows"] == {"2": [1.5] * 3, "4": [2.5] * 3, "6": [3.5] * 3, "8": [4.5] * 3}
    for rank, seen in enumerate([first, *others]):
        before = {1: 4, 2: 1, 3: 2, 4: 3}.get(rank)
        assert seen["scattered"] == ({str(2 * before): [before + 0.5] * 3} if before else {})
        if transport == "mpi":
            assert seen["sums"] == [True] * 6 and seen["broadcasts"] == [True] * 3 and seen["in any order"]
    for seen in others:
        assert not seen["is_aggregator"] and seen["errors"] == [2, 2, 2]
        assert seen["gathered"] is seen["tail"] is seen["total"] is seen["rows"] is None


def test_one_process_keeps_the_contract():
    seen = collectives(SerialRanks())
    assert seen["is_aggregator"] and seen["hosts"] == [0] and seen["gathered"] == [0]
    assert seen["errors"] == ["policy.k: too large"] * 3
    assert seen["rows"] == seen["scattered"] == {0: [0.5] * 3}
    assert seen["params"] == [0.0, 2.0**39, 0.0] and seen["tail"] == [1, 0] and seen["total"] == [1, 0]


@pytest.mark.mpi
@pytest.mark.parametrize(("n", "rank", "kind"), [(5, 3, "workload"), (2, 0, "policy")])
def test_a_rank_that_raises_ends_the_job_with_its_traceback(n, rank, kind, launch, tiny, tmp_path, capsys):
    raised, out = tmp_path / "raised", tmp_path / "run.h5"
    lines = [f"plugins=['{HERE / 'faulty.py'}']", "stop.max_rounds=1000"]
    lines += ["policy.kind=faulty"] if kind == "policy" else ["policy.kind=all"]
    faulty = tmp_path / "faulty.toml"  # a file, because a changed kind drops the keys of the workload below
    faulty.write_text(FAULTY_WORKLOAD)
    ended = launch(
        n,
        tiny,
        *([faulty] if kind == "workload" else []),
        *arguments(lines),
        "--out",
        out,
        env={"FAULTY_RANK": str(rank), "FAULTY_FILE": str(raised)},
    )
    took_s = time.time() - float(raised.read_text())
    with capsys.disabled():
        print(f" [the job ended {took_s:.1f} s after rank {rank} had raised] ", end="")
    assert ended.code != 0
    assert f"hpctrip: rank {rank} on " in ended.err and "failed and ends the job" in ended.err
    assert "Traceback" in ended.err and "RuntimeError: broken on purpose" in ended.err
    assert ended.err.count("Traceback") == 1
    assert took_s < ENDS_WITHIN_S
    run = open_run(out)
    assert len(run.rounds) >= 1
    if rank == 0:  # who writes the file can say so there
        assert "round    1 " in ended.out
        assert run.meta["status"] == "failed" and "broken on purpose" in run.meta["stop_reason"]


def gpus(*uuids, machines="mmmmm"):
    """The facts of rank 0, which has no GPU, and of hosts with these GPUs."""
    ranks = enumerate(zip(machines, ["", *uuids], strict=False))
    return [(machine, uuid, max(rank - 1, 0), len({*uuids} - {""})) for rank, (machine, uuid) in ranks]


@pytest.mark.parametrize(
    ("ranks", "lacking"),
    [
        (gpus("", ""), ["rank 1, host 1 of m", "rank 2, host 2 of m"]),
        (gpus("a", "a"), ["rank 2, host 2 of m"]),
        (gpus("a", "b"), []),
        (gpus("a", "a", machines="mmn"), []),
    ],
)
def test_nccl_takes_a_gpu_for_every_host(ranks, lacking, monkeypatch):
    hosts = range(1, 3)
    monkeypatch.delenv("HPCTRIP_TORCH_BACKEND", raising=False)
    assert lacking or choose_backend(ranks, hosts) == "nccl"
    assert choose_backend(gpus("", ""), hosts) == "gloo"
    monkeypatch.setenv("HPCTRIP_TORCH_BACKEND", "nccl")
    if lacking:
        with pytest.raises(InputError) as refused:
            choose_backend(ranks, hosts)
        assert [
            fault.problem.partition(", has no GPU of its own")[0] for fault in refused.value.faults
        ] == lacking


@pytest.mark.mpi
def test_nccl_with_more_hosts_than_gpus_is_one_report_and_no_hang(launch, tiny, tmp_path):
    lines = ["ranks.transport=nccl", f"plugins=['{HERE / 'gpus.py'}']"]
    ended = launch(3, tiny, *arguments(lines), "--out", tmp_path / "run.h5", env={"GPUS": "1"})
    assert ended.code == 2 and "Abort" not in ended.err, ended.err
    (line,) = ended.report
    assert 'ranks.transport = "nccl": rank 2, host 2 of ' in line and "(1 there)" in line
    assert "launch one host per GPU" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mpi
def test_the_watchdog_sees_hosts_that_do_not_get_into_their_group(launch, tiny, tmp_path):
    """Each has a GPU of its own and sees no other, as under --gpus-per-task; rank 0 sees none."""
    lines = ["ranks.transport=nccl", f"plugins=['{HERE / 'gpus.py'}']", "watchdog.limit_s=2"]
    env = {"GPUS": "0", "GPUS_PER_TASK": "1"}
    ended = launch(3, tiny, *arguments(lines), "--out", tmp_path / "run.h5", env=env)
    assert ended.code != 0 and "busy with start of round 0" in ended.err and "nccl.py" in ended.err


@pytest.mark.mpi
def test_training_that_diverges_on_one_host_ends_all_with_one_line_and_the_last_good_checkpoint(
    launch, tiny, tmp_path
):
    out, faulty = tmp_path / "run.h5", tmp_path / "faulty.toml"
    faulty.write_text(FAULTY_WORKLOAD)
    lines = [f"plugins=['{HERE / 'faulty.py'}']", "policy.kind=all", "checkpoint.every_rounds=1"]
    env = {"FAULTY_RANK": "3", "FAULTY_NAN": "yes"}
    ended = launch(5, tiny, faulty, *arguments(lines), "--out", out, env=env)
    assert ended.code == 3 and "Traceback" not in ended.err, ended.err
    (line,) = ended.report
    assert "hpctrip: site " in line and "(and 1 more), round 2: the training loss or an entry" in line
    run = open_run(out)
    assert run.meta["status"] == "failed" and run.meta["stop_reason"].startswith("DivergedError: site ")
    assert len(run.rounds) == 1 and newest(out)[0].state.round == 1


def test_diverged_training_in_one_process_is_one_line_too(hpctrip, tiny, tmp_path):
    ended = hpctrip("run", tiny, "-o", "train.lr=1e30", "--out", tmp_path / "run.h5")
    assert ended.code == 3 and len(ended.report) == len(ended.err.splitlines()) == 1
    assert "round 1: the training loss or an entry of the update is not finite" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_mpi_does_not_see_are_a_fault(launch, tiny, tmp_path):
    """As when the mpirun of one MPI starts an mpi4py of another: three processes, each alone."""
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    ended = launch(0, tiny, "--out", tmp_path / "run.h5", env={"PMI_SIZE": "3"})
    assert ended.code == 2 and len(ended.report) == 1, ended.err
    assert (
        "the launcher started 3 ranks, but MPI sees only 1" in ended.err and "use the mpirun of" in ended.err
    )
    assert list(tmp_path.iterdir()) == []
