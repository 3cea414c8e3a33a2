"""The layers are one-way: a module imports only from its own layer or a lower one."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hpctrip"
LAYERS = ["base", "sim", "learn", "ranks", "record", "app"]
FORBIDDEN = {  # what each layer must not import from outside
    "base": {"torch", "mpi4py", "h5py", "pandas"},
    "sim": {"torch", "mpi4py", "h5py"},
    "learn": {"mpi4py", "h5py"},
    "ranks": {"h5py", "pandas"},
    "record": {"mpi4py", "torch"},
    "app": {"mpi4py", "h5py"},
}
MODULES = sorted(path for layer in LAYERS for path in (PACKAGE / layer).rglob("*.py"))


def imports(path):
    """Every module name that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_own_layer_or_a_lower_one(path):
    layer = path.relative_to(PACKAGE).parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "hpctrip" and len(parts) > 1:
            assert LAYERS.index(parts[1]) <= LAYERS.index(layer), f"{layer} imports {name}"
        assert parts[0] not in FORBIDDEN[layer], f"{layer} imports {name}"


def test_mpi_and_torch_distributed_are_each_imported_in_their_own_files_only():
    users = {path.name for path in MODULES if any(n.split(".")[0] == "mpi4py" for n in imports(path))}
    assert users == {"mpi.py"}
    users = {path.name for path in MODULES if any(n.startswith("torch.distributed") for n in imports(path))}
    assert users == {"nccl.py"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hpctrip", "torch mpi4py h5py pandas numpy pydantic"),
        ("hpctrip.sim.world", "torch mpi4py h5py"),
        ("hpctrip.sim.policies", "torch mpi4py h5py"),
        ("hpctrip.record.reader", "torch mpi4py"),
        ("hpctrip.learn.workloads", "transformers peft"),
        ("hpctrip.app.cli", "torch mpi4py h5py pandas"),
    ],
)
def test_importing_does_not_start_what_is_not_needed(module, absent):
    code = f"import sys, {module}; print(*(m for m in {absent.split()!r} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_post_processing_reads_results_through_the_reader_alone():
    allowed = {"hpctrip.record.reader"} | {f"hpctrip.base.{name}" for name in ("errors", "identity", "units")}
    for path in (PACKAGE.parent / "postprocess").glob("*.py"):
        used = {name for name in imports(path) if name.split(".")[0] == "hpctrip"}
        assert used <= allowed, f"{path.name}: {used - allowed}"
