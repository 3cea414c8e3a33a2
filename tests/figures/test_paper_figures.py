"""Figures of sites, power, sweeps, policies and over time, and the summary: the numbers that they print and draw."""

import dataclasses
import gzip
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from hpctrip.base.errors import InputError
from hpctrip.base.stats import Estimate
from hpctrip.figures import FIGURES, over_time, policies, sites, summary
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.traces import power_over_time, power_utilisation


@pytest.fixture
def traces(tmp_path):
    """Two cells of one domain each, three steps: utilisation 0.4, 0.5, 0.6 and 0.7, 0.7, 0.7."""

    def write(suffix=""):
        folder = tmp_path / "traces"
        folder.mkdir()
        for cell, values in {"a": (0.4, 0.5, 0.6), "b": (0.7, 0.7, 0.7)}.items():
            comment = "# synthetic\n" if suffix else ""
            text = f"{comment}time,cell,pdu,measured_power_util,production_power_util\n" + "".join(
                f"{600_000_000 + step * 300_000_000},{cell},pdu1,0.9,{value}\n"
                for step, value in enumerate(values)
            )
            (folder / f"cell{cell}_pdu1{suffix}.csv.gz").write_bytes(gzip.compress(text.encode()))
        return folder

    return write


def read(folder):
    (subject,) = reading.TRACES.read(str(folder), "production", "true-is-bad")
    return subject.what


def texts(drawing):
    """All that is written in a picture, after it was drawn."""
    with matplotlib.rc_context(style.LOOK):
        drawing.picture.draw_without_rendering()
    return [text.get_text() for text in drawing.picture.findobj(Text) if text.get_text()]


def test_power_utilisation_prints_mean_minimum_and_maximum_of_each_cell(drawn, traces):
    folder = traces()
    assert drawn("power_utilisation", folder)[1:] == [
        "a 1 0.500 0.400 0.600 0.500",
        "b 1 0.700 0.700 0.700 0.300",
        "mean utilisation of 2 cells: 50.0% to 70.0%",
    ]
    assert "a 1 0.900 0.900 0.900 0.100" in drawn("power_utilisation", folder, "--column", "measured")
    assert "lowest to highest 5-minute sample" in texts(power_utilisation(read(folder)))  # no interval


@pytest.mark.parametrize(("suffix", "kind"), [("", "Recorded"), ("_synthetic", "Synthetic")])
def test_synthetic_traces_are_called_so_in_the_title(drawn, traces, tmp_path, suffix, kind):
    drawn("power_utilisation", traces(suffix), out="out.svg")
    assert f"{kind} traces: 2 cells, 2 domains" in (tmp_path / "out.svg").read_text()


def test_power_over_time_draws_the_domains_named_over_the_days_named(drawn, traces):
    folder = traces()
    lines = drawn("power_over_time", folder, "--domains", "cella_pdu1", "--days", 600 / 86400)
    assert lines[1:] == ["cella_pdu1 2 45.0 40.0 50.0 10.0"]  # two of three five-minute steps
    written = texts(power_over_time(read(folder)))
    assert [text for text in written if "pdu" in text] == ["cellb_pdu1", "cella_pdu1"]  # the highest first


def test_network_prints_the_delay_of_equation_3(drawn, make_run):
    lines = drawn("network", make_run("a"))
    assert "10000 0.1 120" in lines  # 16,093 km / 200,000 km/s + 12 Gbit / 0.1 Gbit/s
    assert "sites within 1000 miles: 4 of 8; update of 1.5 GB" in lines


def test_policies_orders_the_policies_and_compares_them_with_powertrip(drawn, make_run):
    paths = [
        make_run("random", "random", hours=2.0),
        make_run("powertrip"),
        make_run("radius", "fixed-radius", hours=4.0, accuracy=(0.1, 0.2, 0.25)),
        *(
            make_run(f"c{p}", "centralized", hours=h, policy_keys={"power_fraction": p}, power_fraction=p)
            for p, h in ((0.25, 1.5), (0.5, 1.0001))
        ),
    ]
    lines = drawn("policies", *paths)
    assert "powertrip 3 1 1 0.5000 1 the same time" in lines
    assert "random 6 1 1 0.5000 2 50 % less time" in lines
    assert "fixed-radius > 12 1 0 0.2500 at least 4 > 75 % less time" in lines
    order = "powertrip < centralized power_fraction = 0.5 < centralized power_fraction = 0.25 < random"
    assert f"order at 45 %: {order}" in lines


