"""Tables of every odd sort: what is accepted means exactly what an independent, strict reading of the same bytes says.

The other reading is made of Python's csv module and a regular expression; nothing of hpctrip's reader is in it.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import re
import tarfile
import zipfile

import numpy as np
import pytest
from fuzzing import COUNTS, accepted_or_refused, many
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.base.errors import InputError
from hpctrip.base.units import MILE_M
from hpctrip.sim.faults import Faults
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware.operating_points import read_curve
from hpctrip.sim.sites import SITES, CsvSites
from hpctrip.sim.traces.files import read_trace_files

NUM_SITES = 6
DECIMAL = re.compile(r" *[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)? *")
ODD = [
    "", " ", "nan", "NaN", "NA", "null", "inf", "-inf", "Infinity", "True", "false", "TRUE", "1_000", "0x10", "1 0",
    " 5 ", "+5", "5.", ".5", "-0", "1e2", "1E+2", "1e", "1e999", "1e-999", "9007199254740993", "9" * 400,
    "\u0665", "\u00b2", "\uff15", "5%", "'5'", "=1+4", "5;6", "5\t", "\x0b5", "\u20285", "#5", "a\"b", "0.1.2",
    "--1", "x" * 300, "NaT", "now", "2019-05-01",
]  # fmt: skip
ODDITIES = [
    "value", "value", "value", "more", "all more", "fewer", "shift", "quote", "quote", "empty line", "double",
    "extra column", "text",
]  # fmt: skip
COLUMNS = {
    "sites": ["name", "distance_mi"],
    "outages": ["site", "start_s", "end_s"],
    "curve": ["watts", "samples_per_second", "clock_mhz"],
    "csv": ["time", "per_kwh"],
    "electricity-maps": ["Datetime (UTC)", "Carbon Intensity gCO₂eq/kWh (LCA)", "Zone Id"],
    "trace": ["time", "cell", "pdu", "production_power_util", "bad_production_power_data"],
}


def sound_rows(kind):
    if kind == "sites":
        return [[f"s{i}", str(100 + 50 * i)] for i in range(NUM_SITES)]
    if kind == "outages":
        return [["0", "0", "50"], ["3", "20", "1000"], ["5", "5.5", "6"]]
    if kind == "curve":
        return [[str(100 + 20 * i), str(1 + 0.1 * i), "900"] for i in range(4)]
    if kind in SIGNALS:
        return [[f"2022-01-01 0{i}:00", str(100 + i), "NO"][: len(COLUMNS[kind])] for i in range(6)]
    return [[str((600 + 300 * i) * 10**6), "a", "pdu6", str(0.3 + i / 100), "false"] for i in range(6)]


@st.composite
def odd_tables(draw, kind):
    """A sound table with a few oddities: fields more and fewer, shifted, quoted, odd values, odd line ends."""
    rows = [list(COLUMNS[kind]), *sound_rows(kind)]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(rows) - 1))
        row = rows[at]
        place = draw(st.integers(0, max(0, len(row) - 1)))
        oddity = draw(st.sampled_from(ODDITIES))
        if oddity == "value" and row:
            row[place] = draw(st.sampled_from(ODD))
        elif oddity == "text" and row:
            row[place] = draw(st.text(max_size=6))
        elif oddity == "more":
            row.insert(place, draw(st.sampled_from(["", "5", "x"])))
        elif oddity == "all more":
            for other in rows[1:]:
                other.insert(place, "7")
        elif oddity == "fewer" and row:
            del row[place]
        elif oddity == "shift" and row:
            row.insert(0, row.pop())
        elif oddity == "quote" and row:
            row[place] = '"' + row[place] + draw(st.sampled_from(['"', '"', "", '"x', ',"', '""', '\n"']))
        elif oddity == "empty line":
            rows.insert(at, draw(st.sampled_from([[], [" "], [""]])))
        elif oddity == "double":
            rows.insert(at, list(row))
        elif oddity == "extra column":
            for number, other in enumerate(rows):
                other.append("1" if number else draw(st.sampled_from(["name", "", "more", "distance_m"])))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"]))
    start = draw(st.sampled_from(["", "", "", "", "\ufeff", "# a comment\n", "\n", '"']))
    text = start + end.join(",".join(row) for row in rows) + draw(st.sampled_from(["", end, end * 3]))
    data = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 15)) == 0:
        at = draw(st.integers(0, len(data)))
        data = (
            data[:at] + draw(st.sampled_from([b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80"])) + data[at:]
        )
    return data


def strictly(data, comment=False):
    """[{column: text}] of a table, or None where a strict reader must refuse it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    text = re.sub("\r\n?", "\n", text)
    if comment and text.startswith("#"):
        text = text.partition("\n")[2]
    try:
        rows = list(csv.reader(io.StringIO(text.rstrip("\n")), strict=True))
    except csv.Error:
        return None
    if not rows or not rows[0] or len(set(rows[0])) < len(rows[0]):
        return None
    header = rows[0]
    rows = [row or [""] for row in rows[1:] if row or len(header) == 1]
    if any(len(row) != len(header) for row in rows):
        return None
    return [dict(zip(header, row, strict=True)) for row in rows] or None


