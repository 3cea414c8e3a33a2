"""Every figure: as a command and as a script, its files, bad input, and pictures that can be read."""

import io
import itertools
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from hpctrip.figures import FIGURES, measured
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import SUFFIXES

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*(ROOT / "postprocess").glob("fig*.py"), ROOT / "postprocess" / "summary.py"])
OF_RUNS = sorted(name for name, plot in FIGURES.items() if plot.source in (reading.RUNS, reading.ONE_RUN))
SWEEPS = ("equal_power", "sweep", "gain")
"""Drawn of fixed cohorts of several sizes."""
UNFRIENDLY = (r"_$x^2$ \frac{", "\x1b[31m{0} %s & # ~", "one long name after the other " * 9, "é ß", "plain")


def subject(name, paths):
    """What the figure of this name is drawn of: all runs, or the first."""
    runs = reading.read_runs(paths)
    return runs[0] if FIGURES[name].source is reading.ONE_RUN else runs


def test_plot_alone_lists_the_figures_a_line_each(hpctrip):
    ended = hpctrip("plot")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    for name, plot in FIGURES.items():
        assert [name, *plot.command.short_help.split()] in lines


def test_any_beginning_that_is_no_other_figures_will_do(drawn, make_run):
    drawn("cohort", make_run("a"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("power", "several match: power_over_time, power_utilisation"),
        ("zzz", "known: bandwidth, cluster_equal_energy, "),
        ("curvs", "did you mean 'curves'?"),
        ("fig09_policies", "did you mean 'policies'?"),
    ],
)
def test_another_name_is_answered_with_those_that_it_may_mean(name, hint, hpctrip):
    ended = hpctrip("plot", name, "x.h5")
    assert ended.code == 2 and f"no figure {name!r}; {hint}" in ended.err


def overlapping(picture):
    """Pairs of texts whose boxes cover each other by more than a pixel."""
    with matplotlib.rc_context(style.LOOK):
        canvas = FigureCanvasAgg(picture)
        canvas.draw()
        renderer, outside = canvas.get_renderer(), labels_outside(picture)
        boxes = [
            (text.get_text(), text.get_window_extent(renderer).padded(-1))
            for text in picture.findobj(Text)
            if text.get_visible() and text.get_text().strip() and text not in outside
        ]
    return [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlaps(other)]


def labels_outside(picture):
    """Labels of ticks outside of their axis' range: they are there, but not drawn."""
    found = set()
    for axis in itertools.chain.from_iterable((axes.xaxis, axes.yaxis) for axes in picture.findobj(Axes)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                found |= {tick.label1, tick.label2}
    return found


@pytest.fixture(scope="module")
def unfriendly(make_run_of_module):
    """Three seeds of configurations with names that are hard to write, and of a smaller static cohort."""
    make = make_run_of_module
    paths = [make(f"s{seed}", "static", k=(2, 2, 2), seed=seed) for seed in range(3)]
    for i, label in enumerate(UNFRIENDLY):
        accuracy = (0.2, float("nan"), 0.3 if label == "plain" else 0.5)
        common = {"label": label, "k": (3, 3, 3), "accuracy": accuracy, "policy_keys": {"k": i}}
        policy = "static" if i else "powertrip"
        for seed in range(3):
            paths.append(make(f"r{i}-{seed}", policy, seed=seed, hours=1 + i + seed / 4, **common))
    return reading.read_runs(paths)


@pytest.mark.parametrize("name", [name for name in OF_RUNS if FIGURES[name].source is reading.RUNS])
@pytest.mark.parametrize("num_seeds", [1, 3])
def test_no_text_covers_another_whatever_the_runs_are_called(name, num_seeds, unfriendly):
    labels = ("", "plain") if name in SWEEPS else UNFRIENDLY  # the sizes of a sweep have no names
    runs = [run for run in unfriendly if run.meta["seed"] < num_seeds and run.meta["label"] in labels]
    options = {"baseline": grouping.grouped(runs)[0].label} if name == "paired" else {}
    assert overlapping(FIGURES[name](runs, **options).picture) == []


@pytest.mark.parametrize("name", ["summary", "network", "sites", "timeline"])
@pytest.mark.parametrize("k", [(1,), (2, 4, 6)])
def test_no_text_of_a_single_run_covers_another(name, k, make_run):
    path = make_run("a", label=UNFRIENDLY[2], k=k, accuracy=(0.2, 0.3, 0.5)[: len(k)], votes=k)
    (run,) = reading.read_runs([path])
    run.meta.update(scenario=UNFRIENDLY[2], stop_reason=UNFRIENDLY[0], data_source=UNFRIENDLY[2])
    assert overlapping(FIGURES[name](run).picture) == []


@pytest.mark.parametrize("name", OF_RUNS)
def test_one_round_that_was_never_evaluated_is_drawn_and_leaves_matplotlibs_settings_alone(name, make_run):
    before = dict(matplotlib.rcParams)
    kinds = [(1, "powertrip"), (1, "static"), (2, "static")][: 3 if name in SWEEPS else 2]
    blind = {"accuracy": (float("nan"),)}
    paths = [make_run(f"a{p}{k}", p, k=(k,), policy_keys={"k": k}, **blind) for k, p in kinds]
    drawing = FIGURES[name](subject(name, paths))
    assert drawing.image("svg").startswith(b"<?xml")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["curves", "sites"])
