"""One seed gives one result on any number of ranks, whatever carries it; a rank that fails ends the job at once."""

from __future__ import annotations

import functools
import json
import shlex
import time
from pathlib import Path

import pytest

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
    "stop.max_rounds=5",
)
FAULTY_WORKLOAD = '[workload]\nkind = "faulty"\ntrain_samples = 400\ntest_samples = 200\n'
STACKED = (*SCENARIO, "engine.name=stacked", "engine.sites_per_block=4", "stop.max_rounds=2")
ADAPTIVE = (*SCENARIO, "policy.kind=goodput", "policy.local_work=adaptive", "stop.max_rounds=3")
LANES = (*SCENARIO, "engine={name = 'stacked', lanes = 4}", "policy.kind=all", "stop.max_rounds=2")
TOP_K = (*SCENARIO, "policy.kind=all", "engine.sites_per_block=2", "compression.kind=top-k")
FEW_SITES = (*SCENARIO, "sites.num_sites=3")
ON_FIVE = {
    "stacked": STACKED,
    "nccl": (*SCENARIO, "ranks.transport=nccl"),
    "few sites": FEW_SITES,
    "top-k": (*TOP_K, "ranks.transport=nccl"),
}
"""Further inputs that five ranks run."""


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


@pytest.fixture(scope="module")
def serial(trained):
    return trained(*SCENARIO)


def test_the_scenario_says_something(serial):
    assert len(serial.rounds) == 5 and serial.meta["num_ranks"] == 1 and serial.meta["transport"] == "serial"
    assert serial.rounds["accuracy"].isna().tolist() == [True, False, True, False, False]
    assert serial.sites["num_samples"].nunique() > 5
    assert serial.rounds["num_sites"].max() > 4  # more sites than hosts


@pytest.fixture(scope="module")
def scenarios(tiny_workloads):
    """Name -> `-o` lines: every workload, KWT-1 and its AdamW in stacked blocks too, blocks sized for four hosts, local
    work that is chosen by what training tells."""
    others = {name: (*lines, "stop.max_rounds=2") for name, lines in tiny_workloads.items()}
    stacked = ("engine.name=stacked", "engine.sites_per_block=4")
    return {
        "emnist": SCENARIO,
        **others,
        "speech stacked": (*others["speech"], *stacked),
        "lanes": LANES,
        "adaptive": ADAPTIVE,
    }


@pytest.fixture(scope="module")
def in_one_process(trained, scenarios):
    return {name: trained(*lines) for name, lines in scenarios.items()}


@pytest.fixture(scope="module")
def on_ranks(launch, tiny, scenarios, tmp_path_factory):
    """`on_ranks(n)`: one launch that shows every transport and makes several runs; what each of them said, by name, and
    the folder with the results."""

    @functools.cache
    def launched(n):
        folder = tmp_path_factory.mktemp("ranks")
        files = {
            folder / f"{name}.h5": lines for name, lines in (scenarios | (ON_FIVE if n == 5 else {})).items()
        }
        lines = [
            shlex.join(["run", str(tiny), *arguments(lines), "--out", str(file)])
            for file, lines in files.items()
        ]
        ended = launch(n, folder, *lines, script=HERE / "on_ranks.py", env=GLOO)
        assert ended.code == 0, ended.err
        outputs, rest = {}, ended.out
        for file in files:
            outputs[file.stem], _, rest = rest.partition(f"results: {file}\n")
        return outputs, folder

    return launched


@pytest.mark.mpi
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_result_is_the_same_to_the_bit_on_any_number_of_ranks(n, on_ranks, in_one_process):
    """Every workload, in one launch."""
    outputs, folder = on_ranks(n)
    for name, expected in in_one_process.items():
        run = open_run(folder / f"{name}.h5")
        assert run.meta["num_ranks"] == n and run.meta["transport"] == ("mpi" if n > 1 else "serial")
        assert f"model digest {expected.meta['params_digest']}" in outputs[name]
        assert facts(run) == facts(expected), name


def test_the_local_work_of_that_scenario_is_another_from_round_to_round(in_one_process):
    assert in_one_process["adaptive"].rounds["local_work"].nunique() > 1


