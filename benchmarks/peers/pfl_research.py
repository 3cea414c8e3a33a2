"""pfl-research in as many processes as torchrun starts, over gloo: pfl_research.py CASE REPORT ROUNDS.
Started without torchrun it is one process; where that sees a GPU, it trains there.

At its best: one process of one thread a core, raw data in memory, no evaluation of every user before and after its
training, the held-out data shared out over the processes and on the GPU.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from itertools import product
from operator import methodcaller

import torch
import torch.nn.functional as F
from common import EVAL_BATCH, Case, Report, flat, load, prepare
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import get_default_device
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel


class Trainable(torch.nn.Module):
    """The model with the two methods that pfl asks for."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean loss of a batch."""
        return F.cross_entropy(self.model(prepare(images)), labels)

    @torch.inference_mode()
    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
        """Accuracy of a batch."""
        hits = (self.model(prepare(images)).argmax(1) == labels).sum().item()
        return {"accuracy": Weighted(hits, len(labels))}


class Stopwatch(TrainingProcessCallback):
    """Reports every round; stands after the evaluation."""

    def __init__(self, report: Report):
        self.report = report

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """The first round begins."""
        self.report.start()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """A round is done."""
        self.report.round(flat(model.pytorch_model))
        return False, Metrics()


def main(folder: str, report_path: str, num_rounds: str) -> None:
    """Run the simulation."""
    torch.set_num_threads(1)
    case = Case.open(folder)
    shape = case.shape
    model = shape.build_model()
    load(model, case.params)
    trainable = Trainable(model)
    pfl_model = PyTorchModel(
        trainable,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trainable.parameters(), lr=1.0),
    )
    on_device = partial(map, methodcaller("to", get_default_device()))
    visits = product(range(int(num_rounds)), range(shape.cohort))
    training = FederatedDataset(
        lambda visit: PyTorchTensorDataset(tuple(on_device(case.site_data(*visit)))), lambda: next(visits)
    )
    evaluation = CentralEvaluationCallback(
        PyTorchTensorDataset(tuple(on_device(case.test))), NNEvalHyperParams(local_batch_size=EVAL_BATCH)
    )
    stopwatch = Stopwatch(Report(report_path))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=int(num_rounds),
            evaluation_frequency=10**9,
            train_cohort_size=shape.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training, training, postprocessors=[WeightByDatapoints()]),
        pfl_model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=shape.lr, local_batch_size=shape.batch_size
        ),
        callbacks=[evaluation, stopwatch],
    )
    if os.environ.get("RANK", "0") == "0":
        stopwatch.report.close()
    sys.stdout.flush()
    os._exit(0)  # one exit in five aborts otherwise, in the threads that gloo leaves behind


if __name__ == "__main__":
    main(*sys.argv[1:])
