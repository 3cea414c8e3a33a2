"""The small study of these tests, as text, and a reader of its ledger."""

import pandas as pd

BASE = """
name = "tiny"
sites.num_sites = 6
workload.train_samples = 400
workload.test_samples = 200
stop.max_rounds = 6
stop.target_accuracy = 1.0
policy.kind = "static"
"""
STUDY = """
name = "two"
title = "Two cohort sizes"
inputs = ["base.toml"]
seeds = [4, 5]

[[axis]]
key = "policy.k"
values = [2, 3]

[[figure]]
name = "sweep"
target = 0.01

[[figure]]
name = "curves"
"""
"""It uses the data of the tiny scenario, so that they are prepared once for all tests."""


def ledger_of(folder, name="two"):
    """The ledger of a study, indexed by run; the last row of a run counts."""
    rows = pd.read_csv(folder / "out" / name / "ledger.csv", keep_default_na=False)
    return rows.drop_duplicates("run", keep="last").set_index("run")
