"""Python interface: the functions `run`, `resume`, `study`, `simulate`, `open` and `plot` of `import hpctrip`.

Heavy modules are imported when one of them is first used. They do what the commands of the same names do, but raise
errors (`hpctrip.InputError` and so on) instead of ending the process, and may be called repeatedly, also in notebooks.
Under a launcher every rank calls `run` and `resume` in the same order, with `launched=True`; rank 0 gets the result,
the others None.
"""

from __future__ import annotations

import html
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from hpctrip.base.errors import InputError, as_in_python
from hpctrip.base.frames import pd
from hpctrip.base.io import user_path
from hpctrip.base.process import refuse_launcher
from hpctrip.base.text import unknown_name
from hpctrip.cluster import results
from hpctrip.config.inputs import inline_toml
from hpctrip.record import reader
from hpctrip.record.results_file import ResultsFile, open_results
from hpctrip.record.show import show
from hpctrip.runner.resume import start_or_resume, start_resumed
from hpctrip.runner.session import Start, launch, start_new

if TYPE_CHECKING:
    from hpctrip.figures import Drawing

Inputs = str | Path | Iterable[str | Path]
Overrides = Mapping[str, Any] | None


class Run(reader.Run):
    """Results file of one run, in memory: `rounds`, `sites`, `cohorts`, `candidates` and `flights` are pandas data
    frames, `meta` holds its attributes, `input` its resolved input. A notebook shows its summary."""

    def plot(self, figure: str = "summary", **options: Any) -> Drawing:
        """Draw a figure of this run, see `hpctrip.plot`."""
        return plot(figure, self, **options)

    def __repr__(self) -> str:
        return f"<Run {self.path}: {self.meta['scenario']}, {self.status}, {len(self.rounds)} rounds>"

    def _repr_html_(self) -> str:
        return _summary_html(self)


RunOrNone = Run | Any
"""A run; None on all ranks but 0 of a launched script. Type checkers take it for a run, without asking for a check."""


class Cluster(results.ClusterRun):
    """Results file of one simulated cluster, in memory: `jobs` and `intervals` are pandas data frames, `meta` and
    `input` as in `Run`. A notebook shows its summary."""

    def plot(self, figure: str = "cluster_time", **options: Any) -> Drawing:
        """Draw a figure of this cluster, see `hpctrip.plot`."""
        return plot(figure, self, **options)

    def __repr__(self) -> str:
        return f"<Cluster {self.path}: {self.meta['scheduler']}, {self.status}, {self.counted}>"

    def _repr_html_(self) -> str:
        return _summary_html(self)


if TYPE_CHECKING:

    class Opened(Run, Cluster):
        """The type of what `open` returns, for type checkers: it has the attributes of both kinds of results."""


def run(
    inputs: Inputs = (),
    overrides: Overrides = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
    launched: bool = False,
) -> RunOrNone:
    """Train one scenario: TOML files merged left to right (none: the demonstration on embedded data), then `overrides`.

        run = hpctrip.run("inputs/emnist_static.toml", {"policy.k": 50, "seed": 3}, out="results/k50.h5")

    `overrides` maps dotted keys to values; None leaves a key absent, which means its default. `out` is the results file
    (default: results/NAME-TIME.h5); with `resume`, a run whose results file exists is continued; with `quiet`, nothing
    is printed, but every line goes to the logger "hpctrip". A script that a launcher starts on several ranks says
    `launched=True`; all ranks but 0 then get None.
    Raises InputError for bad input, DivergedError if training diverges, InterruptedRun if the run ended early and can
    be resumed, and another HpctripError if it cannot.
    """
    arguments = _arguments(inputs, overrides, out, plugins)
    start = start_or_resume if resume else partial(start_new, overwrite=overwrite)
    return _run_in_session("hpctrip.run", partial(start, **arguments), launched, quiet)


