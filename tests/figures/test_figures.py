"""Every script on small runs: the numbers it prints, the picture it leaves, and one line for bad input."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import fig02_power_utilisation
import fig03_power_over_time
import fig05_network
import fig08_static_sweep
import fig09_policies
import fig10_cohort_size
import h5py
import pytest
import summary
from common import grouping, intervals, reading
from common.intervals import Times
from PIL import Image

from hpctrip.record.reader import InputError

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for path in sorted((ROOT / "postprocess").glob("*.py")) if path.stem != "common"]


@pytest.fixture
def drawn(tmp_path, capsys):
    """Run a script's main on arguments; returns its printed lines and checks that it left a picture."""

    def run(script, *arguments, out="out.png"):
        out = tmp_path / out
        assert script.main([*map(str, arguments), "--out", str(out)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == f"picture: {out}"
        if out.suffix == ".png":
            with Image.open(out) as image:
                assert len(image.convert("L").getcolors()) > 10  # more than an empty page
        return [" ".join(line.split()) for line in lines]

    return run


@pytest.fixture
def traces(tmp_path):
    """Two cells of one domain each, three steps: utilisation 0.4, 0.5, 0.6 and 0.7, 0.7, 0.7."""

    def write(suffix=""):
        folder = tmp_path / "traces"
        folder.mkdir()
        for cell, values in {"a": (0.4, 0.5, 0.6), "b": (0.7, 0.7, 0.7)}.items():
            text = "time,cell,pdu,measured_power_util,production_power_util\n" + "".join(
                f"{600_000_000 + step * 300_000_000},{cell},pdu1,0.9,{value}\n"
                for step, value in enumerate(values)
            )
            (folder / f"cell{cell}_pdu1{suffix}.csv.gz").write_bytes(gzip.compress(text.encode()))
        return folder

    return write


def fixed(make_run, k, hours, **settings):
    """A static run of k sites that reaches 45 % in the third of three rounds, after `hours` hours."""
    return make_run(
        f"static-{k}-{hours}", "static", k=(k, k, k), hours=hours / 3, policy_keys={"k": k}, **settings
    )


def reached(hours):
    return Times(hours=hours, half_width=float("nan"), num_seeds=1, num_reached=1, accuracy=0.5)


def test_fig02_prints_mean_minimum_and_maximum_of_each_cell(drawn, traces):
    lines = drawn(fig02_power_utilisation, traces())
    assert "a 1 0.500 0.400 0.600 0.500" in lines
    assert "b 1 0.700 0.700 0.700 0.300" in lines
    assert "mean utilisation of 2 cells: 50.0% to 70.0%" in lines


def test_fig02_reads_the_measured_column_where_told(drawn, traces):
    assert "a 1 0.900 0.900 0.900 0.100" in drawn(fig02_power_utilisation, traces(), "--column", "measured")


@pytest.mark.parametrize(("suffix", "said"), [("", "Recorded traces"), ("_synthetic", "Synthetic traces")])
def test_synthetic_traces_are_called_so_in_the_title(drawn, traces, tmp_path, suffix, said):
    drawn(fig02_power_utilisation, traces(suffix), out="out.svg")
    assert f"{said}: 2 cells, 2 domains" in (tmp_path / "out.svg").read_text()


def test_fig03_draws_the_domains_named_over_the_days_named(drawn, traces):
    lines = drawn(fig03_power_over_time, traces(), "--domains", "cella_pdu1", "--days", 600 / 86400)
    assert lines[1] == "cella_pdu1 2 45.0 40.0 50.0 10.0"  # two of three five-minute steps
    assert len(lines) == 3


def test_fig05_prints_the_delay_of_equation_3(drawn, make_run):
    lines = drawn(fig05_network, make_run("a"))
    assert "10000 0.1 120" in lines  # 16,093 km / 200,000 km/s + 12 Gbit / 0.1 Gbit/s
    assert "sites within 1000 miles: 4 of 8; update of 1.5 GB" in lines


def test_fig08_draws_means_and_bounds_and_names_the_best_k_and_what_it_leaves_out(drawn, make_run):
    paths = [fixed(make_run, 4, hours, seed=seed) for seed, hours in enumerate((1.0, 2.0, 3.0))]
    paths += [
        fixed(make_run, 6, 6.0),
        make_run("low", "static", k=(2, 2), accuracy=(0.2, 0.3), policy_keys={"k": 2}),
    ]
    dynamic = make_run("dynamic")
    lines = drawn(fig08_static_sweep, *paths, dynamic)
    assert lines[:5] == [
        f"left out: {dynamic}, policy powertrip",
        "k TTA h seeds reached best accuracy",
        "2 > 2 1 0 0.3000",  # never arrived: the time it spent, and never the best
        "4 2 ± 2.5 3 3 0.5000",  # 4.3027 / sqrt(3), standard deviation 1
        "6 6 1 1 0.5000",
    ]
    assert lines[5].startswith("best k (Eq. 9): 4, 2 ± 2.5 h to 45 %")
    assert lines[6].startswith("convex: not decidable from 2 k")


def test_fig08_measures_at_another_target_on_the_recorded_curves(make_run):
    runs = reading.read_runs([fixed(make_run, 4, 3.0)])
    # second of three rounds of one hour
    assert fig08_static_sweep.sweep(runs, 0.25)[4].hours == pytest.approx(2.0)


def test_fig08_refuses_two_sweeps_at_once(make_run):
    runs = reading.read_runs([fixed(make_run, 4, 3.0), fixed(make_run, 4, 6.0, update_bytes=1e9)])
    with pytest.raises(InputError, match=r"k = 4 is both .* and .*; give one sweep at a time"):
        fig08_static_sweep.sweep(runs, 0.45)


def test_a_curve_is_convex_where_its_slopes_never_fall():
    said = fig08_static_sweep.convexity({2: reached(6.0), 4: reached(3.0), 8: reached(4.5)})
    assert said == "yes, no second difference of these 3 means is negative"


def test_a_bend_the_wrong_way_is_named_whatever_the_spacing_of_k():
    # slopes -1, -0.25, -1.75
    said = fig08_static_sweep.convexity({1: reached(9.0), 2: reached(8.0), 4: reached(7.5), 6: reached(4.0)})
    assert said == "no, the second difference is negative at k = 4"


def test_fig09_orders_the_policies_and_compares_them_with_powertrip(drawn, make_run):
    paths = [
        make_run("random", "random", hours=2.0),
        make_run("powertrip"),
        make_run("radius", "fixed-radius", hours=4.0, accuracy=(0.1, 0.2, 0.25)),
        *(
            make_run(f"c{p}", "centralized", hours=h, policy_keys={"power_fraction": p}, power_fraction=p)
            for p, h in ((0.25, 1.5), (0.5, 1.0001))
        ),
    ]
    lines = drawn(fig09_policies, *paths)
    assert "powertrip 3 1 1 0.5000 1.00 0 %" in lines
    assert "random 6 1 1 0.5000 2.00 50 %" in lines
    assert "fixed-radius > 12 1 0 0.2500 > 4.00 > 75 %" in lines
    order = "powertrip < centralized power_fraction = 0.5 < centralized power_fraction = 0.25 < random"
    assert f"order at 45 %: {order}" in lines


def test_fig09_says_aloud_and_in_the_picture_that_bars_are_of_other_data_or_another_clock(
    make_run, tmp_path, capsys
):
    other = {"workload": {"data": "faces"}, "timing": {"seconds_per_sample": 0.06}}
    central = make_run("c", "centralized", policy_keys={"power_fraction": 0.5}, tables=other)
    alike = {"workload": {"data": "glyphs"}, "timing": {"seconds_per_sample": 0.02}}
    paths = [make_run("p", tables=alike), central]
    assert fig09_policies.main([*paths, "--out", str(tmp_path / "out.svg")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "warning: not alike in timing.seconds_per_sample: 0.02 (powertrip) | 0.06 (centralized)",
        "warning: not alike in workload.data: glyphs (powertrip) | faces (centralized)",
    ]
    said = (tmp_path / "out.svg").read_text()
    assert "not alike in timing.seconds_per_sample, workload.data" in said


def test_fig09_draws_the_world_that_the_centralized_policy_brings_without_a_warning(make_run, drawn, capsys):
    world = {"sites": {"kind": "uniform", "num_sites": 1}, "partition": {"kind": "iid"}}
    central = make_run("c", "centralized", power_fraction=0.5, update_bytes=0.0, tables=world)
    drawn(fig09_policies, make_run("p", tables={"partition": {"kind": "natural"}}), central)
    assert capsys.readouterr().err == ""


def test_fig09_compares_with_the_bar_named_else_with_the_fastest_powertrip_that_arrived(make_run):
    runs = reading.read_runs([make_run("r", "random", hours=2.0), make_run("p")])
    bars = [(group, intervals.times(group.runs, 0.45)) for group in grouping.grouped(runs)]
    assert fig09_policies.reference_bar(bars, None) is bars[1]
    random = fig09_policies.reference_bar(bars, "random")
    assert fig09_policies.compared(bars[1][1], random) == ("0.50", "-100 %")
    assert fig09_policies.compared(bars[1][1], fig09_policies.reference_bar(bars[:1], None)) == ("-", "-")


def test_fig10_prints_how_the_cohort_grows_and_the_overhead_of_the_static_one(drawn, make_run):
    static = make_run("static", "static", k=(5, 5), accuracy=(0.3, 0.4), hours=2.0, policy_keys={"k": 5})
    lines = drawn(fig10_cohort_size, make_run("powertrip"), static)
    assert "powertrip 0 2 6 6 4.0 3 yes" in lines
    assert "static k = 5 0 5 5 5 5.0 4 no" in lines
    # while both train, 3 h: (5 - 2) + (5 - 4) + 0 sites more
    assert "site overhead of static over powertrip: 4 site-hours" in lines


def test_summary_tells_the_run_on_one_page(drawn, make_run):
    lines = drawn(summary, make_run("demo", votes=(0, 5, 7)))
    assert "outcome 45 % accuracy after 3 simulated hours" in lines
    assert "data synthetic data: glyphs rendered from fonts" in lines
    assert "cohort 2 sites first, 6 largest, 6 last, of 8" in lines
    assert "stragglers 2 h computing, 1 h communicating" in lines
    assert "wall time training 6 s, exchange 1.5 s, evaluation 1.5 s, other 3 s" in lines


def test_summary_goes_beside_its_file_and_takes_runs_without_target_or_evaluation(make_run, capsys):
    path = Path(make_run("bare", target=float("nan"), k=(1,), accuracy=(float("nan"),)))
    assert summary.main([str(path)]) == 0
    assert "best accuracy none in 1 simulated hours" in capsys.readouterr().out
    assert path.with_suffix(".png").stat().st_size > 10_000


def test_the_suffix_chooses_the_format(drawn, make_run, tmp_path):
    drawn(fig05_network, make_run("a"), out="out.pdf")
    assert (tmp_path / "out.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        (fig02_power_utilisation, ["nowhere"], "fig02_power_utilisation.py: nowhere: no such file or folder"),
        (fig03_power_over_time, ["nowhere"], "fig03_power_over_time.py: nowhere: no such file or folder"),
        (fig05_network, ["nowhere.h5"], "nowhere.h5: names no results file"),
        (fig05_network, ["{run}", "{other}"], "2 runs, each with sites of its own; name one run"),
        (fig08_static_sweep, ["{run}"], "of policy static with a fixed k; name its --policy"),
        (
            fig09_policies,
            ["{run}", "--reference", "best"],
            "no bar is labelled 'best'; the labels are powertrip",
        ),
        (fig09_policies, ["{text}"], "is not an HDF5 file"),
        (fig10_cohort_size, ["{empty}"], "holds no finished round"),
        (summary, ["{run}", "{other}", "--out", "x.png"], "--out: one picture cannot hold 2 runs"),
        (
            fig05_network,
            ["{run}", "--out", "missing/x.png"],
            "missing/x.png: cannot be written (No such file or directory)",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(make_run, tmp_path, monkeypatch, capsys, script, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.h5").write_text("no results")
    files = {
        "{run}": lambda: make_run("run"),
        "{other}": lambda: make_run("other", "random"),
        "{empty}": lambda: make_run("empty", k=(), accuracy=()),
        "{text}": lambda: "text.h5",
    }
    assert script.main([files.get(argument, lambda same=argument: same)() for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.rglob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "x.gif"], "x.gif does not end in .png, .pdf, .svg"),
        (["--target", "45"], "45 is not a fraction in (0, 1]"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_a_wrong_option_is_one_line_and_code_2(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        fig09_policies.main(["run.h5", *arguments])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in error and error.count("\n") == 1


def test_a_damaged_column_is_named(make_run, capsys):
    path = make_run("old")
    with h5py.File(path, "a") as file:
        del file["rounds/makespan_s"]
    assert fig10_cohort_size.main([path]) == 2
    assert "/rounds/makespan_s: is missing" in capsys.readouterr().err


def test_scripts_run_from_the_shell(make_run, tmp_path):
    """One process for all: each script is a program whose folder is on the path."""
    path = make_run("shell")
    command = [sys.executable, ROOT / "postprocess" / "summary.py", path]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"picture: {path.removesuffix('.h5')}.png"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_import_only_the_reader_and_the_base_of_hpctrip(script):
    used = {
        line.split()[1]
        for line in script.read_text().splitlines()
        if line.startswith(("import hpctrip", "from hpctrip"))
    }
    assert used <= {"hpctrip.record.reader", "hpctrip.base.units", "hpctrip.base.identity"}