def test_a_picture_that_is_saved_by_matplotlib_has_its_look(name, make_run, tmp_path):
    """Text stays text: in a PDF that no journal refuses for its fonts, and in an SVG."""
    picture = FIGURES[name](subject(name, [make_run("a")])).picture
    picture.savefig(tmp_path / "a.pdf")
    picture.savefig(tmp_path / "a.svg")
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in pdf and b"/CIDFontType2" in pdf
    assert "<text" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("name", ["curves", "policies", "sites"])
def test_a_picture_has_the_width_and_the_size_of_text_that_are_asked_for(name, make_run):
    paths = [make_run("a"), make_run("b", "static")]
    plain = FIGURES[name](subject(name, paths)).picture
    large = FIGURES[name](subject(name, paths), width=8, font_size=12).picture
    assert large.get_figwidth() == pytest.approx(8) and overlapping(large) == []
    sizes = [
        {text.get_fontsize() for text in each.findobj(Text) if text.get_text()} for each in (plain, large)
    ]
    assert sizes[1] == {1.5 * size for size in sizes[0]}


def test_no_mark_of_a_point_is_cut_at_the_edge_of_its_panel(make_run):
    paths = [make_run(f"r{i}", "static", hours=1.0 + i, policy_keys={"k": i + 1}) for i in range(3)]
    picture = FIGURES["pareto"](reading.read_runs(paths)).picture
    FigureCanvasAgg(picture).draw()
    for axes in picture.axes:
        inside = axes.get_window_extent().padded(
            -3 * picture.dpi / 72
        )  # half the size of a mark, and its edge
        points = [
            axes.transData.transform(line.get_xydata()) for line in axes.lines if len(line.get_xydata()) == 1
        ]
        assert points and all(inside.contains(*point[0]) for point in points)


def test_a_run_whose_rounds_come_from_the_cache_has_no_panel_of_wall_times(make_run):
    (run,) = reading.read_runs([make_run("a")])
    titles = [[axes.get_title("left") for axes in FIGURES["summary"](run).picture.axes]]
    run.rounds["wall_s"] = 0.0
    titles += [[axes.get_title("left") for axes in FIGURES["summary"](run).picture.axes]]
    assert "Wall time" in titles[0] and titles[1] == [title for title in titles[0] if title != "Wall time"]


