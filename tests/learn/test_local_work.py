"""Local training in a round: the keys of the input, and for absent ones the values of the workload in the paper."""

import numpy as np

from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.workloads import WORKLOADS

SPEECH = WORKLOADS["speech"]()
IN_FORCE = ("lr", "batch_size", "optimizer", "weight_decay", "local_epochs", "local_steps")


def resolve(**keys):
    work = SPEECH.local_work(LocalWork(**keys)).model_dump()
    return tuple(work[name] for name in IN_FORCE)


def test_absent_keys_take_the_values_of_the_workload():
    assert resolve() == (0.001, 16, "adamw", 0.1, 1.0, None)
    assert resolve(lr=0.5, weight_decay=0.0, optimizer="sgd") == (0.5, 16, "sgd", 0.0, 1.0, None)


def test_steps_stand_for_epochs():
    assert resolve(local_steps=3)[-2:] == (None, 3)
    steps = SPEECH.local_work(LocalWork(local_steps=3, batch_size=5))
    assert steps.num_visits(np.array([0, 2, 900])).tolist() == [0, 15, 15]
    # a fraction of a pass in whole batches of 16, as far as there are so many samples
    tenth = SPEECH.local_work(LocalWork(local_epochs=0.1))
    assert tenth.num_visits(np.array([0, 2, 901])).tolist() == [0, 2, 96]
    twice = SPEECH.local_work(LocalWork(local_epochs=2))
    assert twice.num_visits(np.array([0, 2, 901])).tolist() == [0, 4, 1802]
