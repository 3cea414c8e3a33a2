"""What hpctrip's engines are measured against on any device."""

from __future__ import annotations

import numpy as np
import torch

from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Task


class PlainLoop:
    """What a reader of the tutorials writes: a fresh optimizer per site, one sample order, no tricks. The data lie on
    the device, as the engines' do."""

    def __init__(self, task: Task, work: LocalWork, device: str):
        self.task, self.work, self.device = task, work, device
        self.model = task.build_model().to(device)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.inputs = torch.from_numpy(task.train.inputs).to(device)
        self.labels = torch.from_numpy(task.train.labels).to(device)

    def train(self, params: torch.Tensor, visits: list[list[np.ndarray]]) -> list[torch.Tensor]:
        """The deltas [num_params] of the sites."""
        deltas = []
        for (order,) in visits:
            for p, start in zip(self.trained, params.split([p.numel() for p in self.trained]), strict=True):
                p.data.copy_(start.view(p.shape))  # in place: cuDNN wants an LSTM's weights where they were
            optimizer = self._optimizer()
            for batch in torch.from_numpy(order).to(self.device).split(self.work.batch_size):
                optimizer.zero_grad()
                outputs = self.model(self.task.prepare(self.inputs[batch]))
                self.task.loss(outputs, self.labels[batch]).backward()
                optimizer.step()
            deltas.append(flatten(self.model) - params)
        return deltas

    def _optimizer(self) -> torch.optim.Optimizer:
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[self.work.optimizer]
        return kind(self.trained, lr=self.work.lr, weight_decay=self.work.weight_decay or 0.0)
