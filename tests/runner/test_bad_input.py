"""Bad input ends with exit code 2, one clear line per fault, no traceback, and no file left behind."""

from __future__ import annotations

import pytest
import torch


def o(*lines):
    return [part for line in lines for part in ("-o", line)]


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Values and names: (-o lines, fragments of the one line that reports them)

STREAMING = ("policy.kind=all", "train.local_steps=3", "overlap.fragments=2")
VALUES = [
    (["sites.num_sitse=10"], ["sites.num_sitse: unknown key", "did you mean 'num_sites'?"]),
    (["netwrok.round_trip=true"], ["netwrok: unknown key", "did you mean 'network'?"]),
    (["policy.kind=all", "policy.k=3"], ["policy.k: unknown key; kinds with it: fedzero,"]),
    (["lr=0.3"], ["lr: unknown key; did you mean 'train.lr' or 'server.lr'?"]),
    (["policy.kind=powertrp"], ["policy.kind = 'powertrp': unknown policy", "did you mean 'powertrip'?"]),
    (["sites=3"], ["sites = 3: must be a table", "[sites]"]),
    (["policy=random"], ['must be a table; write policy.kind = "random", or -o policy.kind=random']),
    (["policy.kind=static", "policy.k=many"], ["policy.k = 'many'", "integer"]),
    (["name=a/b"], ["name = 'a/b'"]),
    (['network.near_bandwidth_bps="1 Gb"'], ["network.near_bandwidth_bps = '1 Gb'", "Gbit/s"]),
    (["network.update_bytes=-1"], ["network", "update_bytes = -1 is below 0"]),
    (
        ["faults.mtbf_s=60", "faults.mttr_s=1", "faults.deadline_s=1e9"],
        ["faults.deadline_s = 1000000000.0", "less than or equal to 315360000"],
    ),
    (
        ["workload.train_samples=100_000_000"],
        ["workload: 100,000,000 samples are asked for, but at most 10,000,000 glyphs are drawn"],
    ),
    (
        ["workload.kind=shakespeare", "workload.sentences={roles=100_000, characters=1_000_000}"],
        ["workload.sentences: roles x characters is 100,000,000,000, the most is 200,000,000"],
    ),
    (
        ["engine.sites_per_block=18446744073709551616"],
        ["engine.sites_per_block = 18446744073709551616", "less than or equal to 1000000000"],
    ),
    (
        ["network.update_bytes=1e300"],
        ["network.update_bytes = 1e+300", "less than or equal to 1000000000000000"],
    ),
    (["watchdog.limit_s=1e-321"], ["watchdog.limit_s = 1e-321", "equal to 0.1"]),
    (
        ["sites.kind=csv", "sites.path='~no_such_user_here/x'"],
        ["sites.path = '~no_such_user_here/x'", "names no file (Could not determine home directory.)"],
    ),
    (["train.lr=nan"], ["train.lr = nan", "finite"]),
    (["sites.num_sites=1000000000000000"], ["sites.num_sites = 1000000000000000"]),
    (["train.local_epochs=1e15"], ["train.local_epochs = 1000000000000000.0", "1000"]),
    (
        ["train.local_epochs=2", "train.local_steps=5"],
        ["train", "local_steps = 5 and local_epochs = 2: give one"],
    ),
    (["train.warmup_steps=2"], ["train", "warmup_steps and cosine_steps count steps", "give local_steps"]),
    (
        ["train={local_steps=1, warmup_steps=5, cosine_steps=5}"],
        ["train", "cosine_steps = 5 includes the warm-up: give more than warmup_steps = 5"],
    ),
    (
        ["rounds.kind=buffered", "train={local_steps=1, warmup_steps=5}"],
        ["rounds.kind", "has no common count of steps", "use synchronous rounds"],
    ),
    (
        ["overlap.fragments=2", "policy.kind=all"],
        ["overlap", "same number of steps", "set train.local_steps, and no"],
    ),
    (
        ["overlap.delayed=true"],
        ["policy.kind = 'powertrip'", "every site in every round", "set policy.kind = 'all'"],
    ),
    (["overlap={delayed=true, steps=1}"], ["overlap", "exchanges whole models", "leave fragments"]),
    (
        [*STREAMING, "overlap.steps=3"],
        ["overlap.steps = 3", "not below train.local_steps = 3", "lower it"],
    ),
    ([*STREAMING, "sites.num_sites=17"], ["overlap", "a model for each of 17 sites, the most is 16"]),
    ([*STREAMING, "rounds.kind=buffered"], ["rounds.kind = 'buffered'", "every site in every round"]),
    (
        [*STREAMING, "faults.deadline_s=9"],
        ["faults.deadline_s = 9", "every site in every round", "leave deadlines"],
    ),
    (
        [*STREAMING, "availability.batch={kind='queue', wait_s=5}"],
        ["availability", "every site in every round", "leave the tables"],
    ),
    (
        [*STREAMING, "train.prox_mu=1"],
        ["train.prox_mu = 1", "pulls sites to the global model", "leave it out"],
    ),
    ([*STREAMING, "timing.compute=measured"], ["timing.compute = 'measured'", "before it is run"]),
    ([*STREAMING, 'accounts.site_max_energy="1 kWh"'], ["accounts", "has spent its budget", "site_max_*"]),
    ([*STREAMING, "engine.name=stacked"], ['engine.name = "stacked"', "sites keep models of their own"]),
    (["partition.samples_per_site=21"], ["partition.samples_per_site", "210", "200", "at most 20"]),
    (["partition.kind=natural"], ["partition.kind: 'natural'", "use iid"]),
    (
        ["power.kind=constant", "power.fraction=0.5", "throughput.kind=gpus", "throughput.num_gpus=1"],
        ["power: ", "site(s) of the cohort have no power", "raise the power fractions"],
    ),
    (
        ["throughput.kind=curve", "throughput.gpu=A40", "throughput.path=x.csv"],
        ["throughput: gpu and path exclude each other"],
    ),
    (["accounts.currency=euro"], ["accounts.currency = 'euro'", "[A-Z]{3}"]),
    (['stop.max_energy="5 kilowatts"'], ["stop.max_energy = '5 kilowatts'", "kWh"]),
    (["stop.max_cost=5"], ["stop.max_cost = 5", "string"]),
    (
        ["policy.objective.kind=zues"],
        ["policy.objective.kind = 'zues': unknown objective", "did you mean 'zeus'?"],
    ),
    (["policy.objective.kind=budget"], ["policy.objective: needs one or more of energy, carbon and cost"]),
    (["plugins=['nowhere.py']"], ["plugins: 'nowhere.py': no such file"]),
    (["plugins=[3]"], ["plugins"]),
]
if not torch.cuda.is_available():
    VALUES.append((["ranks.device=cuda"], ['ranks.device = "cuda"', "no CUDA device"]))