def test_blocks_for_four_hosts_are_no_larger_than_three_of_ten_sites_and_recorded(in_one_process):
    meta = in_one_process["lanes"].meta
    assert meta["blocks"] == "blocks of at most 32 sites, to fill 4 lanes" and meta["sites_per_block"] == 3
    assert in_one_process["emnist"].meta["blocks"] == "blocks of 1 site"


@pytest.fixture(scope="module")
def on_five(on_ranks):
    """The folder with what five ranks made."""
    return on_ranks(5)[1]


@pytest.mark.mpi
def test_a_run_says_once_how_many_hosts_have_nothing_to_train(on_ranks):
    outputs = on_ranks(5)[0]
    notes = {name: [line for line in outputs[name].splitlines() if "hosts idle;" in line] for name in ON_FIVE}
    # the last run's blocks fill four hosts in its first round
    assert {name: len(lines) for name, lines in notes.items()} == {
        "stacked": 1,
        "nccl": 1,
        "few sites": 1,
        "top-k": 0,
    }
    assert notes["stacked"][0] == (
        "note: 4 hosts, but at most 1 block in round 1 (1 site, up to 1 in one): 3 hosts idle; "
        "use fewer ranks, unless cohorts grow"
    )


@pytest.mark.mpi
def test_stacked_blocks_of_four_give_the_same_bits_on_five_ranks(on_five, trained):
    run = open_run(on_five / "stacked.h5")
    assert run.meta["engine"] == "stacked" and run.meta["num_ranks"] == 5
    assert facts(run) == facts(trained(*STACKED))


@pytest.mark.mpi
def test_the_nccl_transport_gives_the_same_bits_as_mpi(on_five, serial):
    """Over gloo, which exercises every line but the backend's own on machines without GPUs."""
    run = open_run(on_five / "nccl.h5")
    assert run.meta["transport"] == "nccl"
    assert facts(run) == facts(serial)


@pytest.fixture(scope="module")
def with_residuals(trained):
    return trained(*TOP_K)


@pytest.mark.mpi
def test_residuals_kept_at_their_hosts_give_the_same_bits_on_five_ranks(on_five, with_residuals):
    assert facts(open_run(on_five / "top-k.h5")) == facts(with_residuals)


@pytest.mark.mpi
def test_residuals_move_with_their_sites_from_three_ranks_to_two(with_residuals, launch, tiny, tmp_path):
    path, lines = tmp_path / "run.h5", (*TOP_K, "checkpoint.every_rounds=1")
    first = launch(3, tiny, *arguments((*lines, "stop.max_rounds=2")), "--out", path)
    assert first.code == 0, first.err
    second = launch(2, "resume", path, *arguments(["stop.max_rounds=5", "ranks.transport=nccl"]))
    assert second.code == 0, second.err
    assert facts(open_run(path)) == facts(with_residuals)


@pytest.mark.mpi
def test_hosts_without_a_block_do_no_harm(on_five, trained):
    assert facts(open_run(on_five / "few sites.h5")) == facts(trained(*FEW_SITES))


@pytest.fixture(scope="module")
def on_machines(on_ranks, launch, tmp_path_factory):
    """`on_machines(name)`: what five ranks saw of every transport, by file name; on so many machines."""

    @functools.cache
    def seen(machines):
        if machines == "one":
            folder = on_ranks(5)[1]
        else:
            folder = tmp_path_factory.mktemp("machines")
            ended = launch(5, folder, script=HERE / "on_ranks.py", env=GLOO | MACHINES[machines][0])
            assert ended.code == 0, ended.err
        results = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
        if machines != "one" and "MPICH" not in results["mpi-0"]["library"]:
            pytest.skip("only MPICH pretends to be on several machines")
        return results

    return seen


MACHINES = {  # MPICH can pretend that ranks are on several machines; local_host of every rank then
    "one": ({}, [0, 0, 1, 2, 3]),
    "two": ({"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"}, [0, 0, 0, 1, 1]),
    "five": ({"MPIR_CVAR_NOLOCAL": "1"}, [0, 0, 0, 0, 0]),
}


