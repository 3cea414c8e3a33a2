"""Running hpctrip from tests: in this process, in another one, or on ranks. Nothing outlives its test."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from processes import processes_of, ranks_of
from side_by_side import (  # noqa: F401  hooks
    pytest_collection_modifyitems,
    pytest_make_parametrize_id,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)

from hpctrip.config import component

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 280
"""Of one launch; a run of these tests takes seconds, but the cores may be busy."""

# No test fails because a machine is busy, nor because of examples that nobody has seen: those are for the long run.
FUZZ = "HPCTRIP_FUZZ" in os.environ
settings.register_profile("hpctrip", deadline=None, derandomize=not FUZZ, max_examples=100 if FUZZ else 40)
settings.load_profile("hpctrip")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported and collected stays: it is not searched for garbage, neither meanwhile nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def overrides(*lines: str) -> list[str]:
    """`-o` arguments."""
    return [part for line in lines for part in ("-o", line)]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> list[str]:
        """The lines that hpctrip itself wrote to stderr."""
        return [line for line in self.err.splitlines() if line.startswith("hpctrip: ")]

    def check_refused(self, fragments: Iterable[str], lines: int = 1) -> None:
        """Bad input was reported in so many clear lines, which hold these fragments, and in nothing else."""
        assert self.code == 2, self
        assert len(self.err.splitlines()) == len(self.report) == lines, self.err
        for fragment in fragments:
            assert fragment in self.err
        assert "Traceback" not in self.err + self.out
        assert "[Errno" not in self.err and "pydantic" not in self.err


@pytest.fixture(scope="session", autouse=True)
def machine(for_all_processes):
    """One thread per process, a cache of prepared data for this session (glyphs are rendered once), and pictures of a
    twentieth of the pixels, on which many tests would spend their time."""
    from hpctrip.figures.common import style

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(style.LOOK, "savefig.dpi", 60)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("HPCTRIP_CACHE", str(for_all_processes / "cache"))
        yield


@pytest.fixture(scope="session")
def for_all_processes(tmp_path_factory):
    """A folder that the processes of the tests share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def one_thread():
    """As on a rank of many."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def files(tmp_path):
    """`files(text, ...)`: paths of TOML files with these contents."""

    def write(*texts):
        paths = [tmp_path / f"{number}.toml" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return [str(path) for path in paths]

    return write


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A file with the smallest run that uses every part: ten sites, three rounds, a target that is never reached."""
    path = tmp_path_factory.mktemp("inputs") / "tiny.toml"
    path.write_text(
        """
        name = "tiny"
        sites.num_sites = 10
        workload.train_samples = 200
        workload.test_samples = 100
        stop.target_accuracy = 1
        stop.max_rounds = 3
        """
    )
    return path


TINY_WORKLOADS = {
    "shakespeare": (
        "workload.kind=shakespeare",
        "workload.predict=every",
        "workload.stride=16",
        "workload.sentences={roles = 12, characters = 1500}",
        "workload.train_samples=240",
        "workload.test_samples=100",
        "partition.kind=natural",
    ),
    "femnist": (
        "workload.kind=femnist",
        "workload.glyphs={writers = 12, samples = 100}",
        "workload.train_samples=240",
        "workload.test_samples=100",
        "partition.kind=natural",
    ),
    "speech": (
        "workload.kind=speech",
        "workload.depth=2",
        "workload.chirps={num_words = 3, num_speakers = 13, repetitions = 1}",
        "workload.train_samples=30",
        "workload.test_samples=9",
        "partition.kind=natural",
        "train.batch_size=2",
    ),
    "llm": (
        "workload.kind=llm",
        "workload.block_tokens=16",
        "workload.pretrain_steps=2",
        "workload.sentences={roles = 12, characters = 400}",
        "partition.kind=natural",
        "train.local_steps=2",
    ),
}
"""Lines that make the tiny scenario one of another workload: a natural owner for every site, a step or two each."""


@pytest.fixture(scope="session")
def tiny_workloads():
    """For each workload but the default one, the lines of its tiny scenario."""
    return TINY_WORKLOADS


@pytest.fixture(params=TINY_WORKLOADS)
def tiny_workload(request):
    """The lines of one of them after the other."""
    return TINY_WORKLOADS[request.param]