# Files and command lines: {name: (arguments made in a folder, fragments of the one line)}


FAR = "distance_mi\n5\nfar\n"


def toml(content):
    return lambda folder: [written(folder / "input.toml", content)]


def plugin(body):
    """A plug-in file; with a policy whose `select` has this body, or as it is where it defines no policy."""

    def make(folder):
        policy = (
            "import numpy as np\n"
            "from hpctrip.sim.policies.base import POLICIES, Decision, Policy\n"
            "@POLICIES.add\n"
            "class Mine(Policy):\n"
            '    """A policy of my own."""\n'
            '    kind = "mine"\n'
            "    def select(self, sites, history, rng):\n"
            f"        return Decision({body.removeprefix('cohort: ')})\n"
        )
        mine = body.startswith("cohort: ")
        path = written(folder / "my plug-in.py", policy if mine else body)
        return o(f"plugins=[{str(path)!r}]", *(["policy.kind=mine"] if mine else []))

    return make


FILES = {
    "a missing file": (lambda folder: ["nowhere.toml"], ["nowhere.toml: no such file"]),
    "a misspelt command": (lambda folder: ["chekc"], ["chekc: no such file"]),
    "a file that is not valid TOML": (toml("[sites\n"), ["input.toml: not valid TOML", "line 1"]),
    "a file that is not text": (
        toml(b'name = "\xff\xfe"\n'),
        ["input.toml: cannot be read (not a UTF-8 text)"],
    ),
    "a partition by label of samples with many labels": (
        lambda folder: o(
            "workload.kind=shakespeare",
            "workload.predict=every",
            "workload.sentences={roles=6}",
            "sites.num_sites=4",
        ),
        [
            "partition.kind: 'dirichlet' shares out by label, but each sample has 80 labels",
            "use natural or iid",
        ],
    ),
    "a table of sites with a text for a number": (
        lambda folder: o("sites.kind=csv", f"sites.path={written(folder / 'sites.csv', FAR)}"),
        ["sites.csv", "line 3", "'far'"],
    ),
    "a percentage": (lambda folder: o("stop.target_accuracy=40"), ["for 40 % write 0.4"]),
    "a table of sites without its path": (
        lambda folder: o("sites.kind=csv"),
        ["sites.path: is missing; write path = ... below [sites], or -o sites.path=..."],
    ),
    "an output under a file": (
        lambda folder: ["--out", written(folder / "file", "") / "run.h5"],
        ["run.h5: cannot be written: Not a directory"],
    ),
    "an output that is a folder": (
        lambda folder: ["--out", folder],
        ["cannot be written: it is a directory", "or a file inside it"],
    ),
    "a name too long for a file": (
        lambda folder: ["--out", "x" * 300],
        ["names no file (File name too long)"],
    ),
    "a plug-in that raises": (
        plugin("raise ValueError('this is wrong\\n\\nand here is why')"),
        ["my plug-in.py': fails when imported: ValueError: this is wrong and here is why"],
    ),
    "a policy that selects nothing": (
        plugin("from hpctrip.api import POLICIES, Policy\nclass P(Policy):\n    kind = 'p'\nPOLICIES.add(P)"),
        ["my plug-in.py': fails when imported: ValueError: policy P does not define select()"],
    ),
    "a plug-in that is not valid Python": (
        plugin("def"),
        ["my plug-in.py': fails when imported: SyntaxError"],
    ),
    "a plug-in with another suffix": (
        lambda folder: o(f"plugins=['{written(folder / 'my.txt', '')}']"),
        ["my.txt': ", "not a Python file"],
    ),
    "an empty cohort": (plugin("cohort: []"), ["my plug-in.py): chose [] in round 1", "from 0 to 9"]),
    "a cohort with a site twice": (plugin("cohort: [3, 3]"), ["my plug-in.py): chose [3 3] in round 1"]),
    "a cohort of floats": (
        plugin("cohort: np.array([1.0, 2.0])"),
        ["my plug-in.py): chose [1. 2.] in round 1"],
    ),
}