def resume(
    source: str | Path,
    inputs: Inputs = (),
    overrides: Overrides = None,
    *,
    out: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
    launched: bool = False,
) -> RunOrNone:
    """Continue a run from its newest checkpoint, e.g. with `overrides = {"stop.max_rounds": 100}`.

    `source` is its results file or one of its checkpoints, `out` a new results file (default: continue the old one).
    The other arguments and the errors are those of `run`.
    """
    arguments = _arguments(inputs, overrides, out, plugins)
    return _run_in_session(
        "hpctrip.resume", partial(start_resumed, _text(source), **arguments), launched, quiet
    )


def study(
    source: Inputs = (),
    overrides: Overrides = None,
    *,
    sweeps: Mapping[str, Iterable[Any]] | None = None,
    out: str | Path = "results/studies",
    small: bool = False,
    jobs: int | None = None,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
) -> pd.DataFrame:
    """Make all runs of a study that are not finished, with its tables and figures in `out`, and return its table
    runs.csv: one row per run, with its variant, seed, results, every setting as `input.KEY`, and the `path` of its
    results file (empty for imported runs).

        runs = hpctrip.study("fig09", small=True)
        runs = hpctrip.study(sweeps={"policy.k": [5, 10], "seed": range(3)})
        runs.groupby("variant")["time_to_accuracy_s"].mean() / 3600
        hpctrip.plot("policies", runs["path"])

    `source` is a study file or the name of one that comes with hpctrip; with `sweeps`, {dotted key: its values}, it is
    the input files of a run, as for `run`, of which all combinations are made. `jobs` is the number of runs side by
    side (None: one per GPU or core). The other arguments are those of `run` and of the command `study`. Raises
    InputError for bad input, InterruptedRun if runs ended early (the same call continues), HpctripError if some failed.
    """
    from hpctrip.studies.run import run as run_studies
    from hpctrip.studies.studies import Changes, read_studies, study_file, sweep_study

    refuse_launcher("hpctrip.study", "start it once: it starts its runs itself (jobs)")
    arguments = _arguments(source, overrides, out, plugins)
    paths, folder = arguments["paths"], Path(arguments["out"])
    axes = [
        f"{key}={','.join(inline_toml(value, key) for value in _listed(values))}"
        for key, values in (sweeps or {}).items()
    ]
    changes = Changes(arguments["overrides"], axes, arguments["plugins"], small)
    if sweeps:
        studies = [sweep_study(paths, folder, changes)]
    elif len(paths) == 1:
        studies = read_studies(study_file(paths[0]), folder, changes)
    else:
        raise InputError("hpctrip.study", f"names {len(paths)} study files", "name one, or give sweeps")
    with ExitStack() as silent:
        if quiet:
            silent.enter_context(redirect_stdout(silent.enter_context(Path(os.devnull).open("w"))))
        run_studies(studies, None, jobs, 1, "the same call")
    table = pd.concat([pd.read_csv(each.folder / "runs.csv") for each in studies], ignore_index=True)
    if (asked := studies[0].asked) is not None:
        table = table[table["identity"].isin(asked)].reset_index(drop=True)
    files = map(studies[0].runs.results, table["identity"])
    places = pd.Series([str(file) if file.exists() else "" for file in files], name="path", dtype=str)
    return pd.concat([table, places], axis=1)


def simulate(
    inputs: Inputs = (),
    overrides: Overrides = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    plugins: Iterable[str | Path] = (),
) -> Cluster:
    """Simulate one GPU cluster, as `hpctrip cluster` does (no input: synthetic jobs on 128 GPUs).

        cluster = hpctrip.simulate("inputs/cluster/powerflow.toml", {"scheduler.kind": "fifo"})
        cluster.jobs.jct_s.mean(), cluster.meta["energy_j"]

    The arguments are those of `run`. Raises InputError for bad input.
    """
    from hpctrip.cluster.run import simulate as run_simulator

    with as_in_python():
        path = run_simulator(**_arguments(inputs, overrides, out, plugins), overwrite=overwrite)
    return Cluster.open(path)


def open(path: str | Path) -> Opened:
    """Read the results file of a run (`Run`) or of a simulated cluster (`Cluster`). Raises InputError if it is missing
    or damaged."""
    file = open_results(_text(path))
    kind = Cluster if isinstance(file, results.ClusterRun) else Run
    return cast("Opened", kind(**vars(file)))


