"""Return values of plug-ins are validated: one line that names the plug-in, exit code 2, no results file."""

from __future__ import annotations

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

    @property
    def keeps_residual(self):
        return {keeps_residual}

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
    {own} = {value}

    def task(self, seed):
        task = super().task(seed)
        data = task.train
        inputs, labels = data.inputs, np.array(data.labels)
        return {task}
""",
}
"""A plug-in for every table of the input, but for what the cases fill in."""

SOUND = {
    "sites": {"distances_m": "np.arange(10) * 1e6"},
    "power": {
        "step_s": "300.0",
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
    "partition": {"owners": "np.arange(400) % num_sites"},
    "compression": {"payload_bytes": "num_params", "roundtrip": "delta / 2", "keeps_residual": "False"},
    "server": {
        "slots": "torch.zeros(0, num_params, dtype=torch.float64)",
        "step": "params + update.float()",
    },
    "workload": {"own": "lr", "value": "0.01", "task": "task"},
}
"""Defaults that make the inputs complete."""

CASES = {
    # name: (table, what it gives, what the one line says)
    "power below 0 and above 1": (
        "power",
        {"fraction": "np.linspace(-3, 3, 10)"},
        ["gave the power fractions at 0 s with [0] = -3", "[10] numbers from 0 to 1"],
    ),
    "power that is no number": (
        "power",
        {"fraction": "np.where(np.arange(10) == 4, np.nan, 0.5)"},
        ["gave the power fractions at 0 s with [4] = nan"],
    ),
    "power that is a text": ("power", {"fraction": "'full'"}, ["gave a str as the power fractions at 0 s"]),
    "power of too many sites": (
        "power",
        {"fraction": "np.full((10, 2), 0.5)"},
        ["gave the power fractions at 0 s of shape [10, 2]"],
    ),
    "power that goes wrong later": (
        "power",
        {"fraction": "np.full(10, 0.5 if clock_s < 1e-3 else 7.0)", "step_s": "1.0"},
        ["gave the power fractions at ", "with [0] = 7"],
    ),
    "steps of no length": ("power", {"step_s": "0.0"}, ["gave step_s = 0; it must be above 0"]),
    "steps of negative length": ("power", {"step_s": "-300.0"}, ["gave step_s = -300"]),
    "steps of unknown length": ("power", {"step_s": "None"}, ["gave step_s = nan"]),
    "no supply": ("power", {"supply": "None"}, ["gave a NoneType as its supply"]),
    "a description of too few sites": (
        "power",
        {"describe": "{'zone': np.arange(3)}"},
        ["describes 'zone' as int64 [3]; it must be [10] numbers or texts"],
    ),
    "a description that is an object": (
        "power",
        {"describe": "{'zone': np.array([None] * 10)}"},
        ["describes 'zone' as object [10]"],
    ),
    "no decision": ("policy", {"select": "[1, 2]"}, ["gave a list as its decision; it must be a Decision"]),
    "half of the local work": (
        "policy",
        {"select": "Decision(np.arange(3), local_work=0.5)"},
        ["the local work of round 1", "integer", "from 1 to 1000"],
    ),
    "no local work": (
        "policy",
        {"select": "Decision(np.arange(3), local_work=0)"},
        ["the local work of round 1 with [0] = 0", "from 1 to 1000"],
    ),
    "more candidates than sites": (
        "policy",
        {"select": "Decision(np.arange(3), Candidates(np.array([2, 11]), one, one, one))"},
        ["gave the candidates' k in round 1 with [1] = 11", "[2] integers from 1 to 10"],
    ),
    "a gain for one candidate of two": (
        "policy",
        {"select": "Decision(np.arange(3), Candidates(np.array([2, 3]), one[:1], one, one))"},
        ["gave the candidates' gain as float64 [1] in round 1; it must be float64 [2]"],
    ),
    "a preference among too few sites": (
        "policy.objective",
        {"preference": "np.zeros(3)"},
        ["gave the preference of the sites of shape [3]; it must be [10] numbers from -inf to"],
    ),
    "a preference that is no number": (
        "policy.objective",
        {"preference": "np.where(np.arange(10) == 4, np.nan, 0.0)"},
        ["gave the preference of the sites with [4] = nan"],
    ),
    "an endless preference": (
        "policy.objective",
        {"preference": "np.full(10, np.inf)"},
        ["gave the preference of the sites with [0] = inf"],
    ),
    "throughput above 1": (
        "throughput",
        {"fraction": "power + 1"},
        ["gave the throughput fractions with [0] = 1.", "from 0 to 1"],
    ),
    "one throughput for all": (
        "throughput",
        {"fraction": "0.5"},
        ["gave the throughput fractions of shape []"],
    ),
    "carbon below 0": (
        "carbon",
        {"signal": "GridSignal(['A'], [series(-5.0)], np.zeros(10, int), True)"},
        ["gave the carbon of zone 'A' with [0] = -5; it must be [1] numbers from 0 to 1e+06"],
    ),
    "carbon of one zone that is no number": (
        "carbon",
        {"signal": "GridSignal(['A', 'B'], [series(90.0), series(90.0, np.nan)], np.arange(10) % 2, True)"},
        ["gave the carbon of zone 'B' with [1] = nan"],
    ),
    "carbon of which nothing is known": (
        "carbon",
        {"signal": "GridSignal.unknown(num_sites)"},
        ["gave the carbon of zone '' with [0] = nan"],
    ),
    "carbon that is an array": ("carbon", {"signal": "np.zeros(10)"}, ["gave a ndarray as its signal"]),
    "carbon of a zone that is an array": (
        "carbon",
        {"signal": "GridSignal(['A'], [np.zeros(1)], np.zeros(10, int), True)"},
        ["gave a ndarray as the carbon of zone 'A'; it must be a Signal"],
    ),
    "carbon of a zone without a name": (
        "carbon",
        {"signal": "GridSignal([], [series(90.0)], np.zeros(10, int), True)"},
        ["gave 1 series under 0 names"],
    ),
    "an endless price": (
        "price",
        {"signal": "GridSignal(['A'], [series(np.inf)], np.zeros(10, int), True)"},
        ["gave the price of zone 'A' with [0] = inf", "from -1e+06 to 1e+06"],
    ),
    "a price beyond all bounds": (
        "price",
        {"signal": "GridSignal(['A'], [series(0.1, 1e30)], np.zeros(10, int), True)"},
        ["gave the price of zone 'A' with [1] = 1e+30"],
    ),
    "prices whose times fall": (
        "price",
        {
            "signal": "GridSignal(['A'], [Signal(np.array([0.0, 9, 6]), np.ones(3), 12.0)], np.zeros(10, int), True)"
        },
        ["gave times of the price of zone 'A' that do not rise from 0 to the end of a period of 12 s"],
    ),
    "prices of another number than times": (
        "price",
        {"signal": "GridSignal(['A'], [Signal(np.zeros(1), np.ones(3), 12.0)], np.zeros(10, int), True)"},
        ["gave the times of the price of zone 'A' of shape [1]"],
    ),
    "a zone that does not exist": (
        "price",
        {"signal": "GridSignal(['A'], [series(0.1)], np.arange(10), True)"},
        ["gave the zones of the sites with [1] = 1; it must be [10] integers from 0 to 0"],
    ),
    "zones of too few sites": (
        "price",
        {"signal": "GridSignal(['A'], [series(0.1)], np.zeros(3, int), True)"},
        ["gave the zones of the sites of shape [3]"],
    ),
    "negative distances": (
        "sites",
        {"distances_m": "np.arange(10) - 2.0"},
        ["gave the distances with [0] = -2", "[10] numbers from 0 to"],
    ),
    "infinite distances": ("sites", {"distances_m": "[1.0, np.inf]"}, ["gave the distances with [1] = inf"]),
    "no sites": ("sites", {"distances_m": "[]"}, ["gave the distances of shape [0]"]),
    "owners that are fractions": (
        "partition",
        {"owners": "np.arange(400) % num_sites * 1.0"},
        ["gave the owners of type float64", "[400] integers from -1 to 9"],
    ),
    "owners that do not exist": (
        "partition",
        {"owners": "np.arange(400) % num_sites + 1"},
        ["gave the owners with [9] = 10"],
    ),
    "owners below nobody": (
        "partition",
        {"owners": "np.arange(400) % num_sites - 2"},
        ["gave the owners with [0] = -2"],
    ),
    "too few owners": (
        "partition",
        {"owners": "np.arange(399) % num_sites"},
        ["gave the owners of shape [399]"],
    ),
    "ragged owners": ("partition", {"owners": "[[1], [2, 3]]"}, ["gave a list as the owners"]),
    "a site that owns nothing": (
        "partition",
        {"owners": "np.where(np.arange(400) % num_sites == 3, -1, np.arange(400) % num_sites)"},
        ["gave site 3 no sample; every site must own at least one"],
    ),
    "an update of another type": (
        "compression",
        {"roundtrip": "delta.double()"},
        ["gave a decoded update as float64 [", "it must be a float32 tensor ["],
    ),
    "an update of one entry": (
        "compression",
        {"roundtrip": "delta[:1]"},
        ["gave a decoded update as float32 [1] on cpu"],
    ),
    "an update that is no number": (
        "compression",
        {"roundtrip": "delta / 0"},
        ["gave a decoded update with [0] = -inf; it must be finite"],
    ),
    "an update that goes wrong later": (
        "compression",  # what is tried before the first round is symmetric
        {"roundtrip": "delta[:-1] if delta[0] != -delta[-1] else delta"},
        ["gave a decoded update as float32 ["],
    ),
    "an update that is an array": (
        "compression",
        {"roundtrip": "delta.numpy()", "keeps_residual": "True"},
        ["gave a ndarray as a decoded update"],
    ),
    "a payload of negative size": ("compression", {"payload_bytes": "-4.0"}, ["gave payload_bytes = -4"]),
    "a payload of endless size": (
        "compression",
        {"payload_bytes": "float('inf')"},
        ["gave payload_bytes = inf; it must be one number from 0 to"],
    ),
    "a payload of many sizes": (
        "compression",
        {"payload_bytes": "[1.0, 2.0]"},
        ["gave payload_bytes of shape [2]"],
    ),
    "parameters of another type": (
        "server",
        {"step": "params + update"},
        ["gave the new parameters as float64 [", "it must be a float32 tensor ["],
    ),
    "parameters of another number": (
        "server",
        {"step": "params[1:]"},
        ["gave the new parameters as float32 ["],
    ),
    "parameters that are no numbers": (
        "server",
        {"step": "params * float('nan')"},
        ["gave the new parameters with [0] = nan; it must be finite"],
    ),
    "a state of another type": (
        "server",
        {"slots": "torch.zeros(1, num_params)"},
        ["gave its state as float32 [1, ", "it must be float64 [num_slots, "],
    ),
    "no parameters": ("server", {"step": "None"}, ["gave a NoneType as the new parameters"]),
    "no task": ("workload", {"task": "None"}, ["gave a NoneType as its task; it must be a Task"]),
    "more inputs than labels": (
        "workload",
        {"task": "replace(task, train=Dataset(inputs, labels[:-1]))"},
        ["gave 400 inputs, 399 labels as its training set"],
    ),
    "more labels than owners": (
        "workload",
        {"task": "replace(task, train=Dataset(inputs, labels, labels[:-1]))"},
        ["gave 400 inputs, 400 labels, 399 groups as its training set"],
    ),
    "nothing to test on": (
        "workload",
        {"task": "replace(task, test=Dataset(inputs[:0], labels[:0]))"},
        ["gave 0 inputs, 0 labels as its test set", "one or more"],
    ),
    "a class that does not exist": (
        "workload",
        {"task": "replace(task, train=Dataset(inputs, np.where(np.arange(400) == 7, 62, labels)))"},
        ["gave training labels with [7] = 62", "[400] integers from 0 to 61"],
    ),
    "a class below 0": (
        "workload",
        {"task": "replace(task, test=Dataset(inputs, labels - 100))"},
        ["gave test labels with [0] = -"],
    ),
    "labels that are short": (
        "workload",
        {"task": "replace(task, train=Dataset(inputs, labels.astype(np.int32)))"},
        ["gave training labels of type int32; they must be int64"],
    ),
    "no model": (
        "workload",
        {"task": "replace(task, build_model=lambda: None)"},
        ["gave a NoneType as its model; it must be a Module"],
    ),
    "nothing to train": (
        "workload",
        {"task": "replace(task, build_model=torch.nn.Identity)"},
        ["gave a model whose trainable parameters are none; they must be float32"],
    ),
    "a model in double precision": (
        "workload",
        {"task": "replace(task, build_model=lambda: task.build_model().double())"},
        ["gave a model whose trainable parameters are of type float64"],
    ),
    "one output for all samples": (
        "workload",
        {
            "task": "replace(task, build_model=lambda: torch.nn.Sequential(task.build_model(), torch.nn.Flatten(0)))"
        },
        ["gave a model whose output is [124]; it must be [2] times the classes"],
    ),
    "a loss of every sample": (
        "workload",
        {"task": "replace(task, loss=lambda x, y: F.cross_entropy(x, y, reduction='none'))"},
        ["gave a loss of shape [2]; it must be one finite number"],
    ),
    "a loss that is no number": (
        "workload",
        {"task": "replace(task, loss=lambda x, y: F.cross_entropy(x, y) * float('nan'))"},
        ["gave a loss nan of its first model"],
    ),
    "a learning rate below 0": (
        "workload",
        {"own": "lr", "value": "-3.0"},
        ["gave train.lr = -3.0: must be greater than 0"],
    ),
    "half a sample": (
        "workload",
        {"own": "batch_size", "value": "2.5"},
        ["gave train.batch_size = 2.5: must be a valid integer"],
    ),
    "no learning rate": ("workload", {"own": "lr", "value": "None"}, ["gave no lr; set train.lr"]),
    "an unknown optimiser": (
        "workload",
        {"own": "optimizer", "value": "'lion'"},
        ["gave train.optimizer = 'lion': must be 'sgd' or 'adamw'"],
    ),
    "labels that are fractions": (
        "workload",
        {"task": "replace(task, train=Dataset(inputs, labels / 2))"},
        ["gave training labels of type float64"],
    ),
}


@pytest.fixture
def plugin(folder):
    """`plugin(table, given)`: the arguments that choose a plug-in which gives this and is sound otherwise."""

    def make(table, given):
        path = folder / "mine.py"
        path.write_text("import os\nimport numpy as np\n" + PLUGINS[table].format(**SOUND[table] | given))
        return ["-o", f"plugins=['{path}']", "-o", f"{table}.kind=mine"]

    return make


def tables(table):
    """Keys that a table of another kind requires."""
    return (
        ["-o", "workload={kind='mine', train_samples=400, test_samples=200}"] if table == "workload" else []
    )


def config_key(table, folder):
    """The component is named by its key and its file."""
    return [f"{table}.kind = 'mine' ({folder / 'mine.py'}): "]


@pytest.mark.parametrize("table", SOUND)
def test_a_sound_plug_in_of_every_table_runs(table, plugin, hpctrip, tiny, folder):
    ended = hpctrip("run", tiny, *plugin(table, {}), *tables(table), "-o", "stop.max_rounds=1")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("case", CASES)
def test_what_a_plug_in_must_not_give_is_one_clear_line(case, plugin, hpctrip, tiny, folder, files_in):
    table, given, fragments = CASES[case]
    args = [*plugin(table, given), *tables(table)]
    ended = hpctrip("run", tiny, *args, "--out", folder / "run.h5")
    ended.check_refused([*config_key(table, folder), *fragments])
    assert [path.name for path in files_in(folder)] == ["mine.py"]


@pytest.mark.parametrize(
    ("merit", "says"),
    [
        ("'high'", "gave a str as the merit of the cohorts"),
        ("None", "gave the merit of the cohorts of shape []; it must be [10] numbers"),
        ("np.where(weighed.k == 3, np.nan, 1.0)", "gave the merit of the cohorts with [2] = nan"),
    ],
)
def test_an_objective_is_asked_for_the_merit_of_cohorts_after_the_first_round(
    merit, says, plugin, hpctrip, tiny, folder
):
    ended = hpctrip("run", tiny, *plugin("policy.objective", {"merit": merit}), "--out", folder / "run.h5")
    assert ended.code == 2 and "Traceback" not in ended.err
    assert f"{config_key('policy.objective', folder)[0]}{says}" in ended.err
    assert len(open_run(folder / "run.h5").rounds) == 1


def test_a_server_step_that_leaves_the_finite_numbers_later_is_named_in_its_round(
    plugin, hpctrip, tiny, folder
):
    given = {"step": "torch.where(params == 0, params, torch.inf)"}  # it is tried on a model of zeros
    ended = hpctrip("run", tiny, *plugin("server", given), "-o", "stop.max_rounds=1")
    assert ended.code == 3 and "Traceback" not in ended.err
    assert (
        f"server.kind = 'mine' ({folder / 'mine.py'}): the model is no longer finite after round 1"
        in ended.err
    )


@pytest.mark.parametrize(
    "case", ["a class that does not exist", "owners that do not exist", "power below 0 and above 1"]
)
def test_a_plan_is_refused_like_the_run(case, plugin, hpctrip, tiny, folder):
    table, given, fragments = CASES[case]
    args = [*plugin(table, given), *tables(table)]
    hpctrip("plan", tiny, *args).check_refused([*config_key(table, folder), *fragments])


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("power below 0 and above 1", {2}),
        ("power that goes wrong later", {2}),
        ("steps of no length", {2}),
        ("no decision", {2}),
        ("no task", {2}),
        ("a loss that is no number", {2}),
        ("an update of one entry", {2}),
        ("parameters that are no numbers", {2}),
        ("an update that goes wrong later", {2, 9}),
    ],
)
def test_many_ranks_end_on_a_plug_in_without_a_traceback(case, code, plugin, launch, tiny, folder, files_in):
    """A host that finds it in mid round ends the job by MPI_Abort; whether the launcher then passes on the code or that
    of the ranks it killed is the launcher's."""
    table, given, fragments = CASES[case]
    ended = launch(2, tiny, *plugin(table, given), *tables(table), "--out", folder / "run.h5")
    assert ended.code in code and "Traceback" not in ended.err, ended
    assert ("Abort" in ended.err) == (code != {2}), ended
    assert all(fragment in ended.err for fragment in fragments)
    # a killed rank 0 leaves its lock file, which holds nobody up
    assert {path.name for path in files_in(folder)} - {"run.h5.lock"} == {"mine.py"}


@pytest.mark.mpi
def test_where_the_sites_are_is_asked_at_rank_0_alone(plugin, launch, tiny, folder):
    """A table of sites is on rank 0's disk only, and a service asked by 41 ranks would not thank."""
    asked = folder / "asked"
    note = f"open('{asked}', 'a').write(os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')))"
    given = {"distances_m": f"({note}, np.arange(10) * 1e6)[1]"}
    ended = launch(3, tiny, *plugin("sites", given), "-o", "stop.max_rounds=1", "--out", folder / "run.h5")
    assert ended.code == 0, ended.err
    assert set(asked.read_text()) == {"0"}
