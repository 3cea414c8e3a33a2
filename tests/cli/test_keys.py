"""`keys` and `reference` describe all input keys and commands."""

from __future__ import annotations

import re

import pytest

from hpctrip.__main__ import cli
from hpctrip.base.units import parse, spelled, units
from hpctrip.cli.keys_reference import sections
from hpctrip.cli.reference import pages
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.runner.experiment import Experiment


@pytest.fixture(scope="module")
def written():
    return pages(cli)


def rows(page):
    """{first cell: the other cells} of all tables of a page."""
    lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in page.splitlines() if line.startswith("| ")]
    return {first: rest for first, *rest in lines}


def test_a_key_is_described_for_every_kind_that_has_it(hpctrip):
    ended = hpctrip("keys", "policy.k")
    assert ended.code == 0
    assert "random: " in ended.out and "static: " in ended.out and "fixed-radius" not in ended.out
    assert "    k = 70: integer; at least 1\n        Cohort size." in ended.out
    assert "    k: integer; at least 1; may be absent\n" in ended.out


def test_a_kind_is_described_without_the_others(hpctrip):
    ended = hpctrip("keys", "powertrip")
    assert "Algorithm 1 (Sec. 3)" in ended.out and '"power-law" or "difference"' in ended.out
    assert "static" not in ended.out and "num_sites" not in ended.out


def test_a_quantity_says_its_dimension_its_spelling_and_the_units(hpctrip):
    ended = hpctrip("keys", "network.update_bytes")
    assert '    update_bytes = "1.5 GB": number of bytes or "auto"; at most 1000 TB\n' in ended.out
    assert "bytes: B, kB, MB, GB" in ended.out and "metres" not in ended.out


def test_a_neutral_key_is_marked_as_such(hpctrip):
    assert "changes no result" in hpctrip("keys", "ranks.device").out
    assert "changes no result" not in hpctrip("keys", "ranks.threads").out.replace(
        "Only `threads` can change a result", ""
    )


@pytest.mark.parametrize(
    ("name", "meant"), [("policy.kk", "policy.k"), ("powertrp", "powertrip"), ("polcy", "policy")]
)
def test_an_unknown_name_gets_a_suggestion(hpctrip, name, meant):
    ended = hpctrip("keys", name)
    assert ended.code == 2 and f"did you mean {meant!r}?" in ended.err


@pytest.mark.parametrize(("folder", "root"), [("keys", Experiment), ("cluster", ClusterScenario)])
def test_the_reference_has_a_page_for_every_table_and_a_row_for_every_key(written, folder, root):
    pages = {name.removeprefix(f"{folder}/") for name in written if name.startswith(f"{folder}/")}
    assert pages == {"index.md", *(f"{section.table}.md" for section in sections(root) if section.table)}
    for section in sections(root):
        page = written[f"{folder}/{section.table or 'index'}.md"]
        own = page.split(f"\n## `{section.kind}`\n")[1].split("\n## ")[0] if section.kind else page
        assert section.about in own or not section.table
        for key in section.keys:
            if key.dimension and key.default.startswith('"') and key.default not in key.choices:
                assert parse(key.default.strip('"'), key.dimension) > 0, key
            assert key.meaning and key.meaning in rows(own)[f"`{key.name}`"][-1].replace(r"\|", "|")


def test_a_row_has_value_default_bounds_unit_and_meaning(written):
    row = ["number", '`"1 h"`', "at least 1 s, at most 3650 d", "seconds"]
    assert rows(written["keys/faults.md"])["`mttr_s`"][:4] == row
    assert rows(written["keys/ranks.md"])["`device`"][0] == '`"auto"`, `"cpu"`, `"cuda"`'
    assert rows(written["keys/sites.md"])["`path`"][1] == "must be given"
    assert all(dimension in rows(written["keys/index.md"]) for dimension in units())


def test_every_table_row_of_the_reference_has_as_many_cells_as_its_head(written):
    for name, page in written.items():
        for block in re.findall(r"(?:^\|.*\n?)+", page, re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(widths) == 1, f"{name}: {block}"


def test_the_commands_page_has_every_command_its_options_and_the_exit_codes(written):
    page = written["commands.md"]
    for name, command in cli.commands.items():
        assert f"\n## `hpctrip {name}`\n\n```text\nhpctrip {name} [OPTIONS]" in page
        for param in (param for param in command.params if not getattr(param, "hidden", False)):
            assert all(option in page for option in param.opts if option.startswith("--"))
    assert "\n## `hpctrip plot summary`\n" in page
    assert "85" in rows(page) and "training diverged" in rows(page)["3"]


def test_the_pages_are_written_into_a_folder(hpctrip, tmp_path, written):
    assert hpctrip("reference", tmp_path).code == 0
    assert {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.md")} == written


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (1.5e9, "bytes", "1.5 GB"),
        (0.02, "seconds", "20 ms"),
        (160934.4, "metres", "100 mi"),
        (1e9, "bits per second", "1 Gbit/s"),
        (0.0, "watts", "0"),
        (1 / 3, "seconds", "0.3333333333333333"),
    ],
)
def test_a_number_is_spelled_with_the_unit_that_makes_it_shortest(value, dimension, text):
    assert spelled(value, dimension) == text
