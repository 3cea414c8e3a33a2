"""Time against energy, carbon and money: a point for each configuration, and which of them no other one beats."""

from dataclasses import replace

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.units import amount
from hpctrip.figures.common.reading import read_runs
from hpctrip.figures.pareto import panels_of, plot


@pytest.fixture
def runs(make_run):
    """Two seeds of a fast and of a thrifty policy, one of a wasteful one, one that does not arrive; kWh a round."""
    kwh = 3.6e6
    return read_runs(
        [
            make_run("fast0", hours=1.0, spent={"energy_j": 20 * kwh}),
            make_run("fast1", hours=1.2, seed=1, spent={"energy_j": 22 * kwh}),
            make_run("thrifty0", "static", hours=2.0, spent={"energy_j": 10 * kwh}),
            make_run("wasteful", "random", hours=3.0, spent={"energy_j": 20 * kwh}),
            make_run("stopped", "all", accuracy=(0.1, 0.2, 0.3), spent={"energy_j": 1 * kwh}),
        ]
    )


def test_time_and_energy_are_means_over_seeds_up_to_the_target(runs):
    drawing = plot(runs)
    table = drawing.table.set_index("label")
    assert table["energy_kwh"].to_dict() == pytest.approx(
        {"powertrip": 63, "static": 30, "random": 60, "all": 3}
    )
    assert table["mean_h"]["powertrip"] == pytest.approx(3.3)
    assert table.loc["powertrip", "energy_kwh_half_width"] == pytest.approx(12.7062 * 3)
    assert np.isnan(table.loc["static", "energy_kwh_half_width"])
    assert plot(runs, target=0.25).table.set_index("label")["energy_kwh"]["powertrip"] == pytest.approx(42)


def test_what_did_not_arrive_is_not_on_the_front(runs):
    drawing = plot(runs)
    table = drawing.table.set_index("label")
    on_front = {"powertrip": True, "static": True, "random": False, "all": False}
    assert table["energy_kwh_on_front"].to_dict() == on_front
    assert [line.split()[0] for line in drawing.lines] == ["configuration", *on_front]
    assert drawing.lines[-1].split()[1:4] == [">", "3", "0/1"]
    (axes,) = drawing.picture.axes
    assert any(name.startswith("front") for name in axes.get_legend_handles_labels()[1])
    (axes,) = plot(runs[-2:]).picture.axes  # one of them arrived, and is no line
    assert not any(name.startswith("front") for name in axes.get_legend_handles_labels()[1])
    assert drawing.image("svg")


def test_each_world_of_a_study_has_a_front_of_its_own(runs):
    worlds = ["a", "a", "a", "b", "b"]
    told = [replace(run, meta=run.meta | {"world": world}) for run, world in zip(runs, worlds, strict=True)]
    table = plot(told).table.set_index("label")
    on_front = {"powertrip": True, "static": True, "random": True, "all": False}
    assert table["energy_kwh_on_front"].to_dict() == on_front and table["world"]["random"] == "b"


def test_carbon_and_money_have_panels_where_they_are_known(make_run):
    spent = {"energy_j": 3.6e6, "carbon_g": 500.0, "cost": 0.25}
    tables = {"accounts": {"currency": "GBP"}}
    (run,) = read_runs([make_run("a", spent=spent, tables=tables)])
    drawing = plot([replace(run, meta=run.meta | {"synthetic_signals": ["carbon"]})])
    titles = [axes.get_xlabel() for axes in drawing.picture.axes]
    assert titles == ["Energy (kWh)", "Carbon (kg CO2)", "Price (GBP)"]
    assert amount(2.5, "") == "2.5 money"  # of a file of before there were currencies
    assert "synthetic carbon" in drawing.picture.get_suptitle().replace("\n", " ")
    assert drawing.table[["energy_kwh", "carbon_kg", "cost"]].iloc[0].tolist() == pytest.approx(
        [3, 1.5, 0.75]
    )


def test_runs_that_know_no_energy_or_have_two_currencies_are_refused(make_run):
    with pytest.raises(InputError, match="have no energy in every round"):
        plot(read_runs([make_run("old", spent={})]))
    spent = {"energy_j": 1.0, "cost": 1.0}
    both = [
        make_run(currency, seed=i, spent=spent, tables={"accounts": {"currency": currency}})
        for i, currency in enumerate(("EUR", "USD"))
    ]
    with pytest.raises(InputError, match="have costs in EUR, USD"):
        panels_of(read_runs(both))


def test_quantities_that_differ_by_far_have_a_logarithmic_axis(runs):
    (far,) = plot(runs).picture.axes  # 3 to 63 kWh
    (near,) = plot(runs[:4]).picture.axes  # 30 to 63
    assert (far.get_xscale(), near.get_xscale()) == ("log", "linear")
    assert near.get_xlim()[0] == 0
