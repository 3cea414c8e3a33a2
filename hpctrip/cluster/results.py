"""Results files of simulated clusters: writing, reading, summary, consistency checks and comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from hpctrip.base.errors import Fault
from hpctrip.base.frames import pd
from hpctrip.base.io import replace_file
from hpctrip.base.rows import columns
from hpctrip.base.units import HOUR_S, amount
from hpctrip.cluster.rows import IntervalRow, JobRows, Result
from hpctrip.record.diff import Difference, changes, differences
from hpctrip.record.reader import common_fields, read_frame
from hpctrip.record.results_file import ResultsFile
from hpctrip.record.schema import ATTRIBUTES as RUN_ATTRIBUTES
from hpctrip.record.schema import Attribute, Column, Format, to_columns
from hpctrip.record.show import facts_of, summary
from hpctrip.record.verify import contradictions, unequal
from hpctrip.record.writer import file_image

_SHARED = (
    *("status", "stop_reason", "scenario", "label", "command", "folder", "created_utc", "seed"),
    *("hpctrip_version", "git_commit", "git_dirty", "python_version", "numpy_version", "h5py_version"),
    *("synthetic_signals", "slurm_cluster", "slurm_job", "slurm_step", "slurm_nodes"),
)
ATTRIBUTES: dict[str, Attribute] = {
    **{name: RUN_ATTRIBUTES[name] for name in _SHARED},
    "neutral_keys": Attribute(
        [], "input keys and tables that change no result, or are newer and at their default"
    ),
    "sources": Attribute([], "what was read: input key, path and BLAKE2b digest; plug-ins included"),
    "packages": Attribute([], "installed packages that added components: name and version"),
    "simulated_start": Attribute(
        [], "the time at which simulated time begins: input table and time of its file", is_later=True
    ),
    "scheduler": Attribute("", "scheduler"),
    "synthetic_jobs": Attribute(False, "the jobs are synthetic"),
    "mean_jct_s": Attribute(float("nan"), "average job completion time (NaN: a job was not completed)"),
    "energy_j": Attribute(0.0, "energy of the whole cluster"),
    "carbon_g": Attribute(0.0, "carbon of this energy (0: intensity unknown)"),
    "wall_s": Attribute(0.0, "wall time of the simulation"),
}
"""Attributes of the results file of a cluster."""
TABLES = {"jobs": columns(JobRows), "intervals": columns(IntervalRow)}
CLUSTER = Format(
    "hpctrip cluster",
    version=1,
    attributes=ATTRIBUTES,
    tables=TABLES,
    docs={
        "jobs": "one row per job, in the order of submission; index: job",
        "intervals": "one row per time interval; index: interval",
    },
    index={"jobs": "job", "intervals": "interval"},
)


@dataclass(frozen=True, eq=False)
class ClusterRun(ResultsFile):
    """The results of one simulated cluster."""

    jobs: pd.DataFrame
    """[N] one row per job."""
    intervals: pd.DataFrame
    """One row per interval of time."""

    format = CLUSTER
    replayed_by = "hpctrip.cluster.run:replay"

    @classmethod
    def read(cls, path: Path, file: h5py.File, whole: bool = True) -> Self:
        """Read the results from an open file; always the `whole`, which its facts need."""
        frames = {name: read_frame(file[name], about) for name, about in TABLES.items()}
        return cls(**common_fields(path, file, cls.format), **frames)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames by the name of their group in the file."""
        return {"jobs": self.jobs, "intervals": self.intervals}

    @property
    def counted(self) -> str:
        """Numbers of jobs and intervals as text."""
        return f"{len(self.jobs)} jobs, {len(self.intervals)} intervals"


def write_cluster(path: str | Path, meta: Mapping[str, Any], result: Result) -> None:
    """Write a results file atomically, replacing an existing one.

    `meta` holds attributes, those of ATTRIBUTES or others, and the two texts `input_toml` and `input_json`. The
    attributes that are derived from the rows are added. Raises InputError if the file cannot be written.
    """
    meta = {name: attribute.default for name, attribute in ATTRIBUTES.items()} | dict(meta)
    meta |= {
        "stop_reason": result.stop_reason,
        "mean_jct_s": result.mean_jct_s,
        "energy_j": float(result.energy_j),
        "carbon_g": float(sum(row.carbon_g for row in result.intervals)),
    }
    texts = {"toml": meta.pop("input_toml", ""), "json": meta.pop("input_json", "{}")}
    replace_file(path, file_image(CLUSTER, meta, texts, tables_of(result)))


def tables_of(result: Result) -> dict[str, dict[str, Column]]:
    """The rows of a simulation as columns: {table: {column: Column}}."""
    jobs = {name: getattr(result.jobs, name) for name in TABLES["jobs"]}
    intervals = {name: [getattr(row, name) for row in result.intervals] for name in TABLES["intervals"]}
    return {
        "jobs": to_columns(TABLES["jobs"], jobs),
        "intervals": to_columns(TABLES["intervals"], intervals),
    }


