"""The layers are one-way: a module imports only from its own package or a lower layer, and files form no circles."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hpctrip"
LAYERS = [  # lower ones first; packages of one layer do not know each other
    {"base"},
    {"sim", "cluster"},
    {"joint"},
    {"learn"},
    {"device"},
    {"ranks"},
    {"record"},
    {"figures"},
    {"app"},
    {"study"},
]
HEIGHT = {package: height for height, packages in enumerate(LAYERS) for package in packages}
FORBIDDEN = {  # what each package must not import from outside
    "base": {"torch", "mpi4py", "h5py", "pandas"},
    "sim": {"torch", "mpi4py", "h5py"},
    "cluster": {"torch", "mpi4py", "h5py"},
    "joint": {"torch", "mpi4py", "h5py"},
    "learn": {"mpi4py", "h5py"},
    "device": {"mpi4py", "h5py"},
    "ranks": {"h5py", "pandas"},
    "record": {"mpi4py", "torch"},
    "figures": {"mpi4py", "h5py", "torch"},
    "app": {"mpi4py", "h5py"},
    "study": {"mpi4py", "h5py", "torch"},
}
MODULES = sorted(path for package in HEIGHT for path in (PACKAGE / package).rglob("*.py"))
LONGEST_FILE, LONGEST_CLASS = 400, 150


def name_of(path):
    """hpctrip.sim.world of hpctrip/sim/world.py; a package's own name of its __init__.py."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    """Every module name that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_own_package_or_a_lower_layer(path):
    package = path.relative_to(PACKAGE).parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "hpctrip" and len(parts) > 1 and parts[1] != package:
            assert HEIGHT[parts[1]] < HEIGHT[package], f"{package} imports {name}"
        assert parts[0] not in FORBIDDEN[package], f"{package} imports {name}"


def test_every_package_has_its_layer():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= HEIGHT.keys()


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_classes_stay_small(path):
    text = path.read_text()
    assert text.count("\n") <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno < LONGEST_CLASS, f"class {node.name}"


def test_mpi_and_torch_distributed_are_each_imported_in_their_own_files_only():
    users = {path.name for path in MODULES if any(n.split(".")[0] == "mpi4py" for n in imports(path))}
    assert users == {"mpi.py"}
    users = {path.name for path in MODULES if any(n.startswith("torch.distributed") for n in imports(path))}
    assert users == {"nccl.py"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hpctrip", "torch mpi4py h5py pandas numpy pydantic"),
        ("hpctrip.sim.step", "torch mpi4py h5py"),
        ("hpctrip.sim.policies", "torch mpi4py h5py"),
        ("hpctrip.record.reader", "torch mpi4py"),
        ("hpctrip.learn.workloads", "transformers peft"),
        ("hpctrip.figures", "torch mpi4py"),
        ("hpctrip.app.cli", "torch mpi4py h5py pandas matplotlib"),
    ],
)
def test_importing_does_not_start_what_is_not_needed(module, absent):
    code = f"import sys, {module}; print(*(m for m in {absent.split()!r} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_figures_read_results_through_the_reader_alone():
    """The network's law, which Fig 5 draws, is the only thing that they compute with. They write CSV as all do."""
    of_record = {f"hpctrip.record.{name}" for name in ("reader", "traces", "cluster", "csv")}
    allowed = {*of_record, "hpctrip.sim.network"}
    for path in (PACKAGE / "figures").rglob("*.py"):
        used = {name for name in imports(path) if name.startswith(("hpctrip.record", "hpctrip.sim"))}
        assert used <= allowed, f"{path.name}: {used - allowed}"
