"""The layers are one-way: a module imports only from its own package or a lower layer, and files form no circles."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hpctrip"
LAYERS = [  # lower ones first; packages of one layer do not know each other
    {"base"},
    {"config"},
    {"sim"},
    {"learn"},
    {"device", "ranks"},
    {"record"},
    {"figures"},
    {"runner"},
    {"plan", "tune"},
    {"cluster"},
    {"studies"},
    {"library", "api"},
    {"cli"},
]
HEIGHT = {package: height for height, packages in enumerate(LAYERS) for package in packages}
FORBIDDEN = {  # what each package must not import from outside
    "base": {"torch", "mpi4py", "h5py", "pandas"},
    "sim": {"torch", "mpi4py", "h5py"},
    "config": {"torch", "mpi4py", "h5py", "pandas"},
    "learn": {"mpi4py", "h5py"},
    "device": {"mpi4py", "h5py"},
    "ranks": {"h5py", "pandas"},
    "record": {"mpi4py", "torch"},
    "figures": {"mpi4py", "h5py", "torch"},
    "runner": {"mpi4py", "h5py"},
    "plan": {"mpi4py", "h5py"},
    "tune": {"mpi4py", "h5py"},
    "cluster": {"torch", "mpi4py"},
    "studies": {"mpi4py", "h5py", "torch"},
    "library": {"mpi4py", "h5py"},
    "api": {"torch", "mpi4py", "h5py"},
    "cli": {"mpi4py", "h5py", "torch"},
}
BY_NAME = {  # {file: the modules of higher layers that it imports by name}
    "figures/__init__.py": {"hpctrip.cluster.figures"},
    "record/event_report.py": {"hpctrip.cluster.site_power"},
    "record/results_file.py": {"hpctrip.cluster.results"},
    "record/reader.py": {"hpctrip.runner.replay"},
    "runner/experiment.py": {"hpctrip.cluster.site_power"},
    "runner/preload.py": {"hpctrip.cli.main"},
}
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py" and path.parts[-2:] != ("hpctrip", "__init__.py")
)
FRAMES = "hpctrip.base.frames"
"""The module by which all others import pandas."""
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 60, 7


def layer_of(path):
    """The package of a file, or the module that is a layer by itself."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path):
    """hpctrip.sim.world of hpctrip/sim/world.py; a package's own name of its __init__.py."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def nodes(path):
    """Every node of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path):
    """Every module name that a file imports, wherever in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def test_a_module_imports_only_from_its_own_package_or_a_lower_layer():
    for path in MODULES:
        package = layer_of(path)
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "hpctrip" and len(parts) > 1 and parts[1] != package:
                assert HEIGHT[parts[1]] < HEIGHT[package], f"{path} imports {name}"
            library = "pandas" if name == FRAMES else parts[0]
            assert library not in FORBIDDEN[package] or name_of(path) == FRAMES, f"{path} imports {library}"


def test_every_package_has_its_layer():
    assert {layer_of(path) for path in MODULES} == HEIGHT.keys()


def higher_layers_named_in(path):
    """The modules of higher layers whose names stand as texts in a file, as "module" or "module:object"."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            parts = name.split(".")
            if re.fullmatch(r"hpctrip(\.\w+)+", name) and HEIGHT.get(parts[1], -1) > HEIGHT[layer_of(path)]:
                yield name


def test_higher_layers_are_imported_by_name_only_where_the_list_says_so():
    named = {str(path.relative_to(PACKAGE)): set(higher_layers_named_in(path)) for path in MODULES}
    assert {file: names for file, names in named.items() if names} == BY_NAME


def test_no_files_import_each_other_in_a_circle():
    """A file may import its own package's `__init__`, which only gathers: that is no circle of meaning."""
    paths = {name_of(path): path for path in MODULES if path.name != "__init__.py"}
    graph = {name: {other for other in imports(path) if other in paths} for name, path in paths.items()}
    done, on_the_way = set(), []

    def walk(name):
        assert name not in on_the_way, " -> ".join([*on_the_way[on_the_way.index(name) :], name])
        if name not in done:
            on_the_way.append(name)
            for other in sorted(graph[name]):
                walk(other)
            done.add(on_the_way.pop())

    for name in sorted(graph):
        walk(name)


