"""A machine with counters: NVIDIA's library played by one of C, and a made-up tree of RAPL zones."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
COMPILER = shutil.which("cc")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """`compiled(*options)`: the folder of a libnvidia-ml.so.1."""
    if COMPILER is None:
        pytest.skip("no C compiler (cc), which makes the library that plays NVML")
    made = {}

    def make(*options):
        if options not in made:
            folder = made[options] = tmp_path_factory.mktemp("nvml")
            target = folder / "libnvidia-ml.so.1"
            command = [COMPILER, "-shared", "-fPIC", "-O1", "-w", *options, "-o", str(target), str(SOURCE)]
            subprocess.run(command, check=True, capture_output=True)
        return made[options]

    return make


@pytest.fixture
def fake_nvml(compiled, tmp_path, monkeypatch):
    """`fake_nvml(*options)`: the real nvidia-ml-py talks to the played library, here and in processes that are started
    from here; returns the folder of its state."""
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (the extra [energy])")
    from hpctrip.device import nvml

    def load(*options):
        library, state = compiled(*options), tmp_path / "gpus"
        state.mkdir()
        for gpu in (0, 1):
            (state / f"cap{gpu}").write_text("350000")
        monkeypatch.setenv("FAKE_NVML", str(state))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library / "libnvidia-ml.so.1")))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        nvml._library.cache_clear()
        return state

    yield load
    nvml._library.cache_clear()


class Tree:
    """A folder such as /sys/class/powercap."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.still: set[str] = set()
        """The zones whose counters never advance."""

    def zone(self, number: str, name: str, uj: int = 0, range_uj: int = 262_143_328_850) -> Path:
        """One more zone, e.g. "0" (a package) or "0:1" (a part of it)."""
        folder = self.folder / f"intel-rapl:{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        (folder / "energy_uj").write_text(f"{uj}\n")
        return folder

    def pass_time(self, seconds: float) -> None:
        """Let every counter but those that stand still advance, in no time."""
        for folder in self.folder.glob("*/energy_uj"):
            number = folder.parent.name.removeprefix("intel-rapl:")
            if number not in self.still:
                self.draw(number, 1)

    def draw(self, number: str, uj: int) -> None:
        """Let a zone's counter run on, and around."""
        folder = self.folder / f"intel-rapl:{number}"
        range_uj = int((folder / "max_energy_range_uj").read_text())
        counter = (int((folder / "energy_uj").read_text()) + uj) % range_uj
        (folder / "energy_uj").write_text(f"{counter}\n")


@pytest.fixture(scope="session")
def new_tree(tmp_path_factory):
    """`new_tree()`: another one."""
    return lambda: Tree(tmp_path_factory.mktemp("powercap"))


@pytest.fixture
def rapl_tree(new_tree, monkeypatch):
    """This machine's counters of CPUs, without any zone yet."""
    from hpctrip.device import counters

    tree = new_tree()
    monkeypatch.setattr(counters, "TREE", tree.folder)
    monkeypatch.setattr(counters, "time", SimpleNamespace(sleep=tree.pass_time, monotonic=time.monotonic))
    return tree
