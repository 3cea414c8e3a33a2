"""The league: ratios to a baseline and to the best static cohort in hindsight, scenario by scenario."""

import pandas as pd
import pytest

from hpctrip.base.errors import InputError
from hpctrip.figures import league
from hpctrip.record.reader import open_runs


@pytest.fixture
def scenarios(make_run):
    """Two scenarios of two seeds; the target is reached after three rounds of so many hours each."""

    def build(hours, **others):
        for update_bytes in (1e9, 5e9):
            for seed in (0, 1):
                for (policy, k), (near, far) in hours.items():
                    yield make_run(
                        f"{policy}{k}-{update_bytes:g}-{seed}",
                        policy,
                        hours=(near if update_bytes < 2e9 else far) * (1 + seed),
                        seed=seed,
                        label=f"{update_bytes / 1e9:g} GB {policy} {k}",
                        update_bytes=update_bytes,
                        policy_keys={"k": k} if k else None,
                        **others,
                    )

    return build


HOURS = {("powertrip", 0): (1, 2), ("goodput", 0): (0.5, 2.2), ("static", 3): (2, 4), ("static", 5): (1, 8)}


def test_each_ratio_is_to_the_baseline_and_to_the_best_k_of_its_own_scenario(scenarios, drawn, tmp_path):
    lines = drawn("league", *scenarios(HOURS))
    table = pd.read_csv(tmp_path / "out.csv").set_index(["scenario", "policy"])
    ratio = table["ratio"].to_dict()
    assert ratio[("1: 1 GB", "goodput")] == pytest.approx(0.5)
    assert ratio[("2: 5 GB", "goodput")] == pytest.approx(1.1)
    best = table.loc[("1: 1 GB", "goodput"), ["best_static", "ratio_to_best_static"]].tolist()
    assert best == ["static k=5", 0.5]
    assert table.loc[("2: 5 GB", "goodput"), "ratio_to_best_static"] == pytest.approx(2.2 / 4)
    wins = table["is_win"].groupby("policy").sum().to_dict()
    assert wins == {"best static": 0, "goodput": 1, "powertrip": 1}
    assert lines[1].startswith("goodput 2 0.742")


def test_scenarios_of_one_name_are_told_apart_from_the_others(scenarios):
    runs = open_runs(list(scenarios(HOURS)))
    lines = [" ".join(line.split()) for line in league.plot(runs, split="5").lines]
    of_one, of_others = (
        lines.index(f"scenarios whose name {does} 5:") for does in ("begins with", "does not begin with")
    )
    assert lines[of_one + 2 : of_one + 4] == ["goodput 1 1.1 1.1 0 0.55 0.55", "powertrip 1 1 1 1 0.5 0.5"]
    assert "goodput 1 0.5 0.5 1 0.5 0.5" in lines[of_others:]
    assert "scenarios whose name begins with x: none" in league.plot(runs, split="x").lines


@pytest.mark.parametrize(
    "goodput", [(0.2, 0.9), (0.97, 1.96), (0.95, 2.04), (0.52, 3.8), (0.002, 5), (1e-3, 1e3), (1, 2)]
)
def test_the_axis_of_ratios_has_numbers_that_can_be_read(scenarios, goodput):
    runs = scenarios({("powertrip", 0): (1, 2), ("goodput", 0): goodput})
    drawing = league.plot(open_runs([path for path in runs if path.endswith("-0.h5")]))  # one seed
    drawing.picture.canvas.draw()
    (axes,) = drawing.picture.axes
    low, high = axes.get_xlim()
    shown = {
        text.get_text(): x
        for text, x in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
        if low <= x <= high
    }
    assert 2 <= len(shown) <= 12
    assert all(float(text.replace("\N{MINUS SIGN}", "-")) == pytest.approx(x) for text, x in shown.items())


def test_what_did_not_reach_its_target_makes_a_bound(scenarios, make_run):
    runs = [
        *scenarios({("powertrip", 0): (1, 1)}),
        make_run("slow", "oort", accuracy=(0.1, 0.2, 0.3), update_bytes=1e9),
    ]
    drawing = league.plot(open_runs(runs))
    table = drawing.table.set_index("policy")
    assert table.loc["oort", "is"] == "at least" and not table.loc["oort", "is_win"]
    assert table.loc["oort", ["ratio_low", "ratio_high"]].isna().all()
    (line,) = (" ".join(line.split()) for line in drawing.lines if "oort" in line)
    assert line.startswith("oort 1 (1 bounds) at least")
    assert table.loc["powertrip", "is"].tolist() == ["exact"] * 2


def test_a_baseline_that_did_not_arrive_takes_its_own_time(make_run):
    runs = [
        make_run("own", "powertrip", accuracy=(0.1, 0.2, 0.3), update_bytes=1e9),
        make_run("fast", "goodput", update_bytes=1e9),
    ]
    table = league.plot(open_runs(runs)).table.set_index("policy")
    assert table.loc["powertrip", ["ratio", "is", "is_win"]].tolist() == [1, "exact", False]
    assert table.loc["goodput", "is"] == "at most"
    alone = make_run("seed1", "powertrip", accuracy=(0.1, 0.2, 0.3), update_bytes=1e9, seed=1)
    runs[0] = make_run("seed0", "powertrip", update_bytes=1e9)
    table = league.plot(open_runs([*runs, alone])).table.set_index("policy")
    assert table.loc["goodput", ["ratio", "is"]].tolist() == [1, "exact"]  # a seed that goodput lacks