def number(text):
    value = float(text) if DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan


def numbers(rows, name):
    return [number(row[name]) for row in rows]


def compared(test, read, expected):
    """Read; what comes of it must be `expected`, by the independent reading; None: it must be refused."""
    try:
        found = read()
    except InputError as error:
        assert "\n" not in str(error), "one line"
        found = None
    counts = COUNTS.setdefault(test, {})
    counts[2 if found is None else 0] = counts.get(2 if found is None else 0, 0) + 1
    if found is not None:
        assert expected is not None, "accepted what a strict reader refuses"
        assert found == expected
    else:
        assert expected is None, "refused what means something"


@many
@given(data=odd_tables("sites"))
def test_a_table_of_sites(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "sites.csv"
    path.write_bytes(data)
    rows, expected = strictly(data), None
    named = [name for name in ("distance_m", "distance_mi") if rows and name in rows[0]]
    if len(named) == 1:
        values = numbers(rows, named[0])
        if all(value >= 0 for value in values):
            expected = [value * (MILE_M if named == ["distance_mi"] else 1.0) for value in values]
    compared("sites", lambda: CsvSites(path=str(path)).distances_m(0).tolist(), expected)


@many
@given(data=odd_tables("outages"))
def test_a_table_of_outages(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "outages.csv"
    path.write_bytes(data)
    rows, expected = strictly(data), None
    if rows and set(COLUMNS["outages"]) <= rows[0].keys():
        found = [tuple(numbers([row], name)[0] for name in COLUMNS["outages"]) for row in rows]
        if all(site in range(NUM_SITES) and 0 <= start < end for site, start, end in found):
            expected = found

    def read():
        outages = Faults(deadline_s=60.0, outages=str(path)).schedule(NUM_SITES, 0).outages
        return list(zip(outages.site, outages.start_s, outages.end_s, strict=True))

    compared("outages", read, expected)


@many
@given(data=odd_tables("curve"))
def test_a_curve_of_a_gpu(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "curve.csv"
    path.write_bytes(data)
    rows, expected = strictly(data, comment=True), None
    if rows and set(COLUMNS["curve"][:2]) <= rows[0].keys():
        found = [tuple(numbers([row], name)[0] for name in COLUMNS["curve"][:2]) for row in rows]
        if all(0 < watts <= 1e12 and 0 < rate <= 1e12 for watts, rate in found):
            expected = found
    compared(
        "curves",
        lambda: list(zip(*(part.tolist() for part in read_curve(str(path), "curve")), strict=True)),
        expected,
    )


@pytest.mark.parametrize("kind", ["csv", "electricity-maps"])
@many
@given(data=st.data())
def test_a_signal(tmp_path_factory, kind, data):
    """Its values are among those of the other reading, none is below 0, and all of the time is covered."""
    data = data.draw(odd_tables(kind))
    path = tmp_path_factory.getbasetemp() / "NO.csv"
    path.write_bytes(data)
    counts = COUNTS.setdefault("signals", {})
    try:
        found = SIGNALS[kind](path=str(path)).signal("carbon", SITES["uniform"](num_sites=2), 2, 0)
    except InputError as error:
        assert "\n" not in str(error)
        counts[2] = counts.get(2, 0) + 1
        return
    counts[0] = counts.get(0, 0) + 1
    rows = strictly(data, comment=kind == "csv")
    assert rows is not None and set(COLUMNS[kind]) <= rows[0].keys()
    column = COLUMNS[kind][1]
    values = {number(row[column]) for row in rows if row[column]}
    assert set(found.series[0].value.tolist()) <= values and min(values) >= 0
    assert found.series[0].start_s[0] == 0 and (np.diff(found.series[0].start_s) > 0).all()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["2018-01-20T12:00Z", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "from", "intensity", "actual", "forecast", "shortname", "regions", "regionid"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@many
@given(data=JSON.map(lambda inner: json.dumps({"data": inner})) | st.text(max_size=20))
def test_an_answer_of_the_uk_carbon_intensity_api(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "gb.json"
    path.write_text(data, encoding="utf-8")
    try:
        SIGNALS["uk-carbon-intensity"](path=str(path)).signal("carbon", SITES["uniform"](num_sites=2), 2, 0)
    except InputError as error:
        assert "\n" not in str(error)


@many
@given(data=odd_tables("trace"), packed=st.booleans())
def test_a_trace(tmp_path, data, packed):
    """Of one domain: its good samples stand where the other reading has them."""
    path = tmp_path / "cella.csv"
    path.write_bytes(gzip.compress(data) if packed else data)
    try:
        found = read_trace_files(path)
    except InputError as error:
        assert "\n" not in str(error)
        counts = COUNTS.setdefault("traces, compared", {})
        counts[2] = counts.get(2, 0) + 1
        return
    counts = COUNTS.setdefault("traces, compared", {})
    counts[0] = counts.get(0, 0) + 1
    rows = strictly(data, comment=True)
    assert rows is not None and set(COLUMNS["trace"][:4]) <= rows[0].keys()
    good = {}
    for row in rows:
        bad = row.get("bad_production_power_data", "").lower()
        assert bad in ("true", "1", "1.0", "false", "0", "0.0", "")
        time, util = number(row["time"]), number(row["production_power_util"])
        assert time == int(time) and row["cell"] and row["pdu"]
        assert row["production_power_util"] == "" or math.isfinite(util)
        if bad not in ("true", "1", "1.0") and row["production_power_util"]:
            assert 0 <= util <= 1
            good[f"cell{row['cell']}_{row['pdu']}", int(time)] = util
    for name, util in zip(found.names, found.util, strict=True):
        for step, value in enumerate(util):
            time = found.start_us + round(step * found.step_s * 1e6)
            if (name, time) in good:
                assert value == good[name, time]
            assert value in {v for (domain, _), v in good.items() if domain == name}


def archives(content):
    """The same table in every archive that somebody might try."""
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sites.csv", content)
    with tarfile.open(fileobj=tarred, mode="w") as archive:
        member = tarfile.TarInfo("sites.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return {
        "csv": content,
        "csv.gz": gzip.compress(content, mtime=0),
        "csv.xz": lzma.compress(content),
        "csv.bz2": bz2.compress(content),
        "csv.zip": zipped.getvalue(),
        "csv.tar": tarred.getvalue(),
        "csv.zst": b"\x28\xb5\x2f\xfd\x20" + bytes([len(content) % 256]) + b"\x01\0\0" + content,
    }


PLAIN = ("name,distance_mi\n" + "".join(f"s{i},{100 + 50 * i}\n" for i in range(NUM_SITES))).encode()
PACKED = archives(PLAIN)


@many
@given(data=st.data())
def test_archives_renamed_truncated_and_spoiled(tmp_path_factory, data):
    """Through the command line: only plain and gzipped tables are read, whatever their names, and only whole ones."""
    folder = tmp_path_factory.getbasetemp()
    kind, name = (data.draw(st.sampled_from(sorted(PACKED))) for _ in range(2))
    content = PACKED[kind]
    wound = data.draw(st.sampled_from(["none", "cut", "flip", "twice", "more"]))
    at = data.draw(st.integers(0, len(content) - 1))
    if wound == "cut":
        content = content[:at]
    elif wound == "flip":
        content = content[:at] + bytes([content[at] ^ 1 << data.draw(st.integers(0, 7))]) + content[at + 1 :]
    elif wound == "twice":
        content += content
    elif wound == "more":
        content += data.draw(st.binary(min_size=1, max_size=20))
    path = folder / f"sites.{name}"
    path.write_bytes(content)
    ended = accepted_or_refused(
        "archives",
        "check",
        "-o",
        "sites.kind='csv'",
        "-o",
        f"sites.path='{path}'",
        "-o",
        "workload.train_samples=60",
    )
    if kind not in ("csv", "csv.gz"):
        assert ended.code == 2
    if wound == "none":
        assert ended.code == (0 if kind in ("csv", "csv.gz") else 2)
    if ended.code == 0 and kind == "csv.gz":
        whole = gzip.decompress(content)
        assert np.isfinite(CsvSites(path=str(path)).distances_m(0)).all() and strictly(whole) is not None


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_sound_tables_are_accepted(kind, tmp_path):
    """Else the tests above would compare nothing."""
    path = tmp_path / "cella.csv"
    path.write_text("\n".join(",".join(row) for row in [COLUMNS[kind], *sound_rows(kind)]))
    assert strictly(path.read_bytes()) is not None
    if kind == "sites":
        assert len(CsvSites(path=str(path)).distances_m(0)) == NUM_SITES
    elif kind == "outages":
        Faults(deadline_s=60.0, outages=str(path)).schedule(NUM_SITES, 0)
    elif kind == "curve":
        assert len(read_curve(str(path), "curve").watts) == 4
    elif kind in SIGNALS:
        found = SIGNALS[kind](path=str(path)).signal("carbon", SITES["uniform"](num_sites=2), 2, 0)
        assert len(found.series[0].value) == 6
    else:
        assert read_trace_files(path).util.shape == (1, 6)