def test_policies_warns_that_bars_are_of_other_data_or_another_clock(make_run, capsys):
    other = {"workload": {"data": "faces"}, "timing": {"seconds_per_sample": 0.06}}
    central = make_run("c", "centralized", policy_keys={"power_fraction": 0.5}, tables=other)
    alike = {"workload": {"data": "glyphs"}, "timing": {"seconds_per_sample": 0.02}}
    drawing = policies.policies(reading.read_runs([make_run("p", tables=alike), central]))
    assert capsys.readouterr().err.splitlines() == [
        "warning: not alike in timing.seconds_per_sample: 0.02 (powertrip) | 0.06 (centralized)",
        "warning: not alike in workload.data: glyphs (powertrip) | faces (centralized)",
    ]
    heading = drawing.picture.get_suptitle().replace("\n", " ")
    assert "not alike in timing.seconds_per_sample, workload.data" in heading


def test_policies_draws_the_world_that_the_centralized_policy_brings_without_a_warning(make_run, capsys):
    world = {"sites": {"kind": "uniform", "num_sites": 1}, "partition": {"pooled_sites": 10}}
    central = make_run("c", "centralized", power_fraction=0.5, update_bytes=0.0, tables=world)
    policies.policies(reading.read_runs([make_run("p", tables={"compression": {"kind": "int8"}}), central]))
    assert capsys.readouterr().err == ""


def test_policies_compares_with_the_bar_named_else_with_the_fastest_powertrip_else_the_first(make_run):
    runs = reading.read_runs([make_run("r", "random", hours=2.0), make_run("p")])
    bars = policies.bars_of(grouping.grouped(runs), 0.45)
    assert policies.reference_bar(bars, None, "random") is bars[0]
    assert policies.reference_bar(bars, "random", "powertrip") is bars[1]
    assert policies.reference_bar(bars[1:], None, "static") is None
    lines = policies.policies(runs, reference="random").lines
    assert lines[1].split()[-5:] == ["0.5", "2", "times", "as", "long"]
    others = [runs[0], *reading.read_runs([make_run("s", "static", hours=4.0)])]
    lines = policies.policies(others).lines
    assert lines[2].split()[-5:] == ["2", "50", "%", "less", "time"]
    assert "those of random, the reference; --reference LABEL names another" in lines[3]


def test_the_ratio_to_the_reference_is_the_geometric_mean_over_the_seeds_as_in_tables(drawn, make_run):
    hours = {"powertrip": (0.2, 0.4, 0.5), "random": (0.8, 1.2, 1.6)}
    paths = [make_run(f"{p}{s}", p, hours=h, seed=s) for p, each in hours.items() for s, h in enumerate(each)]
    ratio = (0.8 / 0.2 * 1.2 / 0.4 * 1.6 / 0.5) ** (1 / 3)  # 3.37; the ratio of the means is 3.27
    (line,) = (line for line in drawn("policies", *paths) if line.startswith("random "))
    assert f" {ratio:.3g} (" in line and line.endswith(f") {100 * (1 - 1 / ratio):.0f} % less time")


def test_policies_whose_interval_holds_1_do_not_differ_significantly(drawn, make_run):
    hours = {"powertrip": (0.2, 0.4, 0.5), "random": (0.8, 0.9, 0.7)}
    paths = [make_run(f"{p}{s}", p, hours=h, seed=s) for p, each in hours.items() for s, h in enumerate(each)]
    lines = drawn("policies", *paths)
    (line,) = (line for line in lines if line.startswith("random "))
    assert line.endswith(" not significant") and "order at 45 %: powertrip ≈ random" in lines
    (line,) = (line for line in drawn("policies_by", *paths, out="by.png") if " random " in line)
    assert line.endswith(" not significant")