def test_a_fixed_cohort_that_never_arrived_is_not_the_best_one(scenarios, make_run):
    never = [
        make_run(f"n{k}", "static", accuracy=(0.1, 0.2, 0.3), update_bytes=1e9, policy_keys={"k": k})
        for k in (3, 5)
    ]
    drawing = league.plot(open_runs([*scenarios({("powertrip", 0): (1, 1)}), *never]))
    assert drawing.table["ratio_to_best_static"].isna().all()
    assert "best static" not in set(drawing.table["policy"])


def test_a_ranking_whose_count_algorithm_1_chooses_is_no_fixed_cohort(scenarios):
    dynamic = {("first-back", 0): (0.1, 0.1), ("first-back", 4): (1.5, 4)}
    table = league.plot(open_runs(list(scenarios(HOURS | dynamic)))).table
    assert set(table["best_static"]) == {"static k=5", "first-back k=4"}
    assert "first-back dynamic" in set(table["policy"])


def test_a_policy_is_named_by_its_keys_that_have_another_than_the_default_value(make_run):
    kinds = {
        "powertrip": ({}, {"search": "prefix"}, {"round_time": "clock"}),
        "goodput": ({}, {"local_work": "adaptive"}),
        "oort": ({"k": 10}, {"k": 30}),
    }
    runs = [
        make_run(f"{policy}{number}", policy, update_bytes=1e9, policy_keys=keys)
        for policy, settings in kinds.items()
        for number, keys in enumerate(settings)
    ]
    table = league.plot(open_runs(runs), baseline="powertrip").table
    assert sorted(table["policy"]) == [
        *("goodput", "goodput local_work=adaptive"),
        *("oort k=10", "oort k=30"),
        *("powertrip", "powertrip round_time=clock", "powertrip search=prefix"),
    ]


def test_what_ran_with_an_easy_seed_alone_is_neither_the_best_static_cohort_nor_a_winner(scenarios):
    hours = {("powertrip", 0): (1, 2), ("goodput", 0): (0.5, 2.2), ("oort", 0): (0.1, 0.1)}
    runs = open_runs(list(scenarios({**hours, ("static", 3): (1.2, 2.4), ("static", 5): (1.1, 1.1)})))
    easy = ("oort", "static 5")
    both = [
        run for run in runs if run.meta["seed"] == 0 or not any(name in run.meta["label"] for name in easy)
    ]
    table = league.plot(both).table
    assert set(table["best_static"]) == {"static k=3"}
    table = table.set_index("policy")
    assert table.loc["best static", "ratio"].tolist() == pytest.approx([1.2, 1.2])
    assert table.loc["oort", "num_seeds"].tolist() == [1, 1] and not table.loc["oort", "is_win"].any()
    assert table.loc["goodput", "is_win"].tolist() == [True, False]


def test_a_ratio_has_an_interval_over_its_seeds(make_run):
    hours = {"powertrip": (1, 1), "goodput": (0.5, 0.8)}
    runs = [make_run(f"{p}{s}", p, hours=h, seed=s) for p, both in hours.items() for s, h in enumerate(both)]
    row = league.plot(open_runs(runs)).table.set_index("policy").loc["goodput"]
    # Half of ln(0.8 / 0.5) is the deviation from the mean of the logarithms, and, of two, its standard error.
    factor = 1.6 ** (0.5 * 12.7062)
    ends = row[["ratio_low", "ratio", "ratio_high"]].tolist()
    assert ends == pytest.approx([0.4**0.5 / factor, 0.4**0.5, 0.4**0.5 * factor])


def test_equal_times_all_win_whatever_the_order_of_the_files(scenarios):
    hours = {("powertrip", 0): (1, 2), ("oort", 0): (1, 2), ("random", 0): (3, 3), ("static", 5): (3, 3)}
    runs = open_runs(list(scenarios({**hours, ("static", 3): (3, 3)})))
    for order in (runs, runs[::-1]):
        table = league.plot(order).table
        assert table.groupby("policy")["is_win"].sum()[["oort", "powertrip", "random"]].tolist() == [2, 2, 0]
        assert set(table["best_static"]) == {"static k=3"}


def test_a_ratio_is_unknown_where_neither_reached_the_target_and_so_is_the_mean_over_scenarios(
    scenarios, make_run
):
    missed = {"accuracy": (0.1, 0.2, 0.3), "update_bytes": 2e9}
    both = [make_run(f"{policy}-missed", policy, **missed) for policy in ("powertrip", "goodput")]
    drawing = league.plot(open_runs([*scenarios({("powertrip", 0): (1, 1), ("goodput", 0): (2, 2)}), *both]))
    own = drawing.table[drawing.table["policy"] == "goodput"]
    assert own["is"].tolist() == ["exact", "exact", "unknown"] and own["ratio"].isna().tolist() == [0, 0, 1]
    (line,) = (" ".join(line.split()) for line in drawing.lines if line.startswith("goodput"))
    assert line.startswith("goodput 3 (1 bounds) unknown unknown")
    (axes,) = league.plot(open_runs(both)).picture.axes
    assert [text.get_text() for text in axes.texts] == ["target not reached by either"]


def test_without_the_baseline_there_is_no_league(scenarios):
    runs = open_runs(list(scenarios({("goodput", 0): (1, 1)})))
    with pytest.raises(InputError, match="have no scenario in which powertrip ran"):
        league.plot(runs)
