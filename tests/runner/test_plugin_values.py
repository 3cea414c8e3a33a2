"""Return values of plug-ins are validated: one line that names the plug-in, exit code 2, no results file."""

from __future__ import annotations

import functools

import pytest

from hpctrip.record.reader import open_run

SIGNAL = """
from hpctrip.base.series import Signal
from hpctrip.sim.grid import SIGNALS, GridSignal, SignalModel

def series(*values):
    return Signal(np.arange(len(values)) * 3600.0, np.array(values), len(values) * 3600.0)

@SIGNALS.add
class Mine(SignalModel):
    kind = "mine"

    def signal(self, table, sites, num_sites, seed):
        zones = np.zeros(10, int)
        return {signal}
"""

PLUGINS = {
    "sites": """
from hpctrip.sim.sites import SITES, SitePlacement

@SITES.add
class Mine(SitePlacement):
    kind = "mine"

    def distances_m(self, seed):
        return {distances_m}
""",
    "power": """
from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply

class Supply(PowerSupply):
    synthetic, step_s = True, {step_s}

    def at(self, clock_s):
        return {fraction}

    def describe(self):
        return {describe}

@POWER_MODELS.add
class Mine(PowerModel):
    kind = "mine"

    def supply(self, num_sites, seed):
        return {supply}
""",
    "throughput": """
from hpctrip.sim.hardware import THROUGHPUT_MODELS, Throughput

@THROUGHPUT_MODELS.add
class Mine(Throughput):
    kind = "mine"

    def fraction(self, power):
        return {fraction}
""",
    "carbon": SIGNAL,
    "price": SIGNAL,
    "policy": """
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.rounds import Candidates

@POLICIES.add
class Mine(Policy):
    kind = "mine"

    def select(self, sites, history, rng):
        one = np.ones(2)
        return {select}
""",
    "policy.objective": """
from hpctrip.sim.objectives import OBJECTIVES, Objective

@OBJECTIVES.add
class Mine(Objective):
    kind = "mine"

    def merit(self, weighed, sites, history):
        return {merit}

    def preference(self, sites, history):
        return {preference}
""",
    "partition": """
from hpctrip.learn.partition import PARTITIONS, Partition

@PARTITIONS.add
class Mine(Partition):
    kind = "mine"

    def owners(self, labels, groups, num_sites, rng):
        return {owners}
""",
    "compression": """
from hpctrip.learn.compression import COMPRESSIONS, Compression

@COMPRESSIONS.add
class Mine(Compression):
    kind = "mine"

    def payload_bytes(self, num_params):
        return {payload_bytes}

    def roundtrip(self, delta, rng):
        return {roundtrip}
""",
    "server": """
import torch
from hpctrip.learn.server import SERVERS, Server

@SERVERS.add
class Mine(Server):
    kind = "mine"

    def initial_slots(self, num_params):
        return {slots}

    def step(self, params, slots, update):
        return {step}
""",
    "workload": """
from dataclasses import replace
import torch
import torch.nn.functional as F
from hpctrip.learn.task import Dataset
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.learn.workloads.emnist import Emnist

@WORKLOADS.add
class Mine(Emnist):
    kind = "mine"
    lr = {lr}

    def task(self, seed):
        task = super().task(seed)
        data = task.train
        inputs, labels = data.inputs, np.array(data.labels)
        changed = replace(task, {changes})
        return {returned}
""",
}
"""A plug-in for every table of the input, but for what the cases fill in."""

SOUND = {
    "sites": {"distances_m": "np.arange(10) * 1e6"},
    "power": {
        "step_s": "1.0",
        "fraction": "np.full(10, 0.5)",
        "describe": "{'zone': np.arange(10)}",
        "supply": "Supply()",
    },
    "throughput": {"fraction": "power"},
    "carbon": {"signal": "GridSignal(['A', 'B'], [series(90.0, 0.0), series(1e3)], np.arange(10) % 2, True)"},
    "price": {"signal": "GridSignal(['A'], [series(0.1, -0.2)], np.zeros(10, int), False, 1800.0, 1e9)"},
    "policy": {"select": "Decision(np.arange(3), Candidates(np.array([2, 3]), one, one, one))"},
    "policy.objective": {
        "merit": "np.where(weighed.k == 2, weighed.gain, -np.inf)",
        "preference": "np.where(np.arange(10) > 4, 0.0, -np.inf)",
    },
    "partition": {"owners": "np.arange(200) % num_sites"},
    "compression": {"payload_bytes": "num_params", "roundtrip": "delta / 2"},
    "server": {
        "slots": "torch.zeros(0, num_params, dtype=torch.float64)",
        "step": "params + update.float()",
    },
    "workload": {"lr": "0.01", "changes": "", "returned": "changed"},
}
"""Defaults that make the inputs complete."""

