"""One file per workload; importing this package registers them all in WORKLOADS."""

from hpctrip.learn.workloads import emnist as emnist
from hpctrip.learn.workloads import femnist as femnist
from hpctrip.learn.workloads import llm as llm
from hpctrip.learn.workloads import shakespeare as shakespeare
from hpctrip.learn.workloads import speech as speech
from hpctrip.learn.workloads.base import WORKLOADS as WORKLOADS
