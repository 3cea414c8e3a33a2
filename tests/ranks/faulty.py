"""A plug-in that breaks rank $FAULTY_RANK down after the first round, and notes the time in $FAULTY_FILE; with
$FAULTY_NAN its training diverges in the second round instead, and with $FAULTY_SLEEP_S that takes so much longer, while
torch gives its collectives a second."""

import dataclasses
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from torch.distributed import distributed_c10d

from hpctrip.base.process import launched_rank
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.learn.workloads.emnist import Emnist
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.powertrip import PowerTrip

TRIED, BATCHES_OF_A_ROUND = 7, 4
"""What the host of rank 3 of 5 prepares: samples to check the model (1), try it (5) and the engine (1) on, then in a
round up to two batches of each of two of ten sites."""


if "FAULTY_SLEEP_S" in os.environ:
    distributed_c10d.default_pg_timeout = timedelta(seconds=1)


def break_down() -> None:
    Path(os.environ["FAULTY_FILE"]).write_text(str(time.time()))
    raise RuntimeError("broken on purpose")


def is_faulty() -> bool:
    return launched_rank() == int(os.environ["FAULTY_RANK"])


@POLICIES.add
class FaultyPolicy(PowerTrip):
    """Breaks the aggregator."""

    kind = "faulty"

    def select(self, sites, history, rng):
        if len(history) == 1 and is_faulty():
            break_down()
        return super().select(sites, history, rng)


@WORKLOADS.add
class FaultyWorkload(Emnist):
    """Breaks a host in the midst of its training."""

    kind: ClassVar[str] = "faulty"

    def task(self, seed):
        task = super().task(seed)
        calls = []

        def prepare(images):
            calls.append(len(images))
            later = len(calls) - TRIED - BATCHES_OF_A_ROUND
            if later > 0 and is_faulty():
                if "FAULTY_NAN" in os.environ:
                    return task.prepare(images) * float("nan")
                if "FAULTY_SLEEP_S" not in os.environ and later > BATCHES_OF_A_ROUND:
                    break_down()  # when rank 0 has recorded the first round
                if "FAULTY_SLEEP_S" in os.environ and later == 1:
                    time.sleep(float(os.environ["FAULTY_SLEEP_S"]))
            return task.prepare(images)

        return dataclasses.replace(task, prepare=prepare)
