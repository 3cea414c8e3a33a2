"""What users write, for mypy (`mypy` in the root of the repository, and `.ci/run`); it is never run.

A line with an `ignore` is a mistake that a type checker must find: mypy fails where it does not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hpctrip
from hpctrip.api import (
    POLICIES,
    POWER_MODELS,
    Decision,
    History,
    Policy,
    PowerModel,
    PowerSupply,
    SiteView,
    SteadySupply,
)


def study_a_scenario() -> None:
    run = hpctrip.run("inputs/smoke.toml", {"policy.kind": "static", "policy.k": 5}, out=Path("k5.h5"))
    print(run.status, run.meta["policy"], run.time_to_accuracy_s / 3600, len(run.rounds), run.time_to(0.4))
    more = hpctrip.resume(run.path, overrides={"stop.max_rounds": 3}, quiet=True)
    hpctrip.plot("curves", [run, more], target=0.4).save("curves.pdf")
    run.plot().save(Path("summary.png"), overwrite=True)
    print(len(hpctrip.study("fig09", small=True)), hpctrip.study(sweeps={"seed": range(3)}, jobs=2).columns)
    print(hpctrip.simulate("inputs/cluster/powerflow.toml").jobs, hpctrip.open("k5.h5").path)
    print(hpctrip.open("k5.h5").rounds, hpctrip.open("cluster.h5").jobs)
    cluster: hpctrip.Cluster = hpctrip.open("cluster.h5")
    cluster.plot(width=7.2, font_size=10)
    on_ranks = hpctrip.run(launched=True)
    print("rank 0" if on_ranks is not None else "another rank")


def make_mistakes(run: hpctrip.Run) -> None:
    hpctrip.run("inputs/smoke.toml", ["policy.k=5"])  # type: ignore[arg-type]
    hpctrip.run("inputs/smoke.toml", output="k5.h5")  # type: ignore[call-arg]
    hpctrip.run(out=5)  # type: ignore[arg-type]
    hpctrip.run().rownds  # type: ignore[union-attr]  # noqa: B018
    hpctrip.resume()  # type: ignore[call-arg]
    hpctrip.resume(run)  # type: ignore[arg-type]
    hpctrip.study("fig09", jobs="all")  # type: ignore[arg-type]
    hpctrip.study(sweeps=["policy.k=5,10"])  # type: ignore[arg-type]
    hpctrip.simulate(launched=True)  # type: ignore[call-arg]
    hpctrip.open(5)  # type: ignore[arg-type]
    hpctrip.open("k5.h5").rownds  # type: ignore[attr-defined]  # noqa: B018
    hpctrip.plot(run)  # type: ignore[call-arg,arg-type]
    run.time_to("45 %")  # type: ignore[arg-type]
    run.plot(7)  # type: ignore[arg-type]
    hpctrip.plot("curves", run).save(None)  # type: ignore[arg-type]


@POLICIES.add
class Nearest(Policy):
    kind = "nearest"
    k: int = 10

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        return Decision(sites.distance_m.argsort()[: self.k], local_work=1 + len(history.rows))


@POWER_MODELS.add
class Full(PowerModel):
    kind = "full"

    def supply(self, num_sites: int, seed: int) -> PowerSupply:
        return SteadySupply(np.ones(num_sites))


class Mistaken(Policy):
    def select(self, sites: SiteView, history: History) -> Decision:  # type: ignore[override]
        history.last.accuracies  # type: ignore[union-attr]  # noqa: B018
        return Decision([1, 2])  # type: ignore[arg-type]


class Dark(PowerModel):
    def supply(self, num_sites: int, seed: int) -> float:  # type: ignore[override]
        return SteadySupply(num_sites)  # type: ignore[arg-type,return-value]


def ask(policy: Policy, power: PowerModel, sites: SiteView, history: History) -> None:
    policy.select(sites, history, 3)  # type: ignore[arg-type]
    power.supply("all", 0)  # type: ignore[arg-type]