def _in_process(main: Callable[[], int | None], *words: object) -> Ended:
    """What a program would have done in a process of its own, with these words on its command line."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", [*map(str, words)])
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    return Ended(code or 0, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def hpctrip():
    """`hpctrip(*args) -> Ended`: the real command line, in this process."""

    def run(*args: object) -> Ended:
        from hpctrip.cli.main import run_command

        return _in_process(run_command, "hpctrip", *args)

    return run


@pytest.fixture(scope="session")
def script():
    """`script(path, *args) -> Ended`: a Python script, in this process: to import torch anew takes seconds."""

    def run(path: Path, *args: object) -> Ended:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(path.parent)
            return _in_process(lambda: runpy.run_path(str(path), run_name="__main__") and 0, path, *args)

    return run


@pytest.fixture(scope="session")
def trained(hpctrip, tiny, tmp_path_factory):
    """`trained(*lines) -> Run`: the tiny scenario with these `-o` lines on top, trained in this process."""
    from hpctrip.record.reader import open_run

    def run(*lines: str):
        path = tmp_path_factory.mktemp("run") / "run.h5"
        ended = hpctrip("run", tiny, *overrides(*lines), "--out", path)
        assert ended.code == 0, ended.err
        return open_run(path)

    return run


@dataclass(frozen=True)
class Launched:
    """One launch of n ranks that ran several commands (see `ranks/on_ranks.py`)."""

    folder: Path
    ended: Ended
    ended_at: float

    def output(self, name: str, stream: str = "out") -> str:
        """What all ranks wrote in a command."""
        return (self.folder / f"{name}.{stream}").read_text()

    def codes(self, name: str) -> list[int]:
        """The exit codes of the ranks that came to the end of a command."""
        return [int(file.read_text()) for file in self.folder.glob(f"{name}-?.code")]

    def run(self, name: str):
        """The results of a command that wrote NAME.h5 there."""
        from hpctrip.record.reader import open_run

        return open_run(self.folder / f"{name}.h5")


TOGETHER = """
import json, os, sys
from pathlib import Path
from hpctrip.cli.main import main
from hpctrip.runner.preload import preload
preload()
children = []
for number, words in enumerate(json.loads(sys.argv[1])):
    children.append(os.fork())
    if not children[-1]:
        for file, name in (1, "out"), (2, "err"):
            os.dup2(os.open(Path(__file__).with_name(f"{number}.{name}"), os.O_CREAT | os.O_WRONLY), file)
        sys.argv = ["hpctrip", *words]
        main()
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


class Launcher:
    """`launch(n, *args) -> Ended`: `mpirun -n N python -m hpctrip ARGS`; `start` returns at once, as Popen.

    `script` runs another Python file instead, `flags` are mpirun's. n = 0 starts one process without mpirun. A launch
    that takes longer than `timeout` is killed with all its ranks and fails its test.
    """

    def __init__(self) -> None:
        beside = Path(sys.executable).with_name("mpirun")
        self.mpirun = str(beside) if beside.exists() else shutil.which("mpirun")

    def start(
        self,
        n: int,
        *args: str,
        script: Path | None = None,
        flags: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ):
        command = [sys.executable, str(script)] if script else [sys.executable, "-m", "hpctrip"]
        if n:
            command = [*self._launch(n), *flags, *command]
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # hpctrip need not be installed
        return subprocess.Popen(
            [*command, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **(env or {})},
        )

    @staticmethod
    def kill(process: subprocess.Popen) -> None:
        """SIGKILL to a launched command and everything that it started."""
        for pid in processes_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def ranks(process: subprocess.Popen) -> list[int]:
        """Process ids of the running ranks, rank 0 first."""
        ranks = ranks_of(processes_of(process.pid))
        return [ranks[rank] for rank in sorted(ranks)]

    def _launch(self, n: int) -> list[str]:
        if not self.mpirun:
            pytest.skip("no mpirun on this machine")
        version = subprocess.run([self.mpirun, "--version"], capture_output=True, text=True).stdout
        open_mpi = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version else []
        return [self.mpirun, *open_mpi, "-n", str(n)]

    def __call__(self, n: int, *args: str, timeout: float = TIMEOUT_S, **options) -> Ended:
        process = self.start(n, *args, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill(process)
            out, err = process.communicate()
            pytest.fail(f"still running after {timeout} s: {process.args}\n{out}\n{err}")
        except BaseException:
            self.kill(process)
            raise
        return Ended(process.returncode, out, err)

    def together(self, folder: Path, *commands: Sequence) -> list[Ended]:
        """Command lines of hpctrip that run at the same time, as processes forked after one import."""
        script = folder / "together.py"
        script.write_text(TOGETHER)
        ended = self(0, json.dumps([[*map(str, words)] for words in commands]), script=script)
        codes = map(int, ended.out.split())
        return [
            Ended(code, *((folder / f"{number}.{stream}").read_text() for stream in ("out", "err")))
            for number, code in enumerate(codes)
        ]

    def commands(
        self,
        n: int,
        folder: Path,
        commands: dict[str, Sequence],
        envs: dict[str, dict[str, str]] | None = None,
        **options,
    ) -> Launched:
        """One launch for several command lines of hpctrip, {name: words}: packages are loaded once. Those with
        an environment of their own are in `envs`; what breaks a rank down ends the launch, so it comes last."""
        listed = [[name, [*map(str, words)], (envs or {}).get(name, {})] for name, words in commands.items()]
        script = ROOT / "tests/ranks/shared_on_ranks.py"
        ended = self(n, folder, json.dumps(listed), script=script, **options)
        return Launched(folder, ended, time.time())


@pytest.fixture(scope="session")
def launch():
    """Real processes: see `Launcher`."""
    return Launcher()


@pytest.fixture(autouse=True)
def own_components():
    """What the plug-ins of a test register is forgotten after it."""
    before = [(registry, dict(registry)) for registry in component._registries]
    yield
    for registry, classes in before:
        registry.clear()
        registry.update(classes)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files_in():
    """`files_in(folder)`: sizes by path; but for Python's own cache of a plug-in, which PYTHONDONTWRITEBYTECODE would
    turn off."""

    def sizes(folder):
        paths = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        return {path.relative_to(folder): path.stat().st_size for path in paths}

    return sizes
