"""The bandwidth that a compute utilisation needs: by hand, over an input's links, and beside a published table."""

import json

import pytest

from hpctrip.plan.bandwidth import UTILISATIONS, Recipe

GRID = 1.21
"""Ratio of the bandwidths of the published table, which lie on a logarithmic grid."""
PUBLISHED_GBIT_S = {
    1: [104.8, 184.2, 222.3, 222.3, 390.7],
    10: [16.0, 49.4, 86.8, 152.6, 222.3],
    50: [3.0, 11.0, 23.3, 41.0, 126.5],
    100: [1.4, 6.2, 13.3, 23.3, 86.8],
    300: [0.5, 2.0, 4.3, 9.1, 41.0],
}
"""{H: Gbit/s for 50, 80, 90, 95, 99 %} of Chinchilla 10B with a step of 0.8 s (arXiv 2503.09799, Table 6). The table is
analytic, too: nobody measured these links."""
CHINCHILLA = {"num_params": 1e10, "step_s": 0.8, "bits": 12.5, "num_sites": 2, "overlap_steps": 2 / 3}
"""Fitted: an exchange of 125 Gbit, on which the rows agree (121 to 130). What overlaps is the backward pass."""


def ratios(local_steps, **recipe):
    """Our bandwidths by the published ones."""
    ours = Recipe(local_steps=local_steps, **CHINCHILLA | recipe)
    published = PUBLISHED_GBIT_S[local_steps]
    return [ours.needed_bps(u) / 1e9 / gbit_s for u, gbit_s in zip(UTILISATIONS, published, strict=True)]


@pytest.mark.parametrize("local_steps", [10, 50, 100, 300])
def test_the_published_table_is_met_within_a_step_of_its_grid(local_steps):
    assert all(1 / GRID <= ratio <= GRID for ratio in ratios(local_steps))


def test_of_the_data_parallel_row_all_but_the_last_are_met():
    """There the gradient of the first layers, which no backward pass hides, is most of what is left."""
    *others, last = ratios(1)
    assert all(1 / GRID <= ratio <= GRID for ratio in others) and last < 0.7


def test_without_an_overlap_high_utilisations_would_need_several_times_as_much():
    assert ratios(10, overlap_steps=0.0)[-1] > 5


def test_a_recipe_by_hand():
    """Half of a model of 2 Gbit goes around 4 sites every 5 s: 1.5 Gbit from each, of which 1 s of travel is hidden."""
    recipe = Recipe(
        num_params=1e9, bits=2.0, num_sites=4, local_steps=20, step_s=0.5, fragments=2, overlap_steps=2.0
    )
    assert recipe.sent_bits == 1.5e9 and recipe.interval_s == 5
    assert recipe.needed_bps(0.5) == 1.5e9 / 6
    assert recipe.utilisation(6.0) == 0.5 and recipe.utilisation(0.5) == 1
    assert recipe.model_copy(update={"latency_s": 7.0}).needed_bps(0.5) == float("inf")
    assert recipe.model_copy(update={"num_sites": 1}).needed_bps(0.99) == 0


LINKS = "from,to,rtt_ms,bandwidth_gbps\na,a,0,8\n"


@pytest.fixture
def bandwidth(hpctrip, tmp_path):
    """`bandwidth(*arguments)`: the rows of the table that it prints."""

    def run(*arguments):
        ended = hpctrip("plan", *arguments, "--bandwidth", "--format", "json")
        assert ended.code == 0, ended.err
        (tmp_path / "table.json").write_text(ended.out)
        return json.loads(ended.out)

    return run


@pytest.fixture
def ring_of_four(tmp_path):
    """Lines of four sites in a ring of 8 Gbit/s: 1.5 x 0.5 GB take 0.75 s beside 3 steps of 2 s."""
    (tmp_path / "links.csv").write_text(LINKS)
    (tmp_path / "sites.csv").write_text("region\n" + "a\n" * 4)
    network = f"{{kind='matrix', path='{tmp_path / 'links.csv'}', aggregator='a', exchange='ring', update_bytes=5e8}}"
    return (
        f"-osites={{kind='csv', path='{tmp_path / 'sites.csv'}'}}",
        f"-onetwork={network}",
        *("-opolicy.kind=all", "-opower.kind=constant", "-otrain.local_steps=3", "-otrain.batch_size=4"),
        "-otiming.seconds_per_sample=0.5",
    )


