"""Kind of the results files of federated runs."""

from __future__ import annotations

from hpctrip.record.diff import run_differences
from hpctrip.record.reader import read_run
from hpctrip.record.results_file import Kind
from hpctrip.record.show import run_facts, run_summary
from hpctrip.record.verify import run_contradictions

KIND = Kind(
    read=read_run,
    facts=run_facts,
    summary=run_summary,
    contradictions=run_contradictions,
    differences=run_differences,
    replay="hpctrip.runner.replay:replay",
)
