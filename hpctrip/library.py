"""hpctrip from Python: `import hpctrip`, then `run`, `resume`, `simulate`, `open` and `plot`.

Nothing heavy is loaded before one of them is used. They do what the commands of the same names do, raise the same
errors (`hpctrip.InputError` and so on) instead of ending the process, and may be called again and again, in notebooks
too. Under a launcher every rank calls them in the same order; rank 0 gets the result, the others None.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from hpctrip.base.errors import InputError
from hpctrip.cluster import results
from hpctrip.config.inputs import inline_toml
from hpctrip.record import reader
from hpctrip.record.results_file import ResultsFile, open_results
from hpctrip.runner.resume import start_new, start_or_resume, start_resumed
from hpctrip.runner.session import launch

Inputs = str | Path | Iterable[str | Path]


class Run(reader.Run):
    """One results file in memory: `rounds`, `sites`, `cohorts` and `candidates` are pandas frames, `meta` its
    attributes, `input` the values in force. A notebook shows its summary."""

    def plot(self, figure: str = "summary", **options: Any) -> Any:
        """A figure of this run alone, see `hpctrip.plot`."""
        return plot(figure, self, **options)

    def __repr__(self) -> str:
        return f"<Run {self.path}: {self.meta['scenario']}, {self.status}, {len(self.rounds)} rounds>"

    def _repr_html_(self) -> str:
        return _shown(self)


class Cluster(results.ClusterRun):
    """The results of one simulated cluster in memory: `jobs` and `intervals` are pandas frames, `meta` and `input` as
    of a `Run`. A notebook shows its summary."""

    def plot(self, figure: str = "cluster_time", **options: Any) -> Any:
        """A figure of this cluster alone, see `hpctrip.plot`."""
        return plot(figure, self, **options)

    def __repr__(self) -> str:
        return f"<Cluster {self.path}: {self.meta['scheduler']}, {self.status}, {self.counted}>"

    def _repr_html_(self) -> str:
        return _shown(self)


def run(
    inputs: Inputs = (),
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
) -> Run | None:
    """Train one scenario: TOML files merged left to right (none: the demonstration on embedded data), then `overrides`.

        run = hpctrip.run("inputs/emnist_static.toml", {"policy.k": 50, "seed": 3}, out="results/k50.h5")

    `overrides` maps dotted keys to values; None leaves a key absent, which means its default. `out` is the results file
    (default: results/NAME-TIME.h5), `resume` goes on with it if it is there, `quiet` prints nothing. Raises InputError
    for bad input, DivergedError, and InterruptedRun where the run left early and can be resumed.
    """
    given = (_paths(inputs), _lines(overrides), None if out is None else str(out))
    code = _paths(plugins)
    if resume:
        return _launched(lambda: start_or_resume(*given, plugins=code), quiet)
    return _launched(lambda: start_new(*given, overwrite, plugins=code), quiet)


def resume(
    source: str | Path,
    inputs: Inputs = (),
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
) -> Run | None:
    """Go on with a run from its newest checkpoint, e.g. with `overrides = {"stop.max_rounds": 100}`. Arguments and
    errors as in `run`."""
    elsewhere = None if out is None else str(out)
    paths, lines, code = _paths(inputs), _lines(overrides), _paths(plugins)
    return _launched(lambda: start_resumed(str(source), paths, lines, elsewhere, plugins=code), quiet)


def simulate(
    inputs: Inputs = (),
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    plugins: Iterable[str | Path] = (),
) -> Cluster:
    """Simulate one GPU cluster, as `hpctrip cluster` does (no input: synthetic jobs on 128 GPUs).

        cluster = hpctrip.simulate("inputs/cluster/powerflow.toml", {"scheduler.kind": "fifo"})
        results.jobs.jct_s.mean(), results.meta["energy_j"]

    Arguments as in `run`. Raises InputError for bad input.
    """
    from hpctrip.cluster.run_simulate import simulate as simulated

    given = _paths(inputs), _lines(overrides), None if out is None else str(out)
    return _typed(results.open_cluster(simulated(*given, overwrite, _paths(plugins))))


def open(path: str | Path) -> Run | Cluster:
    """A results file, of a run or of a simulated cluster. Raises InputError for whatever is wrong with it."""
    return _typed(open_results(path))


def plot(figure: str, runs: ResultsFile | Iterable[ResultsFile], **options: Any) -> Any:
    """One of the figures that `hpctrip plot` lists, of one run or cluster or of several: a Drawing with `picture` (a
    matplotlib figure), `table` (its numbers) and `lines`, which notebooks show. `options` are those of the command,
    with _ for -."""
    from hpctrip.base.text import unknown_name
    from hpctrip.figures import FIGURES

    if figure not in FIGURES:
        raise InputError(f"figure {figure!r}", "there is none of this name", unknown_name(figure, FIGURES))
    chosen, several = FIGURES[figure], [runs] if isinstance(runs, ResultsFile) else list(runs)
    if chosen.source.of_many:
        return chosen(several, **options)
    if len(several) != 1:
        raise InputError(f"figure {figure!r}", f"is drawn of one run, not of {len(several)}", "give one")
    return chosen(several[0], **options)


def _launched(begin: Any, quiet: bool) -> Run | None:
    threads = torch.get_num_threads()
    try:
        path = launch(begin, quiet=quiet)
    finally:
        torch.set_num_threads(threads)
    return None if path is None else _typed(reader.open_run(path))


def _typed(found: Any) -> Any:
    """What was read, as the class that is offered."""
    return (Cluster if isinstance(found, results.ClusterRun) else Run)(**vars(found))


def _shown(found: ResultsFile) -> str:
    """The summary as HTML."""
    from rich.console import Console

    from hpctrip.record.show import show

    console = Console(record=True, file=io.StringIO(), width=110, force_jupyter=False)
    console.print(show(found))
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _paths(given: Inputs) -> list[str]:
    return [str(given)] if isinstance(given, str | Path) else [str(path) for path in given]


def _lines(overrides: Mapping[str, Any] | None) -> list[str]:
    """The lines of TOML that say the same."""
    return [
        f"{key} = {inline_toml(value, key)}" for key, value in (overrides or {}).items() if value is not None
    ]


__all__ = ["Cluster", "Run", "open", "plot", "resume", "run", "simulate"]