def test_the_rest_is_that_of_the_input_and_so_are_the_links(bandwidth, tiny, ring_of_four):
    """A step may overlap."""
    lines = ring_of_four
    alone, other, hidden, _ = bandwidth(tiny, *lines, "--vary=overlap_steps=0,1", "--vary=num_sites=4,5")
    assert [alone[key] for key in ("num_params", "step_s", "local_steps", "bits", "num_sites")] == [
        1.25e8,
        2,
        3,
        32,
        4,
    ]
    assert alone["utilisation"] == pytest.approx(6 / 6.75) and alone["needed_bps_50"] == pytest.approx(1e9)
    assert hidden["utilisation"] == 1 and other["utilisation"] is None


@pytest.mark.parametrize(
    ("overlap", "recipe", "exchange_s", "hidden_s"),
    [
        ("{fragments=3, steps=1, blend=0.5}", (9, 3, 1), 3.0, 2.0),  # 2 GB every 3 steps
        ("{delayed=true}", (3, 1, 3), 9.0, 6.0),  # behind a whole round
    ],
)
def test_fragments_and_their_overlap_are_those_of_the_input(
    bandwidth, hpctrip, tiny, ring_of_four, overlap, recipe, exchange_s, hidden_s
):
    lines = (tiny, *ring_of_four, f"-ooverlap={overlap}", "-onetwork.update_bytes=6e9")
    (row,) = bandwidth(*lines)
    assert (row["local_steps"], row["fragments"], row["overlap_steps"]) == recipe
    assert row["num_params"] == pytest.approx(1.5e9, rel=1e-3)
    assert row["utilisation"] == pytest.approx(6 / (6 + exchange_s - hidden_s), rel=1e-3)
    planned = json.loads(hpctrip("plan", *lines, "--samples-per-second=1", "--format=json").out)
    assert row["utilisation"] == pytest.approx(6 / planned["rounds"][0]["makespan_s"], rel=1e-3)


GIVEN = ("num_params=1e9,1e10", "step_s=800 ms", "local_steps=30", "bits=4", "num_sites=2")


def test_the_table_is_drawn(bandwidth, hpctrip, tmp_path):
    rows = bandwidth(*(f"--vary={line}" for line in GIVEN))
    ended = hpctrip("plot", "bandwidth", tmp_path / "table.json", "--out", tmp_path / "b.png")
    assert ended.code == 0 and "num_params 1e+10" in ended.out, ended
    assert rows[1]["needed_bps_50"] == pytest.approx(4e10 / 24)
    assert "1.67" in ended.out and (tmp_path / "b.csv").read_text().startswith("num_params,")
    text = hpctrip("plan", "--bandwidth", *(f"--vary={line}" for line in GIVEN)).out
    assert "1.67" in text and "analytic" in text


@pytest.mark.parametrize("table", ["", "[1]", "[]", '{"a": {"b": 1}}', '[{"latency_s": 1}]', "null"])
def test_what_is_no_table_of_bandwidths_is_not_drawn(hpctrip, tmp_path, table):
    (tmp_path / "table.json").write_text(table)
    hpctrip("plot", "bandwidth", tmp_path / "table.json").check_refused(
        ["table.json: is no table of bandwidths"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bandwidth", "--vary", "num_sites=0"), "num_sites = 0: must be greater than or equal to 1"),
        (("--bandwidth", "--vary", "speed=1"), "speed: unknown key; known: bits, fragments"),
        (
            ("--bandwidth", "--vary", "bits=1..99", "--vary", "num_sites=1..99"),
            "gives 9,801 rows, the most is 1,000",
        ),
        (("--vary", "bits=4"), "is an option of --bandwidth; add --bandwidth"),
        (("--bandwidth", "-n", "5"), "-n 5: does not change the bandwidth that a utilisation needs"),
        (("--bandwidth", "--rounds=10"), "--rounds 10: does not change the bandwidth"),  # its default
    ],
)
def test_a_wrong_recipe_is_refused(hpctrip, tiny, arguments, message):
    hpctrip("plan", tiny, *arguments).check_refused([message])
