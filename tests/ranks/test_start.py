"""The ranks of a machine start from one import, and live and die as if each had been launched by itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from processes import check_nothing_runs, processes_of

from hpctrip import __main__
from hpctrip.ranks import start
from hpctrip.ranks.start import VARIABLE
from hpctrip.ranks.watchdog.guardian import LIMIT

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(sys.platform != "linux", reason="shared starts are for Linux"),
]
ROOT = Path(__file__).parents[2]
TELLS = """
import os
from pathlib import Path
from hpctrip.base.process import launched_rank
facts = os.getppid(), sorted(os.sched_getaffinity(0)), os.environ.get("OWN")
(Path(os.environ["FACTS"]) / str(launched_rank())).write_text(repr(facts))
"""
FOREVER = ("-o", "stop.max_rounds=100000", "-o", "workload.test_samples=10")


@pytest.fixture
def facts(launch, tiny, tmp_path):
    """`facts(flags) -> ({rank: what a plug-in finds there}, number of processes that have imported torch)`."""

    def run(flags=()):
        folder = tmp_path / f"facts{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        plugin = folder / "plugin.py"
        plugin.write_text(TELLS)
        env = {VARIABLE: "1", "FACTS": str(folder), "PYTHONPROFILEIMPORTTIME": "1"}
        ended = launch(
            3, tiny, "--plugin", plugin, "--out", folder / "run.h5", "--overwrite", env=env, flags=flags
        )
        assert ended.code == 0, ended.err
        found = {int(file.name): eval(file.read_text()) for file in folder.glob("[0-9]")}
        return found, sum(line.split("|")[-1].strip() == "torch" for line in ended.err.splitlines())

    return run


def wrapper(tmp_path, *lines):
    """A shell script that does something as each rank, and then becomes it."""
    file = tmp_path / "wrapper.sh"
    rank = "rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"
    file.write_text("\n".join(["#!/bin/bash", rank, *lines, 'exec "$@"', ""]))
    file.chmod(0o755)
    return [str(file)]


@pytest.mark.skipif(os.cpu_count() < 2, reason="one processor")
def test_the_ranks_of_a_machine_import_torch_once_and_have_the_processors_that_the_launcher_gave_them(
    facts, tmp_path
):
    first, *_, last = sorted(os.sched_getaffinity(0))
    own = wrapper(tmp_path, f"if [ $rank = 1 ]; then taskset -cp {first} $$; else taskset -cp {last} $$; fi")
    shared, imports = facts(own)
    assert imports == 1 and len({parent for parent, *_ in shared.values()}) == 1
    given = {rank: processors for rank, (_, processors, _) in shared.items()}
    assert given == {0: [last], 1: [first], 2: [last]}


@pytest.mark.parametrize(("value", "shares"), [("1", True), ("0", False)])
def test_asked_to_each_rank_imports_for_itself(value, shares, monkeypatch):
    monkeypatch.setenv(VARIABLE, value)
    monkeypatch.setattr(start, "_local_job", lambda: ("job", 0))
    monkeypatch.setattr(start, "Guardian", MagicMock())
    monkeypatch.setattr(start, "_serve", serve := Mock(return_value=True))
    start.share_start(prepare := Mock())
    assert serve.called == shares and not prepare.called


@pytest.mark.parametrize(
    ("words", "shares"), [((), True), (("smoke",), True), (("resume", "a.h5"), True), (("keys",), False)]
)
def test_commands_that_run_on_ranks_share_the_start(words, shares, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hpctrip", *words])
    monkeypatch.setattr(__main__, "share_start", share := Mock())
    monkeypatch.setattr("hpctrip.cli.main.main", Mock())
    __main__.main()
    assert share.called == shares


def test_a_rank_whose_environment_differs_imports_for_itself(facts, tmp_path):
    shared, imports = facts(wrapper(tmp_path, "export OWN=$(($rank / 2))"))
    assert imports == 2
    assert [own for _, (_, _, own) in sorted(shared.items())] == ["0", "0", "1"]


ASKS = """
import torch
def asked(*_):
    raise AssertionError("CUDA cannot be used in a process forked from one that has asked for it")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = asked
from hpctrip.runner.preload import preload
preload()
import sys
assert "mpi4py.MPI" not in sys.modules
"""


def test_nothing_asks_for_a_gpu_or_mpi_before_the_fork():
    subprocess.run([sys.executable, "-c", ASKS], check=True, cwd=ROOT)


TORCH = """
import os, signal, sys, time
if not os.path.exists({mark!r}):
    open({mark!r}, "w").close()
    {fault}