def group_of(paths):
    (group,) = grouping.grouped(reading.read_runs(paths))
    return group


def test_the_mean_stands_where_every_seed_is_running_and_has_been_evaluated(make_run):
    slow = make_run("slow", k=(1, 1, 1), accuracy=(0.1, 0.2, 0.3), hours=2.0)
    fast = make_run("fast", k=(1, 1, 1), accuracy=(0.2, 0.4, 0.5), hours=1.0, seed=1)
    mean = over_time.mean_of(group_of([slow, fast]))
    assert mean["hours"].tolist() == [2, 3]  # from the slow one's first evaluation to the fast one's last
    assert mean["accuracy_percent"].tolist() == pytest.approx([(10 + 40) / 2, (15 + 50) / 2])
    half = 12.7062 * np.std([10, 40], ddof=1) / np.sqrt(2)
    assert mean["low"][0] == 0  # no accuracy is below it
    assert mean["high"][0] == min(100, 25 + half)


def test_one_seed_is_its_own_mean_without_a_band(make_run):
    mean = over_time.mean_of(group_of([make_run("a", accuracy=(0.2, float("nan"), 0.5))]))
    assert mean["hours"].tolist() == [1, 3]
    assert mean["accuracy_percent"].tolist() == pytest.approx([20, 50]) and mean["low"].isna().all()


def test_it_prints_n_and_the_mean_and_writes_every_point(make_run, drawn, tmp_path):
    paths = [make_run(f"p{s}", seed=s, accuracy=(0.2, 0.3, 0.5 + s / 10)) for s in range(2)]
    lines = drawn("curves", *paths, make_run("r", "random"))
    assert "powertrip 2 3 55 % (0 % to 100 %) 55 % 3 (3 to 3)" in lines
    assert "random 1 3 50 % 50 % 3" in lines
    assert (tmp_path / "out.csv").read_text().splitlines()[:2] == [
        "label,seed,hours,accuracy_percent,low,high,n",
        "powertrip,0,1.0,20.0,,,1",
    ]


def test_a_seed_that_was_never_evaluated_leaves_no_mean(make_run):
    blind = make_run("blind", accuracy=(float("nan"),) * 3, seed=1)
    group = group_of([make_run("a"), blind])
    assert over_time.mean_of(group).empty
    (_, line) = over_time.curves(reading.read_runs([blind])).lines
    assert line.split()[1:] == ["1", "-", "none", "none", ">", "3"]


def test_cohort_size_prints_how_the_cohort_grows_and_the_overhead_of_the_static_one(drawn, make_run):
    static = make_run("static", "static", k=(5, 5), accuracy=(0.3, 0.4), hours=2.0, policy_keys={"k": 5})
    lines = drawn("cohort_size", make_run("powertrip"), static)
    assert "powertrip 0 2 6 6 4.0 3 yes" in lines
    assert "static k = 5 0 5 5 5 5.0 4 no" in lines
    # while both train, 3 h: (5 - 2) + (5 - 4) + 0 sites more
    assert "site overhead of static over powertrip: 4 site-hours" in lines


def test_summary_tells_the_run_on_one_page(make_run):
    (run,) = reading.read_runs([make_run("demo", votes=(0, 5, 7), accuracy=(0.2, 0.3, 0.452))])
    run.meta.update(hpctrip_version="1.2.3", git_commit="c" * 40, git_dirty=True)
    drawing = summary.plot(run)
    lines = [" ".join(line.split()) for line in drawing.lines]
    assert "outcome 45 % accuracy after 3 simulated hours" in lines
    assert "data synthetic data: glyphs rendered from fonts" in lines
    assert "cohort 2 sites first, 6 largest, 6 last, of 8" in lines
    assert "stragglers 2 h computing, 1 h communicating" in lines
    assert (
        "wall time training 6 s, exchange 1.5 s, evaluation 1.5 s, recording 0 s, other 3 s; "
        "hosts waited 25 % of their training phase"
    ) in lines
    footer = "hpctrip 1.2.3, commit cccccccccccc with changes · model digest 0123456789abcdef · demo.h5"
    assert {"Loss", "samples:", "80", "800", footer} <= set(texts(drawing))
    # how sure the accuracy is
    band = drawing.table[drawing.table["panel"] == "accuracy"].iloc[-1]
    assert (band["low"], band["high"], band["n"]) == pytest.approx((0.4214, 0.4830, 1000), abs=1e-4)
    assert (
        "first evaluation at or above it: 45.2 % after round 3 (n = 1,000 test samples, 95 % interval 42.1 % to "
        "48.3 %; the interval holds the target)" in texts(drawing)
    )