def test_a_letter_that_no_font_has_is_a_box_and_no_warning(make_run):
    runs = reading.read_runs([make_run("a", label="功率")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FIGURES["curves"](runs).image()


def test_the_suffix_chooses_the_format_and_missing_folders_are_made(drawn, make_run, tmp_path):
    drawn("network", make_run("a"), out="new/folder/out.pdf")
    assert (tmp_path / "new/folder/out.pdf").read_bytes().startswith(b"%PDF")


def test_a_png_has_a_palette_and_looks_as_it_was_drawn(make_run):
    drawing = FIGURES["curves"](reading.read_runs([make_run(f"a{seed}", seed=seed) for seed in range(2)]))
    with matplotlib.rc_context(style.LOOK):
        drawing.picture.savefig(drawn := io.BytesIO(), format="png")
    with Image.open(drawn) as full, Image.open(io.BytesIO(drawing.image())) as few:
        assert few.mode == "P" and few.size == full.size and few.info["dpi"] == full.info["dpi"]
        difference = np.abs(np.asarray(few.convert("RGB"), int) - np.asarray(full.convert("RGB"), int))
    assert difference.mean() < 0.5


def test_numbers_are_never_written_over_what_they_were_read_from(tmp_path, hpctrip):
    table = tmp_path / "scaling.csv"
    columns = ("kind", *measured.COUNTS, *measured.SECONDS, "efficiency")
    content = f"{','.join(columns)}\nstrong{',1' * (len(columns) - 1)}\n"
    table.write_text(content)
    refused = hpctrip("plot", "scaling", table, "--out", tmp_path / "scaling.png")
    refused.check_refused(["scaling.csv: is an input, which is never overwritten; choose another by --out"])
    assert table.read_text() == content


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("power_utilisation nowhere", "nowhere: no such file or folder"),
        ("power_over_time nowhere", "nowhere: no such file or folder"),
        ("network nowhere.h5", "nowhere.h5: no such file"),
        ("network run.h5 other.h5", "2 runs, each with sites of its own; name one run"),
        ("sweep run.h5", "of policy static with a fixed k; name its --policy"),
        ("policies run.h5 --reference best", "no bar is labelled 'best'; the labels are powertrip"),
        ("policies text.h5", "is not an HDF5 file"),
        ("cohort_size empty.h5", "holds no finished round"),
        ("summary run.h5 other.h5 --out x.png", "--out: one picture cannot hold 2 runs"),
        ("network run.h5 --out text.h5/x.png", "text.h5/x.png: cannot be written: Not a directory"),
        ("scaling text.h5", "text.h5: has no column 'kind'"),
        ("policies run.h5 --out x.gif", "x.gif: does not end in .png or .pdf or .svg"),
    ],
)
def test_bad_input_is_one_line_and_code_2(make_run, tmp_path, monkeypatch, hpctrip, command, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.h5").write_text("no results")
    make_run("run"), make_run("other", "random"), make_run("empty", k=(), accuracy=())
    hpctrip("plot", *command.split()).check_refused([problem])
    assert not list(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_its_figure_under_the_number_and_the_title_of_the_paper(path, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", [str(path), *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        return ended.value.code, *capsys.readouterr()

    code, shown, _ = run("--help")
    shown, name = " ".join(shown.split()), re.search(r'run_figure\("(\w+)"', path.read_text())[1]
    details = " ".join(FIGURES[name].help.partition("\n")[2].split())
    title = path.read_text().splitlines()[0].strip('"')
    assert not code and f"Usage: {path.name} [OPTIONS]" in shown and f"{title} {details[:60]}" in shown
    for words, problem in ((["nowhere"], "nowhere: no such file"), (["x", "--frobnicate"], "No such option")):
        code, _, error = run(*words)
        assert code == 2 and error.startswith(f"{path.name}: {problem}") and error.count("\n") == 1


def test_a_target_is_a_fraction(make_run, hpctrip):
    ended = hpctrip("plot", "policies", make_run("a"), "--target", "45")
    assert ended.code == 2 and "'45' is not a fraction in (0, 1]" in ended.err


def test_scripts_run_from_the_shell(make_run, tmp_path):
    command = [sys.executable, ROOT / "postprocess" / "fig09_policies.py", make_run("p")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-2:] == [
        "picture: plot_fig09_policies.png",
        "numbers: plot_fig09_policies.csv",
    ]


def test_a_figure_is_drawn_again_without_asking_also_of_more_runs_and_in_another_format(make_run, drawn):
    one, more = make_run("a"), make_run("b", "random", seed=1)
    for suffix in SUFFIXES:
        for runs in ([one], [one, more], [one]):
            drawn("curves", *runs, out=f"out{suffix}")


@pytest.mark.parametrize("name", ["notes.csv", "notes.png"])
def test_a_file_that_no_figure_made_is_kept_unless_overwriting_is_asked(make_run, tmp_path, hpctrip, name):
    (tmp_path / name).write_text("my own, notes\n")
    command = "plot", "curves", make_run("a"), "--out", tmp_path / "notes.png"
    hpctrip(*command).check_refused([f"{name}: exists and is ", "--overwrite"])
    left = {path.name for path in tmp_path.iterdir()} - {"a.h5"}
    assert left == {name} and (tmp_path / name).read_text() == "my own, notes\n"
    assert hpctrip(*command, "--overwrite").code == 0
    assert len(pd.read_csv(tmp_path / "notes.csv")) > 0


def test_a_file_that_a_run_has_read_is_never_overwritten(hpctrip, tiny, folder):
    table = "name,distance_km\nOslo,10\nRome,20\n"
    (folder / "sites.csv").write_text(table)
    words = ("-o", "sites={kind='csv', path='sites.csv'}", "-o", "policy.kind=all", "-o", "stop.max_rounds=1")
    assert hpctrip("run", tiny, *words, "--out", "run.h5").code == 0
    refused = hpctrip("plot", "sites", "run.h5", "--out", "sites.png", "--overwrite")
    refused.check_refused(["sites.csv: is an input, which is never overwritten"])
    drawn = hpctrip("plot", "sites", "run.h5")  # the default has no name that inputs have
    assert drawn.code == 0 and Path("plot_sites.csv").exists(), drawn.err
    assert (folder / "sites.csv").read_text() == table


def test_edited_numbers_and_pictures_of_other_figures_are_kept(make_run, tmp_path, drawn, hpctrip):
    out, run = tmp_path / "out.png", make_run("a")
    drawn("curves", run)
    refused = hpctrip("plot", "summary", run, "--out", out)
    refused.check_refused(["out.png: exists and is not a picture of the figure summary"])
    with open(tmp_path / "out.csv", "a") as table:
        table.write("a note of mine\n")
    hpctrip("plot", "curves", run, "--out", out).check_refused(["out.csv: exists and is not the table"])
    assert "a note of mine" in (tmp_path / "out.csv").read_text()
