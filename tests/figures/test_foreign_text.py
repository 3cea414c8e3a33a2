"""Texts of a stranger's results file on their way to a terminal and into a picture: escaped, wherever they stand."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import pytest
from matplotlib.text import Text

from hpctrip.figures import FIGURES
from hpctrip.record.reader import open_run
from hpctrip.record.schema import Column
from hpctrip.record.writer import write_run

WILD = "\x1b]0;pwned\x07\x9b2J\u202e"
"""Titles a terminal anew, clears it, and turns what follows around."""
OF_RUNS = sorted(name for name, plot in FIGURES.items() if plot.source.of_study is list)


@pytest.fixture(scope="module")
def wild(trained, tmp_path_factory):
    """Two results files of a run whose texts are all wild: every text attribute and every text of the input."""

    def spoiled(value):
        if isinstance(value, dict):
            return {key: spoiled(part) for key, part in value.items()}
        return f"{value}{WILD}" if isinstance(value, str) else value

    paths = []
    for seed in (1, 2):
        lines = ("policy.kind=powertrip", f"seed={seed}", "sites.num_sites=10")
        path = tmp_path_factory.mktemp("wild") / "run.h5"
        run = trained(*lines)
        texts = ("status", "stop_reason", "scenario", "label", "policy", "data_source")
        meta = run.meta | {name: f"{run.meta[name]}{WILD}" for name in texts}
        meta |= {"input_toml": run.input_toml, "input_json": json.dumps(spoiled(run.input))}
        units, docs = run.sites.attrs["units"], run.sites.attrs["descriptions"]
        sites = {name: Column(run.sites[name].to_numpy(), units[name], docs[name]) for name in run.sites}
        write_run(path, meta, sites, run.history())
        paths.append(path)
    return paths


def is_legible(text):
    return not [char for char in text if char != "\n" and not char.isprintable()]


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_figure_of_it_holds_and_says_nothing_unprintable(name, wild, capfd):
    policy = open_run(wild[0]).legible().meta["policy"]
    assert policy.startswith("powertrip\\x1b]0;")
    options = {"baseline": policy} if name == "league" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            drawing = FIGURES[name]([open_run(path) for path in wild], **options)
        except Exception as refused:
            assert type(refused).__name__ == "InputError" and is_legible(str(refused))
            return
        drawing.image()
    texts = [text.get_text() for text in drawing.picture.findobj(Text)]
    assert texts and all(map(is_legible, texts)) and all(map(is_legible, drawing.lines))
    assert name != "league" or policy in drawing.lines[1]
    out, err = capfd.readouterr()
    assert is_legible(out + err)


def test_a_letter_that_no_font_has_is_a_box_and_no_warning(trained):
    run = trained()
    run = replace(run, meta=run.meta | {"label": "功率"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FIGURES["curves"]([run], target=0.01).image()


@pytest.mark.parametrize("command", ["show", "watch", "verify"])
def test_what_is_said_of_it_is_escaped(command, wild, hpctrip, monkeypatch):
    """click takes colours out of what goes to no terminal, and more than colours: here it takes out nothing."""
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    ended = hpctrip(command, wild[0])
    assert is_legible(ended.out + ended.err)
    assert is_legible(hpctrip("show", "--status", wild[0]).out)
    assert is_legible(hpctrip("diff", *wild).out)