POWER_LATER = "power fraction", "np.full(10, 0.5 if clock_s < 1e-3 else 7.0)"
# what is tried before the first round is symmetric
UPDATE_LATER = "compression roundtrip", "delta[:-1] if delta[0] != -delta[-1] else delta"
NO_TASK = "workload returned", "None"
NO_SUCH_CLASS = "workload changes", "train=Dataset(inputs, np.where(np.arange(400) == 7, 62, labels))"
MESSAGES = {
    "power fraction": [
        (
            "np.linspace(-3, 3, 10)",
            "gave the power fractions at 0 s with [0] = -3 ... [10] numbers from 0 to 1",
        ),
        ("'full'", "gave a str as the power fractions at 0 s"),
        (POWER_LATER[1], "gave the power fractions at  ... with [0] = 7"),
    ],
    "power step_s": [("0.0", "gave step_s = 0; it must be above 0")],
    "power supply": [("None", "gave a NoneType as its supply")],
    "power describe": [
        ("{'zone': np.arange(3)}", "describes 'zone' as int64 [3]; it must be [10] numbers or texts")
    ],
    "policy select": [
        ("[1, 2]", "gave a list as its decision; it must be a Decision"),
        ("Decision(np.arange(3), local_work=0)", "the local work of round 1 with [0] = 0 ... from 1 to 1000"),
        (
            "Decision(np.arange(3), Candidates(np.array([2, 11]), one, one, one))",
            "gave the candidates' k in round 1 with [1] = 11 ... [2] integers from 1 to 10",
        ),
        (
            "Decision(np.arange(3), Candidates(np.array([2, 3]), one[:1], one, one))",
            "gave the candidates' gain as float64 [1] in round 1; it must be float64 [2]",
        ),
    ],
    "policy.objective preference": [
        (
            "np.zeros(3)",
            "gave the preference of the sites of shape [3]; it must be [10] numbers from -inf to",
        ),
        ("np.full(10, np.inf)", "gave the preference of the sites with [0] = inf"),
    ],
    "throughput fraction": [("power + 1", "gave the throughput fractions with [0] = 1. ... from 0 to 1")],
    "carbon signal": [
        (
            "GridSignal(['A'], [series(-5.0)], zones, True)",
            "gave the carbon of zone 'A' with [0] = -5; it must be [1] numbers from 0 to 1e+06",
        ),
        ("np.zeros(10)", "gave a ndarray as its signal"),
        (
            "GridSignal(['A'], [np.zeros(1)], zones, True)",
            "gave a ndarray as the carbon of zone 'A'; it must be a Signal",
        ),
        ("GridSignal([], [series(90.0)], zones, True)", "gave 1 series under 0 names"),
    ],
    "price signal": [
        (
            "GridSignal(['A'], [series(0.1, 1e30)], zones, True)",
            "gave the price of zone 'A' with [1] = 1e+30",
        ),
        (
            "GridSignal(['A'], [Signal(np.array([0.0, 9, 6]), np.ones(3), 12.0)], zones, True)",
            "gave times of the price of zone 'A' that do not rise from 0 to the end of a period of 12 s",
        ),
        (
            "GridSignal(['A'], [series(0.1)], np.arange(10), True)",
            "gave the zones of the sites with [1] = 1; it must be [10] integers from 0 to 0",
        ),
    ],
    "sites distances_m": [
        ("np.arange(10) - 2.0", "gave the distances with [0] = -2 ... [10] numbers from 0 to"),
        ("[]", "gave the distances of shape [0]"),
    ],
    "partition owners": [
        (
            "np.arange(200) % num_sites * 1.0",
            "gave the owners of type float64 ... [200] integers from -1 to 9",
        ),
        ("np.arange(200) % num_sites + 1", "gave the owners with [9] = 10"),
        ("[[1], [2, 3]]", "gave a list as the owners"),
        (
            "np.where(np.arange(200) % num_sites == 3, -1, np.arange(200) % num_sites)",
            "gave site 3 no sample; every site must own at least one",
        ),
    ],
    "compression roundtrip": [
        ("delta.double()", "gave a decoded update as float64 [ ... it must be a float32 tensor ["),
        ("delta / 0", "gave a decoded update with [0] = -inf; it must be finite"),
        (UPDATE_LATER[1], "gave a decoded update as float32 ["),
        ("delta.numpy()", "gave a ndarray as a decoded update"),
    ],
    "compression payload_bytes": [("-4.0", "gave payload_bytes = -4")],
    "server step": [
        ("params + update", "gave the new parameters as float64 [ ... it must be a float32 tensor ["),
        ("params * float('nan')", "gave the new parameters with [0] = nan; it must be finite"),
    ],
    "server slots": [
        ("torch.zeros(1, num_params)", "gave its state as float32 [1,  ... it must be float64 [num_slots, ")
    ],
    "workload returned": [(NO_TASK[1], "gave a NoneType as its task; it must be a Task")],
    "workload changes": [
        ("train=Dataset(inputs, labels[:-1])", "gave 400 inputs, 399 labels as its training set"),
        (
            "train=Dataset(inputs, labels, labels[:-1])",
            "gave 400 inputs, 400 labels, 399 groups as its training set",
        ),
        ("test=Dataset(inputs[:0], labels[:0])", "gave 0 inputs, 0 labels as its test set ... one or more"),
        (NO_SUCH_CLASS[1], "gave training labels with [7] = 62 ... [400] integers from 0 to 61"),
        (
            "train=Dataset(inputs, labels.astype(np.int32))",
            "gave training labels of type int32; they must be int64",
        ),
        ("build_model=lambda: None", "gave a NoneType as its model; it must be a Module"),
        (
            "build_model=torch.nn.Identity",
            "gave a model whose trainable parameters are none; they must be float32",
        ),
        (
            "build_model=lambda: task.build_model().double()",
            "gave a model whose trainable parameters are of type float64",
        ),
        (
            "build_model=lambda: torch.nn.Sequential(task.build_model(), torch.nn.Flatten(0))",
            "gave a model whose output is [124]; it must be [2] times the classes",
        ),
        (
            "loss=lambda x, y: F.cross_entropy(x, y, reduction='none')",
            "gave a loss of shape [2]; it must be one finite number",
        ),
        ("loss=lambda x, y: F.cross_entropy(x, y) * float('nan')", "gave a loss nan of its first model"),
    ],
    "workload lr": [
        ("-3.0", "gave train.lr = -3.0: must be greater than 0"),
        ("None", "gave no lr; set train.lr"),
    ],
}
"""{table and name: [(what the plug-in returns, fragments of the one line)]}."""
CASES = [(place, value) for place, messages in MESSAGES.items() for value, _ in messages]


