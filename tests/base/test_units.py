import pytest

from hpctrip.base.units import amount, parse


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("1.5 GB", "bytes", 1.5e9),
        ("1 MiB", "bytes", 2**20),
        ("1000 mi", "metres", 1_609_344.0),
        ("5 min", "seconds", 300),
        ("2.5h", "seconds", 9000),
        ("1 Gbit/s", "bits per second", 1e9),
        ("250 W", "watts", 250),
        (" 1e3 km ", "metres", 1e6),
        ("1000 miles", "metres", 1_609_344.0),
        ("2 hours", "seconds", 7200),
        ("20 ms", "seconds", 0.02),
        ("1.5 gb", "bytes", 1.5e9),
        ("10 Gbps", "bits per second", 1e10),
        ("100 mbps", "bits per second", 1e8),
    ],
)
def test_a_text_with_a_unit_is_its_si_number(text, dimension, si):
    assert parse(text, dimension) == pytest.approx(si, rel=1e-12)


@pytest.mark.parametrize("value", [3, 2.5, None, True])
def test_anything_but_a_text_is_passed_on(value):
    assert parse(value, "bytes") is value


@pytest.mark.parametrize("text", ["1.5", "GB", "1.5 Gb", "1,5 GB", "1.5 GB/s", "1.2.3 GB", ""])
def test_a_wrong_text_names_the_units(text):
    with pytest.raises(ValueError, match=r"B, kB, MB, GB|not a number"):
        parse(text, "bytes")


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (7.182e5 * 3.6e6, "joules", "718 MWh"),
        (1.23e7, "grams", "12.3 t"),
        (999.6 * 3.6e6, "joules", "1 MWh"),
        (0.0, "joules", "0 Wh"),
        (-1234.5, "", "-1,234 EUR"),
        (2.5e6, "", "2.5 million EUR"),
        (5e13 * 3.6e3, "joules", "50,000 GWh"),
    ],
)
def test_an_amount_is_written_with_the_unit_in_which_people_read_it(value, dimension, text):
    assert amount(value, dimension, "EUR") == text
