"""GPUs through the real nvidia-ml-py, whose library is played by a small one of C (nvml.c)."""

import sys

import pytest

from hpctrip.device import nvml
from hpctrip.device.counters import MICRO, Unavailable
from hpctrip.device.meter import PHASES, Meter, Metering, open_meter

A, B = "GPU-aaaa-0", "GPU-bbbb-1"


def test_gpus_are_found_by_their_uuids_as_torch_or_nvml_spells_them(fake_nvml):
    fake_nvml()
    assert nvml.all_uuids() == [A, B]
    assert nvml.Gpu.of(A).clocks_mhz == list(range(300, 1501, 15))
    assert [nvml.Gpu.of(uuid).uuid for uuid in ("bbbb-1", A)] == [B, A]
    with pytest.raises(Unavailable, match="GPU-cccc: Not Found"):
        nvml.energy_of(["cccc"])


def test_the_energy_of_two_gpus_is_added_in_microjoules(fake_nvml):
    fake_nvml()
    both = nvml.energy_of([A, B])  # whose counters rise by 1 J and 2 J a reading
    assert both.name == "2 GPUs (NVML)"
    meter = Meter(both.counters)
    for phase in PHASES:
        meter.lap(phase)
    assert meter.round_uj() == dict.fromkeys(PHASES, 3 * MICRO) | {"record": 0}


def test_only_the_gpus_in_use_are_metered_and_cpus_besides(fake_nvml, rapl_tree):
    fake_nvml()
    rapl_tree.zone("0", "package-0")
    meter = open_meter(Metering(), ["bbbb-1"])
    assert meter.description == "1 GPU (NVML) and 1 CPU package (RAPL)"
    for phase in PHASES:
        meter.lap(phase)
    assert meter.round_uj() == dict.fromkeys(PHASES, 2 * MICRO) | {"record": 0}


def test_a_driver_that_counts_no_energy_is_named_and_the_rest_is_metered(fake_nvml, rapl_tree):
    fake_nvml("-DOLD")
    rapl_tree.zone("0", "package-0")
    meter = open_meter(Metering(), [A])
    assert meter.description == f"1 CPU package (RAPL) (not counted: {A}: Function Not Found)"


def test_a_gpu_that_counts_no_energy_is_named_and_the_others_are_metered(fake_nvml):
    (fake_nvml() / "uncounted0").touch()
    found = nvml.energy_of([A, "cccc", B])
    assert (found.name, [gpu.uuid for gpu in found.counters]) == ("1 GPU (NVML)", [B])
    assert found.not_counted == ["GPU-cccc: Not Found", f"{A}: Not Supported"]


def test_a_gpu_that_is_lost_in_a_round_leaves_that_round_without_joules(fake_nvml, rapl_tree):
    state = fake_nvml()
    meter = open_meter(Metering(), [A])
    meter.lap("record")
    (state / "lost").touch()
    meter.lap("train")
    assert meter.round_uj() is None


def test_an_error_names_a_library_that_cannot_be_loaded(fake_nvml, monkeypatch):
    fake_nvml()
    monkeypatch.delenv("FAKE_NVML")
    nvml._library.cache_clear()
    with pytest.raises(Unavailable, match="NVML: Uninitialized"):
        nvml.all_uuids()


def test_an_error_says_how_to_install_a_missing_package(monkeypatch):
    nvml._library.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unavailable, match=r"nvidia-ml-py is not installed: pip install .*\[energy\]"):
        nvml.energy_of([A])