def test_files_and_functions_stay_small():
    assert [path for path in MODULES if path.read_text().count("\n") > LONGEST_FILE] == []
    functions = [
        (path, node) for path in MODULES for node in nodes(path) if isinstance(node, ast.FunctionDef)
    ]
    for path, node in functions:
        assert node.end_lineno - node.lineno < LONGEST_FUNCTION, f"{path}: function {node.name}"
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        is_command = any("command" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not is_command and path.name != "library.py":  # what users call, with names
            assert len({*names} - {"self", "cls"}) <= MOST_PARAMETERS, f"{path}: function {node.name}"


def test_mpi_and_torch_distributed_are_each_imported_in_their_own_files_only():
    users = {path.name for path in MODULES if any(n.split(".")[0] == "mpi4py" for n in imports(path))}
    assert users == {"mpi.py"}
    users = {path.name for path in MODULES if any(n.startswith("torch.distributed") for n in imports(path))}
    assert users == {"nccl.py"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hpctrip", "torch mpi4py h5py pandas numpy pydantic"),
        ("hpctrip.sim.step", "torch mpi4py h5py pandas"),
        ("hpctrip.sim.policies", "torch mpi4py h5py pandas"),
        ("hpctrip.record.reader", "torch mpi4py pandas"),
        ("hpctrip.learn.workloads, hpctrip.learn.engines, hpctrip.learn.evaluate", "torch transformers peft"),
        ("hpctrip.learn.compression, hpctrip.learn.partition, hpctrip.learn.server", "torch"),
        ("hpctrip.figures", "torch mpi4py"),
        ("hpctrip.ranks.base, hpctrip.runner.experiment, hpctrip.runner.replay", "torch mpi4py pandas"),
        ("hpctrip.cli.main", "torch mpi4py h5py pandas matplotlib"),
    ],
)
def test_importing_does_not_start_what_is_not_needed(module, absent):
    code = f"import sys, {module}; print(*(m for m in {absent.split()!r} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize(
    ("command", "loaded"),
    [
        ("keys", ""),
        ("inputs", ""),
        ("check inputs/smoke.toml", ""),
        ("plot --help", "h5py"),
        ("study status smoke --out nowhere", "h5py"),
    ],
)
def test_a_command_that_trains_nothing_loads_nothing_heavy(command, loaded):
    heavy = {
        "torch",
        "mpi4py",
        "h5py",
        "pandas",
        "matplotlib",
        "rich",
        "scipy",
        "PIL",
        "pooch",
        "asyncio",
        "soundfile",
    }
    assert loaded_by(command.split(), heavy) == loaded.split()


def test_a_run_loads_no_pandas_and_its_ranks_no_more_than_they_need(tmp_path):
    """What every rank imports is looked at before rank 0 prints anything."""
    command = ["run", "inputs/smoke.toml", "-o", "stop.max_rounds=1", "--out", str(tmp_path / "a.h5")]
    needless = {"mpi4py", "pandas", "rich", "matplotlib", "transformers"}
    first = f"import hpctrip.runner.session; assert not {needless} & sys.modules.keys()"
    assert loaded_by(command, {"torch", "pandas"}, first) == ["torch"]


def loaded_by(command, modules, first=""):
    """Which of these modules a command has loaded when it ends."""
    code = f"""import atexit, sys
{first}
from hpctrip.cli.main import main
atexit.register(lambda: print("loaded:", *sorted({modules} & sys.modules.keys())))
sys.argv = ["hpctrip", *{command!r}]
main()"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    return ended.stdout.splitlines()[-1].split()[1:]


def test_figures_read_results_through_the_reader_alone():
    """Of the simulator they have the network's law, which Fig 5 draws, the quantities that are spent, and the default
    settings of policies and forecasts, which the league leaves out of their names. They write CSV as all do."""
    of_record = {
        f"hpctrip.record.{name}"
        for name in ("reader", "results_file", "formats", "site_report", "event_report")
    }
    allowed = {
        *of_record,
        *(f"hpctrip.sim.{name}" for name in ("network.distance", "policies", "forecast", "quantities")),
    }
    for path in (PACKAGE / "figures").rglob("*.py"):
        used = {name for name in imports(path) if name.startswith(("hpctrip.record", "hpctrip.sim"))}
        assert used <= allowed, f"{path.name}: {used - allowed}"


def test_the_cluster_is_reached_by_registries_and_the_command_line_only():
    users = {
        layer_of(path) for path in MODULES if any(n.startswith("hpctrip.cluster") for n in imports(path))
    }
    assert users <= {"cluster", "library", "api", "cli"}