@facts_of.register
def cluster_facts(run: ClusterRun) -> dict[str, Any]:
    """Key figures of a simulated cluster by name, for `show` and exports; NaN: undefined."""
    jobs, rows = run.jobs, run.intervals
    span_s = float(rows["clock_s"].iloc[-1]) if len(rows) else 0.0
    lengths_s = (rows["clock_s"] - rows["clock_start_s"]).to_numpy()
    done = jobs["jct_s"].dropna()
    num_nodes = run.setting("cluster.num_nodes", 0)

    def mean(name: str) -> float:
        return float((rows[name] * lengths_s).sum() / span_s) if span_s else 0.0

    return {
        "path": str(run.path),
        **{name: run.meta[name] for name in _FACT_ATTRIBUTES},
        "placement": str(run.setting("placement.kind", "unknown")),
        "budget": str(run.setting("budget.kind", "unknown")),
        "jobs_path": run.setting("jobs.path"),
        "num_nodes": num_nodes,
        "num_gpus": num_nodes * run.setting("cluster.gpus_per_node", 0),
        "num_jobs": len(jobs),
        "num_completed": len(done),
        "mean_completed_jct_s": float(done.mean()),
        "median_completed_jct_s": float(done.median()),
        "p99_completed_jct_s": float(done.quantile(0.99)),
        "clock_s": span_s,
        **{f"{part}_energy_j": float(rows[f"{part}_energy_j"].sum()) for part in ("job", "host", "idle")},
        **{f"mean_{name}": mean(name) for name in ("busy_gpus", "nodes_on", "stranded_gpus")},
        "num_boots": int(rows["boots"].sum()),
        "num_starts": int(jobs["starts"].sum()),
        "num_migrations": int(jobs["migrations"].sum()),
    }


_FACT_ATTRIBUTES = (
    *("status", "stop_reason", "scenario", "label", "seed", "scheduler", "synthetic_jobs"),
    *("energy_j", "carbon_g", "synthetic_signals", "simulated_start"),
    *("hpctrip_version", "git_commit", "git_dirty", "created_utc", "wall_s"),
)


@summary.register
def cluster_summary(run: ClusterRun) -> dict[str, str]:
    """The key figures as lines of text, {title: text}."""
    facts = cluster_facts(run)
    jct = (
        f"{facts['mean_completed_jct_s']:.1f} s mean, {facts['median_completed_jct_s']:.1f} s median, "
        f"{facts['p99_completed_jct_s']:.1f} s 99th percentile"
    )
    energy = [amount(facts[f"{name}energy_j"], "joules") for name in ("", "job_", "host_", "idle_")]
    synthetic = " (synthetic)" if facts["synthetic_signals"] else ""
    carbon = {"carbon": f"{amount(facts['carbon_g'], 'grams')} CO2{synthetic}"} if facts["carbon_g"] else {}
    trace = f"{facts['jobs_path'] or 'a generator'}{' (synthetic)' if facts['synthetic_jobs'] else ''}"
    return {
        "status": f"{facts['status']}: {facts['stop_reason']}",
        "scenario": f"{facts['scenario'] or 'unnamed'}, seed {facts['seed']}",
        "scheduler": f"{facts['scheduler']}, placement {facts['placement']}, budget {facts['budget']}",
        "cluster": f"{facts['num_gpus']:,} GPUs on {facts['num_nodes']:,} nodes",
        "jobs": f"{facts['num_completed']:,} of {facts['num_jobs']:,} completed, from {trace}",
        **({"begins": "; ".join(facts["simulated_start"])} if facts["simulated_start"] else {}),
        "job completion time": jct if facts["num_completed"] else "no job was completed",
        "simulated time": f"{facts['clock_s'] / HOUR_S:.2f} h",
        "energy": "{}: jobs {}, hosts {}, idle GPUs {}".format(*energy),
        **carbon,
        "GPUs with a job": f"{facts['mean_busy_gpus']:.1f} of {facts['num_gpus']:,} on average",
        "nodes on": f"{facts['mean_nodes_on']:.1f} on average, {facts['num_boots']:,} boots",
        "starts": f"{facts['num_starts']:,}, {facts['num_migrations']:,} of them migrations",
        "stranded GPUs": f"{facts['mean_stranded_gpus']:.1f} free in partly used nodes on average",
        "hpctrip": f"{facts['hpctrip_version']}, {facts['wall_s']:.1f} s, written {facts['created_utc']}",
    }


@contradictions.register
def cluster_contradictions(run: ClusterRun) -> Iterator[Fault]:
    """Consistency check: one fault for every column that contradicts other columns."""
    jobs, rows = run.jobs, run.intervals
    parts_j = rows["job_energy_j"] + rows["host_energy_j"] + rows["idle_energy_j"]
    checks = {
        "/jobs/jct_s": (jobs["jct_s"], jobs["end_s"] - jobs["submit_s"]),
        "/intervals/energy_j": (rows["energy_j"], parts_j),
        "/intervals/power_w": (rows["power_w"] * (rows["clock_s"] - rows["clock_start_s"]), rows["energy_j"]),
        "/intervals/clock_start_s": (rows["clock_start_s"].iloc[1:], rows["clock_s"].iloc[:-1]),
        "/jobs/energy_j": ([jobs["energy_j"].sum()], [rows["job_energy_j"].sum()]),
        "/jobs/starts": ([jobs["starts"].sum()], [rows["starts"].sum()]),
        "energy_j": ([run.meta["energy_j"]], [rows["energy_j"].sum()]),
        "carbon_g": ([run.meta["carbon_g"]], [rows["carbon_g"].sum()]),
        "mean_jct_s": ([run.meta["mean_jct_s"]], [jobs["jct_s"].mean(skipna=False)]),
    }
    for place, pair in checks.items():
        values, expected = map(np.asarray, pair)
        for at in unequal(values, expected, 1e-6)[:1]:
            problem = f"row {at}: is {values[at]:g}, the other columns give {expected[at]:g}"
            yield Fault(f"{run.path}: {place}", problem)


@differences.register
def cluster_differences(a: ClusterRun, b: ClusterRun) -> Iterator[Difference]:
    """Differences between the tables of two simulated clusters."""
    for table, key in CLUSTER.index.items():
        yield from changes(table, a.tables[table], b.tables[table], key)
