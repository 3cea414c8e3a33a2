"""The plain PyTorch loop, in one process of as many threads as there are cores: plain.py CASE REPORT ROUNDS DEVICE."""

from __future__ import annotations

import sys

import torch
from common import Case, Report, accuracy, flat, load, train


def main(folder: str, report_path: str, num_rounds: str, device: str) -> None:
    """Train, average, evaluate."""
    case = Case.open(folder)
    shape, params = case.shape, case.params.to(device)
    model = shape.build_model().to(device)
    test = tuple(part.to(device) for part in case.test)
    report = Report(report_path)
    for round in range(int(num_rounds)):
        total = torch.zeros_like(params)
        for position in range(shape.cohort):
            load(model, params)
            train(model, *(part.to(device) for part in case.site_data(round, position)), shape)
            total += flat(model)
        params = total / shape.cohort
        load(model, params)
        accuracy(model, test)
        report.round(params)
    report.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
