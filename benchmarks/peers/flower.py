"""Flower's simulation engine (Ray) with one worker a core: flower.py CASE REPORT ROUNDS WORKERS.

At its best: parameters travel as one array, a worker keeps its model and its data, the clients' own evaluation is off
and the server, alone at that time, evaluates with all cores. Ray's workers run at normal priority (by default they give
way to everything else on the machine).
"""

from __future__ import annotations

import sys
import time
from functools import lru_cache

import torch
from common import Case, Report, accuracy, flat, load, train
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client_app = ClientApp()


@lru_cache(maxsize=1)
def in_worker(folder: str) -> tuple[Case, torch.nn.Module]:
    """The case and the model that a worker keeps from message to message."""
    torch.set_num_threads(1)
    case = Case.open(folder)
    return case, case.shape.build_model()


@client_app.train()
def train_site(message: Message, context: Context) -> Message:
    """Train the site that the message names from the parameters that it brings."""
    config = message.content["config"]
    case, model = in_worker(config["folder"])
    load(model, torch.from_numpy(message.content["arrays"].to_numpy_ndarrays()[0]))
    images, labels = case.site_data(config["round"], config["position"])
    train(model, images, labels, case.shape)
    content = {
        "arrays": ArrayRecord([flat(model).numpy()]),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(RecordDict(content), reply_to=message)


class Cohorts(FedAvg):
    """FedAvg over the cohorts of the case: any node will do, the message says which site it is this round."""

    def __init__(self, case: Case):
        super().__init__(fraction_evaluate=0.0)
        self.case = case

    def configure_train(self, server_round, arrays, config, grid):
        """One message a site."""
        nodes = zip(range(self.case.shape.cohort), grid.get_node_ids(), strict=False)
        job = {"folder": str(self.case.folder), "round": server_round - 1}
        return [
            Message(
                RecordDict({"arrays": arrays, "config": ConfigRecord(job | {"position": position})}),
                dst_node_id=node,
                message_type=MessageType.TRAIN,
            )
            for position, node in nodes
        ]


def main(folder: str, report_path: str, num_rounds: str, num_workers: str) -> None:
    """Run the simulation."""
    case, server_app = Case.open(folder), ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < case.shape.num_sites:
            time.sleep(0.1)
        model, report = case.shape.build_model(), Report(report_path)

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
            load(model, torch.from_numpy(arrays.to_numpy_ndarrays()[0]))
            result = MetricRecord({"accuracy": accuracy(model, case.test)})
            if server_round:
                report.round(flat(model))
            else:  # the evaluation of the initial model
                report.start()
            return result

        initial = ArrayRecord([case.params.numpy()])
        Cohorts(case).start(grid, initial, num_rounds=int(num_rounds), evaluate_fn=evaluate)
        report.close()

    run_simulation(
        server_app,
        client_app,
        num_supernodes=case.shape.num_sites,
        backend_config={
            "init_args": {"num_cpus": int(num_workers)},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    import flower  # this file as a module: Ray's workers then import it once, where __main__ comes with every message

    flower.main(*sys.argv[1:])
