"""One seed gives one result on any number of ranks, whatever carries it; a rank that fails ends the job at once."""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

import pytest
from on_ranks import check_collectives

from hpctrip.base.errors import InputError
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.nccl import choose_backend, shared_store
from hpctrip.ranks.transport import open_ranks
from hpctrip.record.checkpoint import newest
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
STACKED = (*SCENARIO, "engine.name=stacked", "engine.sites_per_block=4", "stop.max_rounds=2")
GOODPUT = (*SCENARIO, "workload.train_samples=400", "policy.kind=goodput")
ADAPTIVE = (*SCENARIO, "policy.kind=goodput", "policy.local_work=adaptive")
LANES = (*SCENARIO, "engine={name = 'stacked', lanes = 4}", "policy.kind=all", "stop.max_rounds=2")
TOP_K = (*SCENARIO, "policy.kind=all", "engine.sites_per_block=2", "compression.kind=top-k")
POINTS = (
    f"plugins=['{HERE.parent / 'points.py'}']",
    "workload={kind='points', train_samples=400, test_samples=200, dropout=0.5}",
    "policy.kind=all",
)
"""A model with buffers and dropout."""
FEW_SITES = (*SCENARIO, "sites.num_sites=3")
FRAGMENTS = (
    "policy.kind=all",
    "train={local_steps=2, batch_size=4, warmup_steps=3, clip_norm=1.0}",
    "overlap={fragments=2, steps=1, blend=0.5}",
    "compression={kind='top-k', fraction=0.5}",
)
"""A few steps between exchanges of half of the model, whose errors sites keep."""
FEW = 4
"""Number of scenarios that two ranks run: the first ones."""
ON_FIVE = {
    "resumed": (*TOP_K, "checkpoint.every_rounds=1", "stop.max_rounds=2"),
    "stacked": STACKED,
    "nccl": (*GOODPUT, "ranks.transport=nccl"),
    "few sites": FEW_SITES,
    "top-k": (*TOP_K, "ranks.transport=nccl"),
}
"""Further inputs that five ranks run; two ranks resume the first one."""
PLUGIN = f"plugins=['{HERE / 'faulty.py'}']"
FAULTY = (PLUGIN, "workload={kind='faulty', train_samples=400, test_samples=200}", "policy.kind=all")
SLOW = {
    5: {
        "slow": (
            (*FAULTY, "ranks.transport=nccl", "watchdog.exchange_s=1", "stop.max_rounds=2"),
            {"FAULTY_RANK": "3", "FAULTY_SLEEP_S": "4"},
        )
    },
    2: {},
}
"""As FAILING, but it ends well."""
FAILING = {
    5: {
        "diverged": ((*FAULTY, "checkpoint.every_rounds=1"), {"FAULTY_RANK": "3", "FAULTY_NAN": "yes"}),
        "refused": (
            ("ranks.transport=nccl", f"plugins=['{HERE / 'gpus.py'}']"),
            {"GPUS": "1", "HPCTRIP_TORCH_BACKEND": ""},
        ),
        "broken": ((*FAULTY, "stop.max_rounds=1000"), {"FAULTY_RANK": "3"}),
    },
    2: {"broken": ((PLUGIN, "policy.kind=faulty", "stop.max_rounds=1000"), {"FAULTY_RANK": "0"})},
}
"""{number of ranks: {name: (lines, environment)}}; the last one breaks a rank down, which ends the launch."""


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
def scenarios(tiny_workloads):
    """Name -> `-o` lines: every workload (but language models: see test_llm.py), KWT-1 and its AdamW in stacked blocks
    too, blocks sized for four hosts, local work that is chosen by the numbers that training reports, sites with models
    of their own, a plug-in's model with buffers and dropout."""
    others = {name: (*lines, "stop.max_rounds=2") for name, lines in tiny_workloads.items() if name != "llm"}
    stacked = ("engine.name=stacked", "engine.sites_per_block=4")
    return {
        "emnist": SCENARIO,
        "points": POINTS,
        "lanes": LANES,
        "adaptive": ADAPTIVE,
        "fragments": FRAGMENTS,
        **others,
        "speech stacked": (*others["speech"], *stacked),
    }