def test_summary_goes_beside_its_file_and_takes_runs_without_target_or_evaluation(make_run, hpctrip):
    path = Path(make_run("bare", target=float("nan"), k=(1,), accuracy=(float("nan"),)))
    ended = hpctrip("plot", "summary", path)
    assert ended.code == 0 and "best accuracy none in 1 simulated hours" in ended.out
    assert path.with_suffix(".png").stat().st_size > 10_000


def test_run_h5_and_run_hdf5_have_pictures_of_their_own(make_run, hpctrip):
    other = Path(make_run("run", k=(1, 1, 1), accuracy=(0.1, 0.2, 0.3)))
    other = other.rename(other.with_suffix(".hdf5"))
    path = Path(make_run("run", k=(1,), accuracy=(0.1,)))
    assert hpctrip("plot", "summary", path, other).code == 0
    for name, rounds in (("run.png", 1), ("run.hdf5.png", 3)):
        picture = path.with_name(name)
        table = pd.read_csv(picture.with_suffix(".csv"))
        assert picture.exists() and (table["panel"] == "accuracy").sum() == rounds


def test_network_draws_the_law_and_1000_miles_and_says_that_both_are_simulated(make_run):
    (run,) = reading.read_runs([make_run("a")])
    written = texts(sites.network(run))
    assert {"its law", "Eq. 3", "1,000 miles"} <= set(written)
    assert sum("imulated" in text for text in written) == 3  # heading and both axes
    miles, gbit_s, delay_s = sites.law(run)
    assert (miles[-1], gbit_s[-1]) == pytest.approx((10_000, 0.1))
    assert delay_s[-1] == pytest.approx(10_000 * 1609.344 / 2e8 + 120)


def test_network_draws_the_first_run_of_a_study_that_has_its_sites(make_run):
    runs = reading.read_runs([make_run(name) for name in ("a", "b", "c")])
    imported = dataclasses.replace(runs[0], sites=runs[0].sites.iloc[:0])
    assert reading.ONE_RUN.of_study([imported, *runs[1:]]) is runs[1]
    with pytest.raises(InputError, match="without their sites"):
        reading.ONE_RUN.of_study([imported])


def test_network_draws_no_law_for_sites_that_do_not_follow_it(make_run):
    (run,) = reading.read_runs([make_run("a", tables={"network": {"bandwidth_law": "inverse"}})])
    assert sites.law(run) is None
    assert "its law" not in texts(sites.network(run))


@pytest.mark.parametrize(
    ("ratio", "bound", "words"),
    [
        (2.0, "", "50 % less time"),
        (1 / 14, "", "14 times as long"),
        (1.0, "", "the same time"),
        (4.0, "at least", "> 75 % less time"),
        (0.5, "at least", "not known"),  # it spent half the reference's time and did not get there
        (0.5, "at most", "> 2 times as long"),
        (4.0, "at most", "not known"),
    ],
)
def test_policies_are_compared_in_words(ratio, bound, words):
    of_one = Estimate.geometric_mean([ratio], [bound == "at least"], [bound == "at most"])
    assert policies.words(of_one) == words


def test_policies_draws_what_did_not_reach_the_target_longer_than_all_that_did(make_run):
    paths = [make_run("p", hours=3.0), make_run("r", "random", accuracy=(0.1, 0.2, 0.3), hours=0.1)]
    drawing = policies.policies(reading.read_runs(paths))
    reached, missed = drawing.picture.axes[0].patches
    assert missed.get_width() > reached.get_width() == pytest.approx(9)
    assert missed.get_hatch() and missed.get_y() > reached.get_y()