sys.path.remove({folder!r})
del sys.modules["torch"]
import torch
"""


def broken_once(folder, fault):
    """An environment in which the first import of torch goes wrong, that of the server."""
    folder = folder / "broken"
    folder.mkdir()
    (folder / "torch.py").write_text(TORCH.format(mark=str(folder / "mark"), folder=str(folder), fault=fault))
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def test_ranks_import_for_themselves_where_the_server_dies_before_it_forks(launch, tiny, tmp_path):
    """With an error of its own, of which nothing is seen; killed, it would be silent anyway."""
    broken = broken_once(tmp_path, "raise ImportError('no torch')")
    ended = launch(2, tiny, "--out", tmp_path / "run.h5", env=broken)
    assert ended.code == 0 and ended.err == ""


@pytest.mark.parametrize(("ranks", "told"), [(0, "getpid"), (2, "getppid")])
def test_a_run_that_is_told_to_leave_while_it_imports_makes_a_round_and_leaves(
    launch, tiny, tmp_path, ranks, told
):
    """Of two ranks, the launched process of the first is told, which waits for its successor."""
    env = broken_once(tmp_path, f"os.kill(os.{told}(), signal.SIGTERM)")
    ended = launch(ranks, tiny, "--out", tmp_path / "run.h5", env=env)
    assert ended.code == 85 and len(ended.err.splitlines()) == 1, ended.err
    assert ended.report[0].startswith("hpctrip: interrupted after round 1: SIGTERM received by rank 0")


def test_a_server_that_never_comes_through_its_imports_ends_the_job_and_is_named(launch, tiny, tmp_path):
    env = broken_once(tmp_path, "time.sleep(1000)") | {LIMIT: "3", "MARK": str(tmp_path)}
    ended = launch(2, tiny, "--out", tmp_path / "run.h5", env=env)
    assert ended.code != 0
    assert ended.report[0].startswith("hpctrip: rank 0 ")
    assert ended.report[0].endswith("this rank loads Python packages")
    check_nothing_runs(str(tmp_path))


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def job(launch, tiny, tmp_path):
    """(mpirun, processes by their part) of a job of three ranks that is in its rounds, and would go on for long."""
    out = tmp_path / "run.h5"
    process = launch.start(3, tiny, *FOREVER, "--out", out, env={"MARK": str(tmp_path)})
    for _ in process.stdout:
        if out.exists():
            break
    ranks = launch.ranks(process)
    server = parent(ranks[0])
    launched = [pid for pid in processes_of(process.pid) if parent(pid) == parent(parent(server))]
    assert len(launched) == len(ranks) == 3 and {parent(pid) for pid in ranks} == {server}
    yield (
        process,
        {
            "mpirun": process.pid,
            "the launcher's process on this machine": parent(launched[0]),
            "the first launched process": launched[0],
            "the launched process of a host": launched[2],
            "the fork server": server,
            "rank 0": ranks[0],
            "rank 2": ranks[2],
        },
    )
    launch.kill(process)
    process.communicate()


@pytest.mark.parametrize(
    "killed",
    [
        "mpirun",
        "the launcher's process on this machine",
        "the first launched process",
        "the launched process of a host",
        "the fork server",
        "rank 0",
        "rank 2",
    ],
)
def test_nothing_is_left_of_a_job_of_which_one_process_is_killed(job, killed, tmp_path):
    process, parts = job
    os.kill(parts[killed], signal.SIGKILL)
    check_nothing_runs(str(tmp_path))
    assert process.wait(20) != 0
    if killed.startswith("rank"):
        name = f"hpctrip: {killed} on {os.uname().nodename}: its process {parts[killed]} died by SIGKILL"
        assert process.stderr.read().count(name) == 1


@pytest.mark.parametrize("told", ["the first launched process", "the launched process of a host"])
def test_a_signal_to_a_launched_process_reaches_its_rank(job, told, tmp_path):
    process, parts = job
    os.kill(parts[told], signal.SIGUSR2)
    assert process.wait(60) == 85
    rank = 0 if told == "the first launched process" else 2
    assert f"SIGUSR2 received by rank {rank}" in process.stderr.read()
    check_nothing_runs(str(tmp_path))
