"""Models of the user's: with state besides trained parameters, and with random numbers in the forward pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hpctrip.learn.params import flatten
from hpctrip.ranks.base import Ranks
from hpctrip.record.reader import open_run
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host
from hpctrip.runner.loop import train_round
from hpctrip.sim.step import State

PATH = Path(__file__).parents[1] / "points.py"
PLUGIN = f"plugins=['{PATH}']"
POINTS = (PLUGIN, "workload={kind='points', train_samples=400, test_samples=200}", "policy.kind=all")
UNEQUAL = (*POINTS, "sites.num_sites=3", "partition.balanced=false", "train.batch_size=9")
DROPOUT = (*POINTS, "workload.dropout=0.5")


def test_a_model_with_batch_norm_is_evaluated_with_the_statistics_of_its_sites(trained, hpctrip):
    run = trained(*POINTS, "stop.max_rounds=12")
    assert run.rounds["accuracy"].iloc[-1] > 0.9
    assert hpctrip("verify", run.path, "--plugin", PATH).code == 0


def first_round(*lines):
    """A host, its model before the first round and after it, and the share of every site."""
    e = read_input([], [*UNEQUAL, *lines]).experiment
    host = Host(e, 3, e.workload.task(e.seed), Ranks(), torch.device("cpu"))
    draft, assignment = Aggregator(host).begin(State())
    params, *_ = train_round(host, host.initial_params, assignment)
    return host, params, dict(zip(draft.cohort.tolist(), draft.weights.tolist(), strict=True))


def trained_alone(host, site):
    """The model of one site after its first round, trained by nn.Module and torch.optim."""
    model = host.task.build_model().train()
    nn.utils.vector_to_parameters(host.initial_params[: host.num_params].clone(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=host.work.lr)
    for part in host.visits(site, 1):
        for batch in torch.from_numpy(part).split(host.work.batch_size):
            inputs, labels = (
                torch.from_numpy(a)[batch] for a in (host.task.train.inputs, host.task.train.labels)
            )
            optimizer.zero_grad()
            host.task.loss(model(inputs), labels).backward()
            optimizer.step()
    return flatten(model).double()


@pytest.mark.parametrize("lines", [(), ("server.lr=0.5", "server.momentum=0.9"), ("compression.kind=top-k",)])
def test_buffers_are_averaged_as_they_are_and_counts_are_the_largest(lines):
    """The server optimiser and the compression are for parameters only."""
    host, params, share = first_round(*lines)
    assert (host.num_params, host.num_buffers, host.num_integers) == (8 + 8 + 8 * 32 + 32 + 32 * 4 + 4, 17, 1)
    sites = {site: trained_alone(host, site) for site in share}
    mean = sum(share[site] * sites[site] for site in share)
    buffers = slice(host.num_params, -1)
    torch.testing.assert_close(params[buffers].double(), mean[buffers], rtol=1e-5, atol=1e-5)
    assert params[-1] == max(vector[-1] for vector in sites.values()) == -(-host.num_samples.max() // 9)
    if not lines:
        torch.testing.assert_close(params.double()[:-1], mean[:-1], rtol=1e-4, atol=1e-5)


def test_buffers_travel_and_are_paid_for(trained):
    """At "auto" the simulated size of a model is that of all its tensors; compression leaves buffers as they are."""
    plain, sparse = (
        trained(*POINTS, "network.update_bytes=auto", f"compression.kind={c}") for c in ("none", "top-k")
    )
    params, buffers = plain.meta["num_params"], plain.meta["num_buffers"]
    assert plain.meta["update_bytes"] == plain.meta["payload_bytes"] == 4 * (params + buffers)
    assert (
        sparse.meta["update_bytes"] == sparse.meta["payload_bytes"] == 8 * round(0.01 * params) + 4 * buffers
    )


def test_pytorch_loads_an_exported_model_with_its_buffers(hpctrip, tiny, tmp_path):
    run, out = tmp_path / "run.h5", tmp_path / "model.safetensors"
    lines = [part for line in (*POINTS, "stop.max_rounds=12") for part in ("-o", line)]
    assert hpctrip("run", tiny, *lines, "--out", run).code == 0
    assert hpctrip("export", run, "--model", out).code == 0
    task = read_input([str(tiny)], [*POINTS]).experiment.workload.task(0)
    model = task.build_model().eval()
    model.load_state_dict(load_file(out), strict=True)
    with torch.no_grad():
        predicted = model(torch.from_numpy(task.test.inputs)).argmax(1).numpy()
    assert (predicted == task.test.labels).mean() > 0.9
    assert np.abs(load_file(out)["0.running_mean"].numpy() - 30).max() < 10


def test_random_numbers_of_the_forward_pass_depend_on_seed_round_and_site_alone(trained):
    """Not on how many sites a rank has trained before: half of the cohort, then all of it, is trained alike."""
    with_dropout, again, without = trained(*DROPOUT), trained(*DROPOUT), trained(*POINTS)
    assert with_dropout.meta["params_digest"] == again.meta["params_digest"] != without.meta["params_digest"]
    losses = [
        trained(*DROPOUT, f"policy={{kind='static', k={k}}}", "stop.max_rounds=1").cohorts for k in (3, 6)
    ]
    few, more = (cohorts.set_index("site")["train_loss"] for cohorts in losses)
    assert len(few) == 3 and few.tolist() == more[few.index].tolist()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("engine.name=stacked",), ["the buffer 0.running_mean, which each site changes"]),
        (
            ("engine.name=stacked", "workload.norm=false", "workload.dropout=0.5"),
            ["draws random numbers in training"],
        ),
        # 400 samples at ten sites in batches of 13: the last of each is a single one
        (
            ("train.batch_size=13",),
            ["batch of 1 (Expected more than 1 value per channel", "train.batch_size", "train.local_steps"],
        ),
    ],
)
def test_a_model_that_an_engine_cannot_train_is_refused(lines, words, hpctrip, tiny, tmp_path):
    arguments = [part for line in (*POINTS, *lines) for part in ("-o", line)]
    for command in (["run", "--out", tmp_path / "run.h5"], ["check"]):
        ended = hpctrip(*command, tiny, *arguments)
        assert ended.code == 2 and len(ended.report) == 1, ended.err
        assert all(word in ended.err for word in words), ended.err
    assert list(tmp_path.iterdir()) == []


FROZEN = """
import torch
from torch import nn