@pytest.mark.parametrize(("lines", "fragments"), VALUES, ids=[" ".join(lines) for lines, _ in VALUES])
def test_a_bad_value_is_reported_in_one_line(lines, fragments, folder, files_in, hpctrip, tiny):
    hpctrip(tiny, *o(*lines)).check_refused(fragments)
    assert not files_in(folder)


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_is_reported_in_one_line(case, folder, files_in, hpctrip, tiny):
    make, fragments = FILES[case]
    args = make(folder)
    before = files_in(folder)
    hpctrip("run", tiny, *args).check_refused(fragments)
    assert files_in(folder) == before


def test_all_faults_are_reported_at_once(folder, files_in, hpctrip, tiny):
    ended = hpctrip(tiny, *o("sites.num_sitse=10", "policy.kind=powertrp", "train.lr=0"))
    ended.check_refused(["sites.num_sitse", "'powertrp'", "train.lr = 0"], lines=3)
    assert not files_in(folder)


def test_an_unknown_option_is_a_usage_error(folder, files_in, hpctrip, tiny):
    ended = hpctrip(tiny, "--ouput", "x.h5")
    assert ended.code == 2 and "--ouput" in ended.err and "--out" in ended.err
    assert "Traceback" not in ended.err and not files_in(folder)


def test_a_separate_process_reports_the_same_line(folder, files_in, launch, tiny):
    ended = launch(0, tiny, *o("sites.num_sitse=10"), "--out", folder / "run.h5")
    ended.check_refused(["did you mean 'num_sites'?"])
    assert not files_in(folder)