@pytest.fixture(scope="module")
def in_one_process(trained, scenarios):
    return {name: trained(*lines) for name, lines in scenarios.items()}


@pytest.fixture(scope="module")
def on_ranks(launch, tiny, scenarios, tmp_path_factory):
    """`on_ranks(n)`: the only launch of n ranks. Five ranks also try the transports, begin a run that two resume, and
    make runs that fail."""

    @functools.cache
    def launched(n):
        folder = tmp_path_factory.mktemp("ranks")
        inputs = scenarios | ON_FIVE if n == 5 else dict(list(scenarios.items())[:FEW])
        others = SLOW[n] | FAILING[n]
        inputs |= {name: lines for name, (lines, _) in others.items()}
        commands = {
            name: ["run", tiny, *arguments(lines), "--out", folder / f"{name}.h5"]
            for name, lines in inputs.items()
        }
        if n == 2:
            begun, more = launched(5).folder / "resumed.h5", ["stop.max_rounds=3", "ranks.transport=nccl"]
            commands = {"resumed": ["resume", begun, *arguments(more)], **commands}
        env = GLOO | {"FAULTY_FILE": str(folder / "raised")}
        return launch.commands(n, folder, commands, {name: env for name, (_, env) in others.items()}, env=env)

    return launched


@pytest.mark.mpi
@pytest.mark.parametrize("n", [5, 2])
def test_the_result_is_the_same_to_the_bit_on_any_number_of_ranks(n, on_ranks, in_one_process):
    """Every workload on five ranks; on two, where blocks have other hosts, one."""
    launched = on_ranks(n)
    for name, expected in list(in_one_process.items())[: None if n == 5 else FEW]:
        assert launched.codes(name) == [0] * n, launched.output(name, "err")
        run = launched.run(name)
        assert run.meta["num_ranks"] == n and run.meta["transport"] == "mpi"
        assert f"model digest {expected.meta['params_digest']}" in launched.output(name)
        assert facts(run) == facts(expected), name


def test_a_launcher_of_one_rank_needs_no_mpi(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "1")
    assert type(open_ranks()) is Ranks


def test_processes_of_torchrun_are_refused_before_a_file_is_locked(monkeypatch, hpctrip, folder, files_in):
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "3", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    hpctrip("run", "smoke", "--out", "run.h5").check_refused(
        ["torchrun: has started 3 processes", "start them by mpirun -n 3"]
    )
    assert not files_in(folder)
    assert hpctrip("check", "smoke").code == 0


