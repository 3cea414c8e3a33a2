"""What `benchmarks/gpu_day.py` measures under power caps, on a GPU that nvml.c plays."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GPU = "GPU-bbbb-1"


@pytest.fixture
def measured(fake_nvml, monkeypatch, tmp_path):
    """`measured()`: the rows, and the GPU's cap in mW whenever something was to be measured."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("HPCTRIP_KNOBS", str(tmp_path / "notes"))
    state = fake_nvml()

    def measure():
        from gpu.energy import under_caps
        from gpu.rows import Report

        rows, caps = [], []

        def under(report):
            caps.append((state / "cap1").read_text().strip())
            report.row("round_j", 1.0)

        under_caps(Report(rows.append), GPU, under)
        return rows, caps

    measure.state = state
    return measure


def test_three_caps_are_set_measured_and_put_back(measured):
    rows, caps = measured()
    assert caps == ["100000", "250000", "400000"]
    assert [row.cap_w for row in rows if row.metric == "round_j"] == ["100", "250", "400"]
    assert (measured.state / "cap1").read_text().strip() == "350000"


def test_without_permission_a_row_gives_the_reason_and_nothing_is_measured(measured):
    (measured.state / "denied").touch()
    rows, caps = measured()
    assert caps == [] and [(row.metric, row.value) for row in rows] == [("cap_refused", 1.0)]
    assert rows[0].note == f"{GPU}: Insufficient Permissions"