def test_policies_has_a_dot_a_seed_and_a_key_for_every_mark(make_run):
    paths = [make_run(f"p{seed}", hours=seed + 1.0, seed=seed) for seed in range(4)]
    paths += [make_run(f"r{seed}", "random", accuracy=(0.1, 0.2, 0.3 + seed), seed=seed) for seed in (0, 1)]
    drawing = policies.policies(reading.read_runs(paths))
    dots = [line for line in drawing.picture.axes[0].lines if line.get_marker() in "o>"]
    assert sorted(float(dot.get_xdata()[0]) for dot in dots) == [3, 3, 3, 6, 9, 12]
    marks = {"95 % interval of the mean", "one seed", "one seed, not reached", "mean time spent"}
    names = {"target not reached by every seed", "powertrip (n = 4)", "random (n = 2)"}
    assert marks | names <= set(texts(drawing))
    assert drawing.picture.get_suptitle().startswith("n = 2 to 4 seeds; ")


@pytest.fixture(scope="module")
def four_seeds(make_run_of_module):
    """Runs of four seeds of two policies."""
    make = make_run_of_module
    return reading.read_runs(
        [make(f"{p}{s}", p, hours=1.0 + s, seed=s) for p in ("powertrip", "random") for s in range(4)]
    )


@pytest.mark.parametrize("name", ["policies", "policies_by", "curves", "paired", "pareto"])
def test_up_to_three_seeds_are_drawn_as_points_and_more_with_an_interval(four_seeds, name):
    intervals = []
    for n in (3, 4):
        drawing = FIGURES[name]([run for run in four_seeds if run.meta["seed"] < n])
        (axes,) = drawing.picture.axes
        written = " ".join([*texts(drawing), drawing.picture.get_suptitle()]).replace("\n", " ")
        assert f"n = {n}" in written and ("95 % interval" in written) == (n == 4)
        intervals.append(len(axes.collections))  # whiskers, bands
    assert intervals[0] == 0 < intervals[1]


def test_those_that_never_arrived_stand_last_by_their_accuracy_and_not_by_the_time_they_gave_up(make_run):
    hours = {"all": (9.0, 0.5), "static": (0.1, 0.1), "random": (5.0, 0.3), "powertrip": (1.0, 0.5)}
    runs = [make_run(p, p, hours=h, accuracy=(0.05, 0.1, best)) for p, (h, best) in hours.items()]
    order = ["powertrip", "all", "random", "static k = 10"]
    assert policies.policies(reading.read_runs(runs)).table["policy"].tolist() == [
        label.split()[0] for label in order
    ]
    rows = policies.paired(reading.read_runs(runs)).lines[1:]
    assert [row.split()[0] for row in rows] == ["all", "random", "static"]


def test_the_first_dozen_kinds_of_points_have_a_colour_each_and_no_two_look_alike():
    looks = [style.point(i) for i in range(40)]
    assert len({look["color"] for look in looks[:12]}) == 12
    assert len({tuple(look.values()) for look in looks}) == 40


@pytest.mark.parametrize(
    ("key", "title"),
    [("network.update_bytes", "Update size"), ("workload.kind", "Workload"), ("policy.k", "k")],
)
def test_an_axis_is_called_in_words(key, title):
    assert policies.axis_title(key) == title


def test_cohort_size_gives_many_configurations_a_panel_each_and_tells_few_apart_without_colours(make_run):
    paths = [make_run(f"s{k}", "static", k=(k,) * 3, policy_keys={"k": k}) for k in range(1, 8)]
    runs = reading.read_runs(paths)
    titles = [axes.get_title(loc="left") for axes in over_time.cohort_size(runs).picture.axes]
    assert titles == [f"static k = {k} (n = 1)" for k in range(1, 8)]
    (axes,) = over_time.cohort_size(runs[:4]).picture.axes
    looks = [line.get_linestyle() for line in axes.lines if line.get_label().startswith("static")]
    assert len(looks) == len(set(looks)) == 4