def test_threads_above_the_cores_of_a_rank_are_warned_of_with_the_way_out(monkeypatch, hpctrip, folder):
    """As under Open MPI's mpirun, which binds each rank to one core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    lines = ("-o", "ranks.threads=2", "-o", "stop.max_rounds=1", "-o", "workload.train_samples=40")
    warning = "ranks.threads = 2, but 1 core may be used by a rank, which slows it down: add --bind-to none"
    ran = hpctrip("run", "smoke", *lines, "--out", "run.h5")
    assert ran.code == 0 and f"warning: {warning}" in ran.out + ran.err
    assert warning in " ".join(hpctrip("plan", "smoke", *lines).out.split())
    ran = hpctrip("run", "smoke", *lines, "-o", "ranks.threads=1", "--out", "one.h5")
    assert "ranks.threads" not in ran.out + ran.err


def test_the_scenarios_have_unlike_sites_rounds_and_work(in_one_process):
    serial, adaptive, lanes = (in_one_process[name] for name in ("emnist", "adaptive", "lanes"))
    assert len(serial.rounds) == 3 and serial.meta["num_ranks"] == 1 and serial.meta["transport"] == "serial"
    assert serial.rounds["accuracy"].isna().tolist() == [True, False, False]
    assert serial.sites["num_samples"].nunique() > 5
    assert serial.rounds["num_sites"].max() > 4  # more sites than hosts
    assert adaptive.rounds["local_work"].nunique() > 1
    assert serial.meta["blocks"] == "blocks of 1 site"
    assert lanes.meta["blocks"] == "blocks of at most 32 sites, to fill 4 lanes"
    assert lanes.meta["sites_per_block"] == 3


@pytest.mark.mpi
def test_a_run_says_once_how_many_hosts_have_nothing_to_train(on_ranks):
    output = {name: on_ranks(5).output(name).splitlines() for name in ON_FIVE}
    notes = {name: [line for line in lines if "hosts idle;" in line] for name, lines in output.items()}
    # the last run's blocks fill four hosts in its first round
    expected = {"resumed": 0, "stacked": 1, "nccl": 0, "few sites": 1, "top-k": 0}
    assert {name: len(lines) for name, lines in notes.items()} == expected
    assert notes["stacked"][0] == (
        "note: 4 hosts, but at most 1 block in round 1 (1 site, up to 1 in one): 3 hosts idle; "
        "use fewer ranks, unless cohorts grow"
    )


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "lines", "num_ranks", "transport"),
    [
        ("stacked", STACKED, 5, "mpi"),
        # over gloo, which exercises every line but the backend's own on machines without GPUs
        ("nccl", GOODPUT, 5, "nccl"),
        # hosts without a block
        ("few sites", FEW_SITES, 5, "mpi"),
        # residuals are kept at their hosts, and move with their sites where two ranks resume what five have begun
        ("top-k", TOP_K, 5, "nccl"),
        ("resumed", TOP_K, 2, "nccl"),
    ],
)
def test_other_engines_transports_and_cohorts_give_the_same_bits(
    name, lines, num_ranks, transport, on_ranks, trained
):
    on_ranks(num_ranks)
    run = on_ranks(5).run(name)
    assert run.meta["num_ranks"] == num_ranks and run.meta["transport"] == transport
    assert run.meta["engine"] == ("stacked" if name == "stacked" else "sequential")
    assert facts(run) == facts(trained(*lines))


@pytest.mark.mpi
def test_every_transport_keeps_the_contract_on_any_machines(on_ranks):
    """See `on_ranks.py`, which checks it."""
    assert on_ranks(5).codes("transports") == [0] * 5, on_ranks(5).ended.err


def test_one_process_keeps_the_contract():
    check_collectives(Ranks())


@pytest.mark.mpi
@pytest.mark.parametrize(("n", "rank"), [(5, 3), (2, 0)])
def test_a_rank_that_raises_ends_the_job_with_its_traceback(n, rank, on_ranks, capsys):
    """In the midst of its training on a host; in the policy at rank 0."""
    launched = on_ranks(n)
    took_s = launched.ended_at - float((launched.folder / "raised").read_text())
    with capsys.disabled():
        print(f" [the job ended {took_s:.1f} s after rank {rank} had raised] ", end="")
    err = launched.output("broken", "err")
    assert launched.ended.code != 0 and launched.codes("broken") == []
    assert f"hpctrip: rank {rank} on " in err and "failed and ends the job" in err
    assert "RuntimeError: broken on purpose" in err and err.count("Traceback") == 1
    assert took_s < ENDS_WITHIN_S
    run = launched.run("broken")
    assert len(run.rounds) >= 1
    if rank == 0:  # it writes the file and can record the reason
        assert "round    1 " in launched.output("broken")
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
    monkeypatch.setenv("HPCTRIP_TORCH_BACKEND", "glue")
    with pytest.raises(
        InputError, match='HPCTRIP_TORCH_BACKEND=glue: is not a backend; use "nccl" or "gloo"'
    ):
        choose_backend(ranks, hosts)


@pytest.mark.mpi
def test_nccl_with_more_hosts_than_gpus_is_one_report_and_no_hang(on_ranks):
    launched = on_ranks(5)
    report = launched.output("refused", "err").splitlines()
    assert launched.codes("refused") == [2] * 5 and len(report) == 3
    for rank, line in enumerate(report, start=2):
        assert f'hpctrip: ranks.transport = "nccl": rank {rank}, host {rank} of ' in line
        assert "(1 there)" in line and "launch one host per GPU" in line
    assert not (launched.folder / "refused.h5").exists()


@pytest.mark.mpi
def test_the_watchdog_sees_a_host_that_does_not_get_into_its_group(launch, tiny, tmp_path):
    """It has a GPU of its own and sees no other, as under --gpus-per-task; rank 0 sees none."""
    lines = ["ranks.transport=nccl", f"plugins=['{HERE / 'gpus.py'}']", "watchdog.limit_s=2"]
    env = {"GPUS": "0", "GPUS_PER_TASK": "1"}
    ended = launch(2, tiny, *arguments(lines), "--out", tmp_path / "run.h5", env=env)
    assert ended.code != 0 and "every rank heard of waits, for " in ended.err and "nccl.py" in ended.err


@pytest.mark.mpi
def test_hosts_that_wait_for_a_slower_one_are_not_taken_for_stuck(on_ranks):
    """The slow one trains for longer than the watchdog lets a host exchange, and than torch's collectives may take."""
    launched = on_ranks(5)
    assert launched.codes("slow") == [0] * 5, launched.output("slow", "err")
    assert launched.run("slow").rounds["train_wall_s"].max() > 4