@pytest.mark.mpi
@pytest.mark.parametrize("transport", ["mpi", "nccl"])
@pytest.mark.parametrize("machines", MACHINES)
def test_every_transport_keeps_the_contract(transport, machines, on_machines):
    first, *others = [on_machines(machines)[f"{transport}-{rank}"] for rank in range(5)]
    for rank, seen in enumerate([first, *others]):
        assert seen["hosts"] == [1, 2, 3, 4]
        assert seen["local_host"] == MACHINES[machines][1][rank]
        assert seen["told"] == [1, 0, 1, 2] and seen["long"] == [50_000, sum(range(50_000))]
        # ranks 1 + 2 + 3 + 4 = 10, 4 x 2^40, -10; halved by the step
        assert seen["params"] == [5.0, 2.0**41, -5.0] and seen["dtype"] == "torch.float32"
    assert first["is_aggregator"] and first["errors"] == ["policy.k: too large"] * 3
    assert first["gathered"] == [0, 1, 4, 9, 16]
    assert first["tail"] == [4, 100] and first["total"] == [5, 10]
    assert first["rows"] == {"2": [1.5] * 3, "4": [2.5] * 3, "6": [3.5] * 3, "8": [4.5] * 3}
    for rank, seen in enumerate([first, *others]):
        before = {1: 4, 2: 1, 3: 2, 4: 3}.get(rank)
        assert seen["given"] == ({str(2 * before): [before + 0.5] * 3} if before else {})
    for seen in others:
        assert not seen["is_aggregator"] and seen["errors"] == [2, 2, 2]
        assert seen["gathered"] is seen["tail"] is seen["total"] is seen["rows"] is None


def test_one_process_keeps_the_contract(launch, tmp_path):
    ended = launch(0, tmp_path, script=HERE / "on_ranks.py")
    assert ended.code == 0, ended.err
    seen = json.loads((tmp_path / "serial-0.json").read_text())
    assert seen["is_aggregator"] and seen["hosts"] == [0] and seen["gathered"] == [0]
    assert seen["errors"] == ["policy.k: too large"] * 3
    assert seen["rows"] == seen["given"] == {"0": [0.5] * 3}
    assert seen["params"] == [0.0, 2.0**39, 0.0] and seen["tail"] == [1, 0] and seen["total"] == [1, 0]


@pytest.mark.mpi
@pytest.mark.parametrize(("rank", "kind"), [(3, "workload"), (0, "policy")])
def test_a_rank_that_raises_ends_the_job_with_its_traceback(rank, kind, launch, tiny, tmp_path, capsys):
    raised, out = tmp_path / "raised", tmp_path / "run.h5"
    lines = [f"plugins=['{HERE / 'faulty.py'}']", "stop.max_rounds=1000"]
    lines += ["policy.kind=faulty"] if kind == "policy" else ["policy.kind=all"]
    faulty = tmp_path / "faulty.toml"  # a file, because a changed kind drops the keys of the workload below
    faulty.write_text(FAULTY_WORKLOAD)
    ended = launch(
        5,
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


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("num_gpus", "lacking"), [(0, ["rank 1, host 1", "rank 2, host 2"]), (1, ["rank 2, host 2"])]
)
def test_nccl_with_more_hosts_than_gpus_is_one_report_and_no_hang(num_gpus, lacking, launch, tiny, tmp_path):
    lines = ["ranks.transport=nccl", f"plugins=['{HERE / 'gpus.py'}']"]
    env = {"HPCTRIP_TORCH_BACKEND": "nccl", "GPUS": str(num_gpus)}
    ended = launch(3, tiny, *arguments(lines), "--out", tmp_path / "run.h5", env=env)
    assert ended.code == 2 and "Abort" not in ended.err, ended.err
    assert len(ended.report) == len(lacking)
    for line, host in zip(ended.report, lacking, strict=True):
        assert f'ranks.transport = "nccl": {host} of ' in line and f"({num_gpus} there)" in line
        assert "launch one host per GPU" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mpi
@pytest.mark.parametrize("gpus", [{"GPUS": "2"}, {"GPUS": "0", "GPUS_PER_TASK": "1"}], ids=["shared", "own"])
def test_the_watchdog_sees_hosts_that_do_not_get_into_their_group(gpus, launch, tiny, tmp_path):
    """Each has a GPU of its own, whether it sees the others' or, as under --gpus-per-task, only its own, so nothing is
    refused; rank 0 may see none."""
    lines = ["ranks.transport=nccl", f"plugins=['{HERE / 'gpus.py'}']", "watchdog.limit_s=2"]
    ended = launch(3, tiny, *arguments(lines), "--out", tmp_path / "run.h5", env=gpus)
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
    assert len(run.rounds) == 1 and newest(out)[0].round == 1


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
