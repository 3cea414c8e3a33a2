"""The docs as a site: it is built without a warning, so every link holds; the reference in it is the program's."""

from pathlib import Path

import pytest

pytest.importorskip("material", reason="the extra [docs] is not installed")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `mkdocs build --strict` does."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_every_page_is_there(site):
    from mkdocs.config import load_config

    excluded = load_config(str(ROOT / "mkdocs.yml")).exclude_docs.match_file
    pages = (ROOT / "docs").rglob("*.md")
    for page in (path for path in pages if not excluded(path.relative_to(ROOT / "docs").as_posix())):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        assert (site / (name if name.name != "index" else name.parent) / "index.html").is_file(), name


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("reference/keys/policy", ["patience_rounds", "power-to-cost", "Consecutive votes"]),
        ("reference/commands", ["hpctrip resume", "hpctrip plot curves", "--memory-gb"]),
        (
            "reference/results",
            ["makespan_s", "simulated duration of the round (Eq. 7)", "time_to_accuracy_s"],
        ),
        ("reference/results", ["job completion time: from submission", "nodes switched on in it"]),
        ("reference/cluster/scheduler", ["pollux-greedy", "counts_hosts"]),
        (
            "reference/library",
            ["hpctrip.simulate", "cluster_time", "hpctrip.resume", "time_to(accuracy", "DivergedError"],
        ),
        ("notebooks/first_run", ["first_run_1.png", "simulated minutes to 50 %", "<table"]),
        ("project/security", ["Nothing read from a results file or checkpoint is executed or imported"]),
        ("project/design", ["Why hpctrip is built as it is"]),
    ],
)
def test_what_is_made_from_the_program_and_the_repository_is_in_it(site, page, texts):
    html = (site / page / "index.html").read_text()
    assert not [text for text in texts if text not in html]
    assert "generated:" not in html


def test_its_pages_ask_nothing_of_other_machines(site):
    html = (site / "index.html").read_text()
    assert "fonts.googleapis" not in html and 'src="http' not in html