class FakeComm:
    """The communicator of the first of two ranks; `broadcast` is called with what it broadcasts."""

    rank, size = 0, 2

    def __init__(self, broadcast):
        self._broadcast = broadcast

    def bcast(self, address):
        self._broadcast(address)
        return address


def test_the_port_of_the_hosts_store_is_taken_before_others_learn_of_it():
    shared_store(FakeComm(lambda address: socket.create_connection(address).close()))


@pytest.mark.mpi
def test_training_that_diverges_on_one_host_ends_all_with_one_line_and_the_last_good_checkpoint(on_ranks):
    launched = on_ranks(5)
    (line,) = launched.output("diverged", "err").splitlines()
    assert launched.codes("diverged") == [3] * 5
    assert "hpctrip: site " in line and "(and 1 more), round 2: the training loss is not finite" in line
    run = launched.run("diverged")
    assert run.meta["status"] == "failed" and run.meta["stop_reason"].startswith("DivergedError: site ")
    assert len(run.rounds) == 1 and newest(run.path)[0].state.round == 1


def test_diverged_training_in_one_process_is_one_line_too(hpctrip, tiny, tmp_path):
    ended = hpctrip(
        "run", tiny, "-o", "train.lr=1e30", "-o", "train.local_steps=2", "--out", tmp_path / "run.h5"
    )
    assert ended.code == 3 and len(ended.report) == len(ended.err.splitlines()) == 1
    assert "round 1: the training loss is not finite or changes by more than 1.04858e+06" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_mpi_does_not_see_are_a_fault(launch, tiny, tmp_path):
    """As when the mpirun of one MPI starts an mpi4py of another: three processes, each alone."""
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    ended = launch(0, tiny, "--out", tmp_path / "run.h5", env={"PMI_SIZE": "3", "SLURM_STEP_ID": "0"})
    assert ended.code == 2 and len(ended.report) == 1, ended.err
    assert "the launcher started 3 ranks, but MPI sees only 1" in ended.err
    assert "; use srun --mpi=pmi" in ended.err and ", or the mpirun of " in ended.err
    assert list(tmp_path.iterdir()) == []


FREED = """
from contextlib import suppress
from hpctrip.ranks.mpi import MPI, MpiRanks
from hpctrip.ranks.nccl import NcclRanks

taken = []
with suppress(MPI.Exception):
    while len(taken) < 5000:
        taken.append(MPI.COMM_WORLD.Dup())
for comm in taken[-20:]:
    comm.Free()
for group in [MpiRanks] * 20 + [NcclRanks] * 5:
    with group() as ranks:
        assert ranks.decide_on_root(lambda: 5) == 5
print("opened", ranks.rank)
"""


def test_a_group_of_ranks_gives_its_communicators_back(launch, tmp_path):
    """MPICH has 2,048: a script that calls `hpctrip.run` again and again would run out of them."""
    (tmp_path / "freed.py").write_text(FREED)
    ended = launch(2, script=tmp_path / "freed.py")
    assert ended.code == 0 and sorted(ended.out.splitlines()) == ["opened 0", "opened 1"], ended.err