def plot(
    figure: str, runs: ResultsFile | str | Path | Iterable[ResultsFile | str | Path], **options: Any
) -> Drawing:
    """Draw one of the figures that `hpctrip plot` lists, of one or several runs or clusters, or of their paths.

    `options` are those of the command, with _ for -, among them `width` (inches) and `font_size` (points). Returns a
    Drawing with `picture` (a matplotlib figure), `table` (its numbers) and `lines` (its text), which notebooks show.
    Raises InputError for an unknown figure or option, and a wrong number of runs.
    """
    from hpctrip.figures import FIGURES

    if figure not in FIGURES:
        raise InputError(f"figure {figure!r}", "there is none of this name", unknown_name(figure, FIGURES))
    draw, several = FIGURES[figure], [runs] if isinstance(runs, ResultsFile | str | Path) else runs
    options = draw.converted(options)
    run_list = [each if isinstance(each, ResultsFile) else open(each) for each in several]
    if not run_list or (len(run_list) > 1 and not draw.source.of_many):
        wanted = "runs" if draw.source.of_many else "one run"
        hint = "give results files or their paths"
        raise InputError(f"figure {figure!r}", f"is drawn of {wanted}, not of {len(run_list)}", hint)
    return draw(run_list if draw.source.of_many else run_list[0], **options)


_one_at_a_time = threading.Lock()


def _run_in_session(function: str, start: Callable[[], Start], launched: bool, quiet: bool) -> RunOrNone:
    """Run a session and read its results file (rank 0 only). Runs of several threads wait for each other, because they
    seed the same generators. InputError where a launcher started several ranks of a script that is not `launched`."""
    if not launched:
        refuse_launcher(function, "add launched=True; ranks other than 0 then get None")
    with _one_at_a_time, _as_before(), as_in_python():
        path = launch(start, quiet=quiet)
    return None if path is None else Run.open(path)


@contextmanager
def _as_before() -> Iterator[None]:
    """Restore what a run sets for its whole process: the generators of random numbers, the number of threads, and the
    precision and determinism of kernels."""
    numbers = random.getstate(), np.random.get_state()
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    filling = torch.utils.deterministic.fill_uninitialized_memory
    precisions = [
        (backend, *_precision(backend)) for backend in (torch.backends.cuda.matmul, torch.backends.cudnn)
    ]
    used_gpus = torch.cuda.is_initialized()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if used_gpus else []):
            yield
    finally:
        random.setstate(numbers[0])
        np.random.set_state(numbers[1])
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = filling
        for backend, name, value in precisions:
            setattr(backend, name, value)
        if not used_gpus and torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(torch.initial_seed())


def _precision(backend: Any) -> tuple[str, Any]:
    """(name, value) of a backend's setting of TF32; PyTorch refuses to read the older one after the newer was set."""
    try:
        return "allow_tf32", backend.allow_tf32
    except RuntimeError:
        return "fp32_precision", backend.fp32_precision


def _summary_html(file: ResultsFile) -> str:
    """The summary of a results file as HTML."""
    return f"<pre>{html.escape(show(file, width=110))}</pre>"


def _arguments(
    inputs: Inputs, overrides: Overrides, out: str | Path | None, plugins: Inputs
) -> dict[str, Any]:
    """The arguments as those of the command line: texts, the overrides as lines of TOML."""
    values = (overrides or {}).items()
    lines = [f"{key} = {inline_toml(value, key)}" for key, value in values if value is not None]
    target = None if out is None else _text(out)
    return {"paths": _texts(inputs), "overrides": lines, "out": target, "plugins": _texts(plugins)}


def _listed(values: Any) -> Iterable[Any]:
    """The values of an axis; one alone is a list of one."""
    return values if isinstance(values, Iterable) and not isinstance(values, str) else [values]


def _texts(paths: Inputs) -> list[str]:
    if isinstance(paths, Mapping):
        raise InputError(
            "inputs",
            "is a dict, not names of files",
            'name files, and give settings as overrides={"policy.k": 5}',
        )
    return [_text(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def _text(path: str | Path) -> str:
    """A path as the command line takes it."""
    return user_path(path, str(path))