def written(folder, place, value=None):
    """The arguments that choose a plug-in of this table in this folder, which returns the value under this name and is
    valid otherwise."""
    table, _, name = place.partition(" ")
    path = folder / "mine.py"
    values = SOUND[table] | ({name: value} if name else {})
    path.write_text("import os\nimport numpy as np\n" + PLUGINS[table].format(**values))
    kind = "workload={kind='mine', train_samples=400, test_samples=200}"
    return ["-o", f"plugins=['{path}']", "-o", kind if table == "workload" else f"{table}.kind=mine"]


@pytest.fixture
def plugin(folder):
    """`plugin(place, value)`: such arguments."""
    return functools.partial(written, folder)


def message(place, value, folder):
    """Fragments of the line that refuses the value: the component is named by its key and its file."""
    named = f"{place.partition(' ')[0]}.kind = 'mine' ({folder / 'mine.py'}): "
    return [named, *dict(MESSAGES[place])[value].split(" ... ")]


@pytest.mark.parametrize("table", SOUND)
def test_a_valid_plug_in_of_every_table_runs(table, plugin, hpctrip, tiny):
    ended = hpctrip("run", tiny, *plugin(table), "-o", "stop.max_rounds=1")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(("place", "value"), CASES)
def test_an_invalid_return_value_of_a_plug_in_is_one_clear_line(
    place, value, plugin, hpctrip, tiny, folder, files_in
):
    ended = hpctrip("run", tiny, *plugin(place, value), "--out", folder / "run.h5")
    ended.check_refused(message(place, value, folder))
    assert [path.name for path in files_in(folder)] == ["mine.py"]