def test_summary_draws_power_over_time_where_it_changes_and_only_there(make_run):
    (steady,) = reading.read_runs([make_run("steady")])
    assert "Power over time" not in texts(summary.plot(steady))
    (varying,) = reading.read_runs([make_run("varying", seed=1)])
    varying.cohorts["power_fraction"] = np.linspace(0.2, 0.9, len(varying.cohorts))
    drawing = summary.plot(varying)
    assert "Power over time" in texts(drawing)
    power = drawing.table[drawing.table["panel"] == "power"]
    assert power["n"].tolist() == [2, 4, 6]
    assert power["low"].iloc[0] == pytest.approx(0.2) and power["high"].iloc[-1] == pytest.approx(0.9)


def test_summary_shows_recording_apart_and_beside_the_training_on_several_ranks(make_run):
    (alone,) = reading.read_runs([make_run("alone")])
    alone.rounds["record_wall_s"] = 0.5
    assert any("recording 1.5 s, other 1.5 s" in line for line in summary.plot(alone).lines)
    (ranks,) = reading.read_runs([make_run("ranks", ranks=3)])
    ranks.rounds["record_wall_s"] = 0.5
    (line,) = [line for line in summary.plot(ranks).lines if "other 3 s" in line]
    assert "rank 0 recorded for 1.5 s while they trained" in line


def test_the_axis_of_distances_of_one_site_begins_at_0(make_run):
    (run,) = reading.read_runs([make_run("one", k=(1,), accuracy=(0.5,))])
    page = summary.plot(dataclasses.replace(run, sites=run.sites.iloc[:1])).picture
    (axes,) = [axes for axes in page.axes if axes.get_xlabel().startswith("Distance")]
    assert axes.get_xlim() == (0, 1)


def test_sites_counts_rounds_and_hours_of_every_site(make_run, drawn, tmp_path):
    lines = drawn("sites", make_run("a", k=(2, 4, 4, 6), accuracy=(0.1, 0.2, 0.3, 0.5)))
    # site k - 1 is the straggler of a round of one hour, two thirds of it computing; a site computes and sends for 1 s
    words = [line.split() for line in lines]
    assert lines[0].startswith("site rounds of all computing h sending h waiting h")
    assert [row[2:4] for row in words[1:]] == [
        *[["4", "100%"]] * 2,
        *[["3", "75%"]] * 2,
        *[["1", "25%"]] * 2,
        *[["0", "0%"]] * 2,
        ["4", "0.00444"],
    ]
    table = pd.read_csv(tmp_path / "out.csv")  # has all sites
    assert table["rounds_straggler"].tolist() == [0, 1, 0, 2, 0, 1, 0, 0]
    assert table["straggler_compute_s"].sum() == pytest.approx(4 * 2400)
    assert table["straggler_comm_s"].sum() == pytest.approx(4 * 1200)


def test_sites_are_named_and_stand_on_a_map_where_their_positions_are_known(make_run):
    (run,) = reading.read_runs([make_run("a", k=(2, 4), accuracy=(0.1, 0.5))])
    names = ["Oslo", "Lisbon", "", "Rome", "Rome 2", "Paris", "Bonn", "Turin"]
    east, north = [10, -9, 21, 12, 12.1, np.nan, 7, 8], [59, 38, 52, 42, 42.1, 49, 51, 45]
    named = run.sites.assign(name=names, longitude=east, latitude=north)
    picture = FIGURES["sites"](dataclasses.replace(run, sites=named)).picture
    bars, chart = picture.axes[0], picture.axes[-1]
    assert [label.get_text() for label in bars.get_yticklabels()][:3] == ["Oslo", "Lisbon", "site 2"]
    assert len(chart.collections[0].get_offsets()) == 7  # Paris has no position
    assert {text.get_text() for text in chart.texts} == {*names, "site 2"} - {"", "Paris"}
    boxes = [text.get_window_extent() for text in chart.texts]
    assert not any(box.count_overlaps(boxes[:n]) for n, box in enumerate(boxes))
    crowd = named.assign(longitude=10, latitude=59)
    picture = FIGURES["sites"](dataclasses.replace(run, sites=crowd)).picture
    assert [text.get_text() for text in picture.axes[-1].texts] == ["Oslo", "Lisbon", "site 2", "Rome"]
