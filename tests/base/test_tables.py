"""Tables are read for what they say, or refused with line and value."""

import gzip
import lzma
import tarfile
import zipfile

import numpy as np
import pytest

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError


@pytest.fixture
def table(tmp_path):
    """Write content to a file and read it."""

    def read(content, name="table.csv", **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(path, "the table", **options)

    return read


def fault(read, *arguments, **options):
    with pytest.raises(InputError) as error:
        read(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_any_line_end_mark_and_packing_is_the_same_table(table, end, mark, pack):
    text = mark + end.join(["name,value", "Oslo,1.5", "Bergen,2e3", ""])
    found = table(pack(text.encode()))
    assert found.columns == {"name": ["Oslo", "Bergen"], "value": ["1.5", "2e3"]}
    assert found.numbers("value").tolist() == [1.5, 2000.0]
    assert found.lines.tolist() == [2, 3]


def test_quoted_fields_hold_commas_quotes_and_lines(table):
    found = table('name,value\n"Oslo, ""Tigerstaden""",1\n"two\nlines",2\n\nBergen,x\n')
    assert found.columns["name"] == ['Oslo, "Tigerstaden"', "two\nlines", "Bergen"]
    assert found.lines.tolist() == [2, 3, 6]
    assert fault(found.numbers, "value") == "the table, line 6: value = 'x' is not a finite number"


@pytest.mark.parametrize("quoted", ["", '"'])
@pytest.mark.parametrize(
    ("row", "fields"),
    [("s,5,100", "3 fields"), ("5", "1 field"), ("s,5,", "3 fields"), (",s,5", "3 fields"), (" ", "1 field")],
)
def test_a_row_of_another_length_is_refused_by_its_line(table, row, fields, quoted):
    report = fault(table, f"name,distance_mi\n{quoted}a{quoted},1\n{row}\nb,2\n")
    assert f"the table, line 3: not a CSV file (has {fields}, but the header has 2 fields)" in report


def test_all_rows_longer_than_the_header_are_no_index(table):
    assert "line 2: not a CSV file (has 3 fields" in fault(table, "name,distance_mi\na,5,100\nb,6,200\n")


def test_empty_lines_are_passed_over_but_are_rows_in_a_table_of_one_column(table):
    assert table("a,b\n\n1,2\n\n\n3,4\n\n").numbers("b").tolist() == [2, 4]
    assert table("distance_mi\n3\n7\n\n\n").numbers("distance_mi").tolist() == [3, 7]
    one = table("distance_mi\n3\n\n7\n")
    assert "line 3: distance_mi = ''" in fault(one.numbers, "distance_mi")


NO_NUMBERS = [
    "nan", "NaN", "NA", "inf", "-inf", "Infinity", "1e999", "True", "false", "1_000", "0x10", "1 000", "", " ",
    "1\u00b2", "\u0665", "\uff15", "5%", "1e", "--1", "1.2.3", "None", "\u22125",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_text_other_than_a_decimal_number_is_refused(table, text):
    found = table(f"a,value\n1,2\n1,{text}\n")
    assert "the table, line 3: value = " in fault(found.numbers, "value")


def test_numbers_are_those_of_python_to_the_last_bit(table):
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-300, 300).repeat(2)[:1000]
    found = table("value\n" + "\n".join(map(repr, values.tolist())))
    assert found.numbers("value").tolist() == values.tolist()


def test_whole_numbers_are_whole_and_exact(table):
    found = table("site\n3\n3.0\n3e0\n9007199254740991\n")
    assert found.integers("site").tolist() == [3, 3, 3, 2**53 - 1]
    for text in ("0.5", "9007199254740992", "1e300"):
        assert "is not a whole number below 2^53" in fault(table(f"site\n{text}\n").integers, "site")


def test_flags_and_texts_are_converted_or_refused(table):
    found = table("flag,name\nTRUE,a\n0,b\n,\n")
    assert found.flags("flag", empty=True).tolist() == [True, False, True]
    assert "line 4: flag = '' is neither" in fault(found.flags, "flag")
    assert "line 4: name = '' is missing" in fault(found.texts, "name")


@pytest.mark.parametrize(
    "text",
    [
        "from;to;price [EUR/MWh]\n01.10.2023 00:00;01.10.2023 01:00;12,34\n",
        "time;price\n2023-10-01;12\n",
        "time\tprice\n2023-10-01\t12\n",
    ],
)
def test_other_separators_are_named(table, text):
    assert "fields are separated by commas, not " in fault(lambda: table(text).numbers("price"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        *(("12,34", "write a decimal point"), ("1.234,50", "write a decimal point")),
        *(
            (text, "write it without thousands separators")
            for text in ("1,234.50", "1 234", "-1'234'567.0", "1,234")
        ),
        *((text, "leave the field empty") for text in ("nan", "n/a", "NULL", "-", "#N/A")),
        *((text, "write the number alone, without a unit") for text in ("151.30 W", "5%", "3kW")),
    ],
)
def test_a_number_that_is_written_otherwise_has_a_hint(table, text, hint):
    found = table(f'time,price\n1,2\n2,"{text}"\n')
    assert f"line 3: price = {text!r} is not a finite number; {hint}" in fault(
        found.numbers, "price", may_lack=True
    )
    if "leave" in hint:  # not where a field may not be empty
        assert fault(found.numbers, "price").endswith("is not a finite number")


@pytest.mark.parametrize("blank", [" ", "  ", "\t", "\u00a0"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_blanks_at_either_end_of_a_field_or_name_are_removed(table, blank, quote):
    rows = f"{quote}cat{blank}{quote},{blank}u 0,5\n{blank}cat,u 0{blank},{blank}5\n"
    found = table(f"label{blank},{blank}who,n\n{rows}")
    assert found.columns == {"label": ["cat", "cat"], "who": ["u 0", "u 0"], "n": ["5", "5"]}
    assert found.numbers("n").tolist() == [5, 5]
    assert "has two columns 'a'" in fault(table, f"a,a{blank}\n1,2\n")
    assert "line 2: label = '' is missing" in fault(table(f"label,n\n{blank},1\n").texts, "label")


def test_where_values_may_lack_only_empty_fields_do(table):
    found = table("a,value\n1,\n1,2\n")
    assert np.isnan(found.numbers("value", may_lack=True)).tolist() == [True, False]
    assert "line 2: value = 'nan'" in fault(table("a,value\n1,nan\n").numbers, "value", may_lack=True)


def test_columns_have_names_of_their_own(table):
    assert "has two columns 'a'" in fault(table, "a,b,a\n1,2,3\n")
    found = table("value,b\n1,2\n")
    for method in (found.require, found.numbers, found.integers, found.flags, found.texts):
        assert "has no column 'valeu'; did you mean 'value'?" in fault(method, "valeu")


def test_a_comment_stands_above_the_header_only_where_it_may(table):
    found = table("# made by hand, yesterday\na,b\n1,2\n", may_comment=True)
    assert (found.comment, found.lines.tolist()) == ("# made by hand, yesterday", [3])
    problem = "line 2: not a CSV file (has 2 fields, but the header has 1 field)"
    assert problem in fault(table, "# x\na,b\n1,2\n")


def other_archives(folder):
    (folder / "inner.csv").write_text("distance_mi\n3\n")
    with zipfile.ZipFile(folder / "table.zip", "w") as archive:
        archive.write(folder / "inner.csv")
    with tarfile.open(folder / "table.tar", "w") as archive:
        archive.add(folder / "inner.csv")
    packed = {"xz": lzma.compress(b"distance_mi\n3\n"), "zst": b"\x28\xb5\x2f\xfd\x04\x00"}
    packed["bz2"] = b"BZh9\x17\x72\x45\x38\x50\x90\x00\x00\x00\x00"
    return packed | {end: (folder / f"table.{end}").read_bytes() for end in ("zip", "tar")}


def test_archives_other_than_gzip_are_refused_by_what_is_in_them_not_by_their_name(table, tmp_path):
    for end, content in other_archives(tmp_path).items():
        for name in ("table.csv", f"table.csv.{end}"):
            report = fault(table, content, name)
            assert "no text in UTF-8" in report and "plain or gzipped" in report
    for end in ("gz", "xz", "zip", "zst", "tar", "bz2"):
        assert table("value\n3\n", f"plain.csv.{end}").numbers("value").tolist() == [3]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"\n\r\n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (
            b"a,b\n1,\xff\n",
            "no text in UTF-8); it seems to be in WINDOWS-1252: iconv -f WINDOWS-1252 -t UTF-8",
        ),
        ("a (€/MWh),b\n1,2\n".encode("cp1252"), "it seems to be in WINDOWS-1252"),
        (b"a,b\n1,\0\n", "no text in UTF-8); CSV is read plain or gzipped: unpack"),
        (
            "a,b\n1,2\n".encode("utf-16"),
            "no text in UTF-8); it seems to be in UTF-16: iconv -f UTF-16 -t UTF-8",
        ),
        ("a,b\n1,2\n".encode("utf-16-le"), "it seems to be in UTF-16"),
        ("a,b\n1,2\n".encode("utf-16-be"), "it seems to be in UTF-16"),
        (b'a,b\n1,"2\n', "line 2: not a CSV file (unexpected end of data)"),
        (b'a,b\n1,2\n"1"2,3\n', "line 3: not a CSV file ("),
        (b'a,b\n1,"' + b"x" * 200_000 + b'"\n', "line 2: not a CSV file (field larger than field limit"),
        (gzip.compress(b"a,b\n1,2\n" * 99)[:-9], "the gzip stream ends too early"),
        (gzip.compress(b"a,b\n1,2\n" * 99)[:20] + b"\xff" * 40, "the gzip stream is damaged"),
    ],
)
def test_a_file_that_is_no_table_is_reported_in_one_line(table, content, problem):
    assert problem in fault(table, content)