@pytest.mark.parametrize(
    ("merit", "says"),
    [
        ("'high'", "gave a str as the merit of the cohorts"),
        ("np.where(weighed.k == 3, np.nan, 1.0)", "gave the merit of the cohorts with [2] = nan"),
    ],
)
def test_an_invalid_merit_of_an_objective_is_named_after_the_first_round(
    merit, says, plugin, hpctrip, tiny, folder
):
    ended = hpctrip("run", tiny, *plugin("policy.objective merit", merit), "--out", folder / "run.h5")
    assert ended.code == 2 and "Traceback" not in ended.err
    assert f"policy.objective.kind = 'mine' ({folder / 'mine.py'}): {says}" in ended.err
    assert len(open_run(folder / "run.h5").rounds) == 1


def test_a_server_step_that_becomes_infinite_later_is_named_with_its_round(plugin, hpctrip, tiny, folder):
    step = "torch.where(params == 0, params, torch.inf)"  # it is tried on a model of zeros
    ended = hpctrip("run", tiny, *plugin("server step", step), "-o", "stop.max_rounds=1")
    assert ended.code == 3 and "Traceback" not in ended.err
    problem = "the model is no longer finite after round 1"
    assert f"server.kind = 'mine' ({folder / 'mine.py'}): {problem}" in ended.err


def test_plan_refuses_a_plug_in_like_run(plugin, hpctrip, tiny, folder):
    hpctrip("plan", tiny, *plugin(*NO_SUCH_CLASS)).check_refused(message(*NO_SUCH_CLASS, folder))


ON_THREE = {"power": POWER_LATER, "task": NO_TASK, "update": UPDATE_LATER}


@pytest.fixture(scope="module")
def on_three(launch, tiny, tmp_path_factory):
    """The only launch of three ranks, for all of these; the last one ends it."""
    folder = tmp_path_factory.mktemp("three")
    rank = "os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK'))"
    noted = f"(open('{folder / 'ranks'}', 'a').write({rank}), np.arange(10) * 1e6)[1]"
    cases = {"asked": ("sites distances_m", noted), **ON_THREE}
    commands = {}
    for name, case in cases.items():
        (folder / name).mkdir()
        words = ["run", tiny, *written(folder / name, *case), "-o", "stop.max_rounds=2"]
        commands[name] = [*words, "--out", folder / name / "run.h5"]
    return launch.commands(3, folder, commands)


@pytest.mark.mpi
@pytest.mark.parametrize("name", ON_THREE)
def test_many_ranks_end_on_a_plug_in_without_a_traceback(name, on_three, files_in):
    """A host that finds it in mid round ends the job by MPI_Abort."""
    err, at_host = on_three.output(name, "err"), name == "update"
    assert "Traceback" not in err and len([line for line in err.splitlines() if "mine.py" in line]) == 1, err
    assert on_three.codes(name) == [] if at_host else [2] * 3
    assert on_three.ended.code == 2, on_three.ended
    assert ("hpctrip: rank " in err) == at_host, err
    folder = on_three.folder / name
    assert all(fragment in err for fragment in message(*ON_THREE[name], folder))
    # a killed rank 0 leaves its lock file, which holds nobody up
    assert {path.name for path in files_in(folder)} - {"run.h5.lock"} == {"mine.py"}


@pytest.mark.mpi
def test_the_positions_of_the_sites_are_computed_at_rank_0_alone(on_three):
    """A table of sites is on rank 0's disk only, and a service asked by 41 ranks would not thank."""
    assert on_three.codes("asked") == [0] * 3, on_three.output("asked", "err")
    assert set((on_three.folder / "ranks").read_text()) == {"0"}
