"""`keys` and `reference` describe all input keys and commands."""

from __future__ import annotations

import re

import pytest

from hpctrip.base.units import parse, spelled, units
from hpctrip.cli.keys_reference import sections
from hpctrip.cli.main import cli
from hpctrip.cli.reference import FIRST_KEYS, pages
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.runner.experiment import Experiment
from hpctrip.sim.policies import POLICIES


@pytest.fixture(scope="module")
def written():
    return pages(cli)


def rows(page):
    """{first cell: the other cells} of all tables of a page."""
    lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in page.splitlines() if line.startswith("| ")]
    return {first: rest for first, *rest in lines}


@pytest.mark.parametrize(
    ("name", "described", "absent"),
    [
        (  # every kind that has the key, and no other
            "policy.k",
            (
                *("## `random`\n", "## `static`\n", "* `k` = `70`: integer; at least 1.\n  Cohort size."),
                "* `k`: integer; at least 1; may be absent.\n",
            ),
            ("fixed-radius", "## Units"),
        ),
        ("powertrip", ("Algorithm 1 (Sec. 3)", '"power-law" or "difference"'), ("static", "num_sites")),
        (  # a quantity: its dimension, its spelling and its units
            "network.update_bytes",
            (
                '* `update_bytes` = `"1.5 GB"`: number of bytes or "auto"; at most 1000 TB.\n',
                "| bytes | `B`, `kB`, `MB`, `GB`",
            ),
            ("metres",),
        ),
        ("ranks.device", ("changes no result",), ()),
        ("ranks.threads", (), ("; changes no result",)),
    ],
)
def test_a_name_prints_what_it_denotes_and_nothing_else(hpctrip, name, described, absent):
    ended = hpctrip("keys", name)
    assert ended.code == 0
    assert all(text in ended.out for text in described) and not any(text in ended.out for text in absent)


@pytest.mark.parametrize(
    ("name", "meant"), [("policy.kk", "policy.k"), ("powertrp", "powertrip"), ("polcy", "policy")]
)
def test_an_unknown_name_gets_a_suggestion(hpctrip, name, meant):
    ended = hpctrip("keys", name)
    assert ended.code == 2 and f"did you mean {meant!r}?" in ended.err


def test_without_a_name_a_screen_of_keys_is_listed(hpctrip):
    first = hpctrip("keys").out
    assert all(name in first for name in FIRST_KEYS) and len(first.splitlines()) < 50
    assert '\npolicy.kind = "powertrip"  ' in first and ", ".join(sorted(POLICIES)[:3]) in first
    assert "* `bandwidth_law` = " in hpctrip("keys", "--all").out


@pytest.mark.parametrize(("folder", "root"), [("keys", Experiment), ("cluster", ClusterScenario)])
def test_the_reference_has_a_page_for_every_table_and_a_row_for_every_key(written, folder, root):
    pages = {name.removeprefix(f"{folder}/") for name in written if name.startswith(f"{folder}/")}
    assert pages == {"index.md", *(f"{section.table}.md" for section in sections(root) if section.table)}
    for section in sections(root):
        page = written[f"{folder}/{section.table or 'index'}.md"]
        own = page.split(f"\n## `{section.kind}`\n")[1].split("\n## ")[0] if section.kind else page
        assert section.about in own or not section.table
        for key in section.keys:
            if key.dimension and key.default.startswith('"') and key.default not in key.facts:
                assert parse(key.default.strip('"'), key.dimension) > 0, key
            (item,) = re.findall(rf"^\* `{re.escape(key.name)}`(?: =|:).*(?:\n  .*)*", own, re.MULTILINE)
            assert key.meaning and " ".join(item.split()).endswith(f". {key.meaning}")
            assert not re.search(r"^  ([*+-]|\d+\.) ", item, re.MULTILINE), f"a list in the list: {item}"


def test_a_key_has_default_type_bounds_and_whether_it_must_be_given(written):
    mttr = '* `mttr_s` = `"1 h"`: number of seconds; at least 1 s, at most 3650 d.\n'
    assert mttr in written["keys/faults.md"]
    assert '* `device` = `"auto"`: "auto", "cpu" or "cuda"; changes no result.\n' in written["keys/ranks.md"]
    assert "* `path`: text; must be given.\n" in written["keys/sites.md"]
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