RANKS = {
    "a missing trace": (o("power.kind=trace", "power.path=nowhere"), "nowhere: no such file or folder"),
    "one process asked for": (
        o("ranks.transport=serial"),
        'ranks.transport = "serial": 2 ranks were launched',
    ),
    "an unknown option": (["--ouput"], "No such option"),
}


@pytest.mark.mpi
@pytest.mark.parametrize("case", RANKS)
def test_many_ranks_report_once(case, folder, files_in, launch, tiny):
    args, fragment = RANKS[case]
    ended = launch(2, tiny, *args, "--out", folder / "run.h5")
    assert ended.code == 2, ended
    assert ended.err.count(fragment) == 1, ended.err
    assert "Traceback" not in ended.err and "Abort" not in ended.err
    assert not files_in(folder)


ENDS_LATER = """
import time
from mpi4py import MPI
from hpctrip.cli.main import end_process

finalize, rank = MPI.Finalize, MPI.COMM_WORLD.rank
MPI.COMM_WORLD.Barrier()
MPI.Finalize = lambda: (finalize(), rank == {late} and (time.sleep(1), print("alive", flush=True)))
end_process({code} if rank == 0 else 0)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("late, code", [(0, 85), (1, 85), (0, 0)])
def test_a_rank_that_ends_later_is_not_killed(late, code, folder, launch):
    script = written(folder / "ends_later.py", ENDS_LATER.format(late=late, code=code))
    ended = launch(2, script=script)
    assert (ended.code, ended.out, ended.err) == (code, "alive\n", "")


ABORTS = """
import time
from hpctrip.ranks.mpi import MpiRanks

ranks = MpiRanks()
if ranks.rank == 1:
    ranks.abort(2)
time.sleep(10)
print("left alone")
"""


@pytest.mark.mpi
def test_an_abort_ends_ranks_outside_mpi_though_the_launcher_watches_no_rank(folder, launch):
    """MPICH's MPI_Abort of a duplicate of MPI_COMM_WORLD only sends a message to the other ranks."""
    script = written(folder / "aborts.py", ABORTS)
    ended = launch(2, script=script, flags=["-disable-auto-cleanup"])
    if "auto-cleanup" in ended.err:
        pytest.skip("this mpirun always watches its ranks")
    assert (ended.code, ended.out) == (2, ""), ended


NOT_A_NAME = ["a\0b", "~no_such_user_here/a", "x" * 256, "ü" * 128 + "/b"]
WITH_A_NAME = {
    "an input": ["check", "NAME"],
    "--out": ["run", "TINY", "--out", "NAME"],
    "resume": ["resume", "NAME"],
    "show": ["show", "NAME"],
    "export's folder": ["export", "run.h5", "NAME"],
    "merge": ["merge", "NAME", "run.h5"],
    "fetch": ["fetch", "emnist", "NAME"],
    "plug-ins": ["run", "TINY", "-o", "plugins=['NAME']"],
    "power by a pattern": ["run", "TINY", "-o", "power.kind='trace'", "-o", "power.path='NAME*'"],
    "sites": ["run", "TINY", "-o", "sites={kind='csv', path='NAME'}"],
    "outages": ["run", "TINY", "-o", "faults={deadline_s=9, outages='NAME'}"],
    "data": ["run", "TINY", "-o", "workload.data='NAME'"],
    "a model": ["run", "TINY", "-o", "workload.kind='llm'", "-o", "workload.model='NAME'"],
}


@pytest.mark.parametrize("place", WITH_A_NAME)
def test_an_impossible_file_name_is_refused_wherever_a_path_is_given(place, folder, files_in, hpctrip, tiny):
    for name in NOT_A_NAME:
        shown = name.replace("\0", "\\u0000") if "-o" in WITH_A_NAME[place] else name
        words = [str(tiny) if word == "TINY" else word.replace("NAME", shown) for word in WITH_A_NAME[place]]
        words = [word.replace("'", '"') if "-o" in WITH_A_NAME[place] else word for word in words]
        ended = hpctrip(*words)
        ended.check_refused([])
        assert len(ended.err) < 1000 and "a bug in hpctrip" not in ended.err
    assert not files_in(folder)