class Frozen(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.register_buffer("directions", torch.randn(8, 8), persistent=False)
        self.register_buffer("prime", torch.tensor(2654435761))
        self.register_buffer("low", torch.tensor(float("inf")))
        self.features = nn.Linear(8, 64).requires_grad_(False)
        self.norm, self.head = nn.BatchNorm1d(64), nn.Linear(64, num_classes)

    def forward(self, x):
        if self.training:
            self.low = torch.minimum(self.low, x.detach().min())
        return self.head(self.norm(self.features(x @ self.directions).relu()))
"""
OWN = """
name = "own"
sites.num_sites = 4
workload = {kind = "arrays", data = "FOLDER/points.npz", model = "net.py:Frozen"}
partition.kind = "iid"
policy.kind = "all"
train.lr = 0.1
stop = {max_rounds = 4, target_accuracy = 1}
"""


LATE = FROZEN.replace(
    "        if self.training:",
    "        if self.training and len(x) == 20:\n            self.prime += 1\n        if self.training:",
)
DRAWN = FROZEN.replace(
    "class Frozen", "FIXED = nn.Linear(8, 64).requires_grad_(False)\n\n\nclass Frozen"
).replace("nn.Linear(8, 64).requires_grad_(False)\n        self", "FIXED\n        self")
SEEDED = "from hpctrip.base.process import launched_rank\n" + FROZEN.replace(
    "super().__init__()", "super().__init__()\n        torch.manual_seed(launched_rank())", 1
)
COUNTING = "    def prepare_data(self, seed):\n        open({calls!r}, 'a').write('x')\n\n    def task("


def written(folder, code):
    """An input in this folder with a model of this code."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 8)).astype(np.float32)
    np.savez(folder / "points.npz", x=x * [50_000, *[1] * 7], y=(x[:, 0] > 0).astype(np.int64))
    (folder / "net.py").write_text(code)
    (folder / "own.toml").write_text(OWN.replace("FOLDER", str(folder)))
    return folder / "own.toml"


def counting(folder):
    """Arguments of a run whose plug-in notes in `calls` that it prepares its data."""
    counted = COUNTING.format(calls=str(folder / "calls"))
    code = PATH.read_text().replace("    def task(", counted).replace('"points"', '"counted"')
    (folder / "counting.py").write_text(code)  # a kind of its own: this process may hold the other one
    lines = (POINTS[1].replace("points", "counted"), POINTS[2], "sites.num_sites=3", "stop.max_rounds=1")
    return ["run", "--plugin", folder / "counting.py", *(f"-o{line}" for line in lines)]


@pytest.fixture
def own(folder):
    """An input with a model that has frozen random features, constants, and buffers of several sorts."""
    return written(folder, FROZEN)


@pytest.fixture(scope="module")
def on_three(launch, tmp_path_factory):
    """The only launch of three ranks; the last command ends it."""
    folder = tmp_path_factory.mktemp("three")
    models = {"own": FROZEN, "drawn": DRAWN, "seeded": SEEDED, "late": LATE}
    for name in ("counted", *models):
        (folder / name).mkdir()
    commands = {"counted": counting(folder / "counted")}
    for name, code in models.items():
        rounds = 1 if name in ("drawn", "seeded") else 4
        commands[name] = ["run", written(folder / name, code), f"-ostop.max_rounds={rounds}"]
    return launch.commands(
        3, folder, {n: [*words, "--out", folder / f"{n}.h5"] for n, words in commands.items()}
    )


def test_data_are_prepared_once_a_machine(hpctrip, on_three, folder):
    ended = hpctrip(*counting(folder), "--out", "x.h5")
    assert ended.code == 0, ended.err
    assert on_three.codes("counted") == [0] * 3, on_three.output("counted", "err")
    assert [(at / "calls").read_text() for at in (folder, on_three.folder / "counted")] == ["x", "x"]


def test_what_training_does_not_change_is_the_same_everywhere(own, on_three, hpctrip, folder):
    """In training and evaluation, on any number of ranks, after a resume, and in the exported model; buffers may be
    infinite at first, and large."""
    ended = hpctrip("run", own, "--out", "0.h5")
    assert ended.code == 0, ended.err
    assert hpctrip("run", own, "-o", "stop.max_rounds=2", "--out", "short.h5").code == 0
    assert hpctrip("resume", "short.h5", "--plugin", "net.py", "-o", "stop.max_rounds=4").code == 0
    runs = [*map(open_run, ("0.h5", "short.h5")), on_three.run("own")]
    assert len({run.meta["params_digest"] for run in runs}) == 1
    assert runs[0].rounds["accuracy"].max() > 0.8
    assert runs[0].meta["num_buffers"] == 64 + 64 + 1 + 1  # those of the norm, and `low`

    assert hpctrip("export", "0.h5", "--model", "net.safetensors").report[0].count("--plugin PATH") == 1
    assert hpctrip("export", "0.h5", "--model", "net.safetensors", "--plugin", "net.py").code == 0
    arrays = load_file("net.safetensors")
    model = named_code_of(folder / "net.py")(2)
    model.load_state_dict(arrays, strict=True)
    assert arrays["prime"] == 2654435761 and arrays["low"] < -50_000


def named_code_of(path):
    names = {}
    exec(path.read_text(), names)
    return names["Frozen"]


def test_other_frozen_parameters_are_refused_when_a_run_goes_on(own, hpctrip, folder):
    torch.save(torch.ones(8, 8), "directions.pt")
    (folder / "net.py").write_text(FROZEN.replace("torch.randn(8, 8)", 'torch.load("directions.pt")'))
    assert hpctrip("run", own, "-o", "stop.max_rounds=1", "--out", "a.h5").code == 0
    torch.save(torch.zeros(8, 8), "directions.pt")
    hpctrip("resume", "a.h5", "--plugin", "net.py", "-o", "stop.max_rounds=2").check_refused(
        ["workload.model", "gave other frozen parameters or constants than in the run of"]
    )


def test_a_constant_that_changes_after_all_ends_the_run(hpctrip, on_three, folder):
    ended = hpctrip("run", written(folder, LATE), "--out", "a.h5")
    for code, err in ((ended.code, ended.err), (on_three.ended.code, on_three.output("late", "err"))):
        assert code == 2 and "Traceback" not in err
        assert "changes prime in round 1, which it left as it was when it was tried" in err
    assert on_three.codes("late") == []


@pytest.mark.parametrize(("name", "code"), [("drawn", DRAWN), ("seeded", SEEDED)])
def test_all_ranks_begin_with_the_model_of_rank_0(name, code, hpctrip, on_three, folder):
    """What is drawn when a file is imported, too; and where ranks draw other numbers, as processors of other kinds may
    in the last bits."""
    ended = hpctrip("run", written(folder, code), "-o", "stop.max_rounds=1", "--out", "alone.h5")
    assert ended.code == 0, ended.err
    assert on_three.run(name).meta["params_digest"] == open_run("alone.h5").meta["params_digest"]
