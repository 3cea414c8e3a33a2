import pytest
from pydantic import ValidationError

from hpctrip.base.errors import InputError
from hpctrip.base.units import MILE_M
from hpctrip.sim.sites import SITES, CsvSites, PowerLaw, Quota, UniformSites


@pytest.mark.parametrize("kind", ["powerlaw", "uniform", "quota"])
def test_a_law_draws_the_same_distances_for_the_same_seed_within_its_bounds(kind):
    law = SITES[kind](num_sites=1000)
    miles = law.distances_m(3) / MILE_M
    assert len(miles) == 1000 and miles.min() >= 100 and miles.max() <= 10_000
    assert (law.distances_m(3) == law.distances_m(3)).all()
    assert (law.distances_m(3) != law.distances_m(4)).any()


@pytest.mark.parametrize(("law", "share"), [(PowerLaw, 0.22), (UniformSites, 900 / 9900)])
def test_a_law_puts_its_share_of_the_sites_inside_1000_miles(law, share):
    miles = law(num_sites=100_000).distances_m(0) / MILE_M
    assert (miles <= 1000).mean() == pytest.approx(share, abs=0.005)


def test_a_quota_is_met_exactly_for_every_seed():
    for seed in range(20):
        assert (Quota().distances_m(seed) <= 1000 * MILE_M).sum() == 22


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValidationError, match="above max_distance_m"):
        PowerLaw(min_distance_m=10.0, max_distance_m=1.0)


def test_sites_are_read_from_a_csv_in_miles_or_metres(tmp_path):
    (tmp_path / "mi.csv").write_text("name,distance_mi\nOslo,100\nBergen,250.5\n")
    (tmp_path / "m.csv").write_text("distance_m\n1000\n")
    assert CsvSites(path=str(tmp_path / "mi.csv")).distances_m(0) == pytest.approx([160934.4, 250.5 * MILE_M])
    assert CsvSites(path=str(tmp_path / "m.csv")).distances_m(0) == pytest.approx([1000])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("distance_mi\n", "no rows"),
        ("miles\n3\n", "no column distance_m or distance_mi"),
        ("distance_mi\n3\n-1\n", "line 3: distance_mi = '-1'"),
        ("distance_mi\n\x00\xff", "sites.path"),
        ("distance_mi\n1e308\n", "line 2: distance_mi = '1e308'"),
        ("distance_mi,distance_m\n1,2\n", "more than one column distance_m or distance_mi among"),
    ],
)
def test_a_wrong_csv_is_one_clear_line(tmp_path, text, complaint):
    path = tmp_path / "sites.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=complaint):
        CsvSites(path=str(path)).distances_m(0)
