"""Results files that somebody built to be read: sound HDF5, but not what hpctrip writes. Whatever they hold, every
command that reads results takes them for what they say or refuses them in a few clear lines; nothing else of this
machine shows.
"""

import contextlib
import json
import os
import shutil

import h5py
import numpy as np
import pytest
from fuzzing import accepted_or_refused, hpctrip, many
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.base.errors import InputError
from hpctrip.record import cluster, schema
from hpctrip.record.any_kind import open_any
from hpctrip.record.schema import Column

SECRET = "7d1f-what-this-machine-keeps-to-itself"
SMALL = """
name = "crafted"
[sites]
num_sites = 5
[workload]
train_samples = 50
test_samples = 20
[stop]
max_rounds = 3
[faults]
deadline_s = 25
lost_fraction = 0.2
[checkpoint]
enabled = false
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCTRIP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cache):
    """Holds a sound results file, its input, and a secret that lies beside them."""
    folder = tmp_path_factory.mktemp("crafted")
    (folder / "small.toml").write_text(SMALL)
    (folder / "elsewhere.csv").write_text(f"{SECRET}\n" * 9)
    os.mkfifo(folder / "pipe")
    made = hpctrip("run", folder / "small.toml", "--out", folder / "sound.h5")
    assert made.code == 0, made.err
    return folder


NOT_BUILT = (KeyError, ValueError, OSError, RuntimeError, TypeError, AttributeError)
"""HDF5 does not build everything that is asked for here."""

# what may be in a file

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "\0", "x\0", "\x1b[31m", "\n", "a\r\nb", "=1+1", "/", "..", "\u202e", "\ud7ff", "x" * 5000]
    ),
)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=64),
    st.sampled_from([0, 1, -1, 2**31, 2**62, 0.5, 1e-310, 1e308, float("inf"), float("nan")]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.just(10**30), st.just(10**400)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DTYPES = [
    "i1", "u2", "<i4", ">i8", "u8", "f2", "f4", "<f8", ">f8", "g", "c16", "?", "S1", "S9", "V4", "i4,f8", "(2,)f8",
    h5py.enum_dtype({"a": 0, "b": 1}), h5py.vlen_dtype("i4"), h5py.string_dtype(), h5py.ref_dtype,
    h5py.string_dtype("ascii", 5),
]  # fmt: skip


@st.composite
def changes(draw, folder):
    """A function that changes one thing of an open file."""
    sort = draw(st.sampled_from(sorted(_SORTS)))
    return _SORTS[sort](draw, folder)


def _place(draw, file):
    """A group and a name in it, of something that is there or is not."""
    group = file[draw(st.sampled_from(["/", *file]))]
    if not isinstance(group, h5py.Group):
        group = file
    name = draw(st.sampled_from([*group, "more", "=more"]))
    if name in group:
        del group[name]
    return group, name


def _described(item):
    item.attrs.update(unit=np.bytes_(b"1"), description=np.bytes_(b"more"))


def _link(draw, folder):
    kind, other = draw(st.sampled_from(["soft", "external", "hard", "circle"])), draw(_others(folder))

    def change(file):
        group, name = _place(draw, file)
        if kind == "soft":
            group[name] = h5py.SoftLink(draw(st.sampled_from(["/sites/site", "/nowhere", ".", "/rounds"])))
        elif kind == "external":
            group[name] = h5py.ExternalLink(other, draw(st.sampled_from(["/", "/sites", "/rounds/round"])))
        elif kind == "circle":
            group[name] = file["/"]
        elif "site" in file["sites"]:
            group[name] = file["sites/site"]

    return change


def _others(folder):
    return st.sampled_from([str(folder / name) for name in ("elsewhere.csv", "sound.h5", "pipe", "none")])


def _storage(draw, folder):
    other = draw(_others(folder))
    how = draw(
        st.sampled_from(
            [
                {"external": [(other, 0, 36)], "dtype": "S12"},
                {"chunks": (1,), "maxshape": (None,)},
                {"chunks": (2**20,), "maxshape": (2**30,), "compression": "gzip"},
                {"compression": "lzf"},
                {"fletcher32": True},
                {"scaleoffset": 2, "dtype": "i4"},
                {"compression": "gzip", "shuffle": True},
                {"virtual": other},
                {"compact": True},
            ]
        )
    )

    def change(file):
        group, name = _place(draw, file)
        if "virtual" in how:
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(other, "/rounds/clock_s", shape=(3,))
            _described(group.create_virtual_dataset(name, layout))
        elif "compact" in how:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((3,))
            made = h5py.h5d.create(group.id, name.encode(), h5py.h5t.IEEE_F64LE, space, dcpl=plist)
            _described(h5py.Dataset(made))
        else:
            _described(group.create_dataset(name, shape=(3,), **({"dtype": "f8"} | how)))

    return change


def _type(draw, folder):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.sampled_from([(3,), (5,), (0,), (), (3, 1), (10**12,), None]))

    def change(file):
        group, name = _place(draw, file)
        chunks = {"chunks": (1000,)} if shape == (10**12,) else {}
        data = {"data": h5py.Empty("f8")} if shape is None else {"shape": shape, "dtype": dtype} | chunks
        _described(group.create_dataset(name, **data))

    return change


def _values(draw, folder):
    """Other numbers in a column, of its own type and length."""
    values = draw(st.lists(NUMBERS, min_size=1, max_size=4))

    def change(file):
        table = draw(st.sampled_from([name for name in file if name != "input"]))
        names = [name for name in file[table] if file[table][name].dtype.kind in "if"]
        column = file[table][draw(st.sampled_from(names))]
        with np.errstate(all="ignore"):
            new = np.resize(np.array(values, dtype="f8"), column.shape)
            column[...] = new.astype(column.dtype)

    return change


def _attribute(draw, folder):
    value = draw(
        st.one_of(
            NUMBERS.map(np.asarray),
            TEXTS.map(lambda text: np.array(text.encode("utf-8", "replace").rstrip(b"\0") or b" ")),
            TEXTS.filter(lambda text: "\0" not in text),
            st.lists(st.binary(min_size=1, max_size=5), max_size=3).map(lambda items: np.array(items, "S5")),
            st.sampled_from(
                [np.zeros(3), np.zeros((2, 2)), h5py.Empty("f8"), np.zeros((), "i4,f8"), np.bool_(True)]
            ),
        )
    )
    known = [
        *schema.ATTRIBUTES,
        *cluster.ATTRIBUTES,
        "format",
        "format_version",
        "checksum",
        "unit",
        "description",
    ]
    name = draw(st.sampled_from(known) | TEXTS.filter(lambda text: text and "\0" not in text))

    def change(file):
        group = file[draw(st.sampled_from(["/", *file]))]
        columns = list(group) if group.name != "/" else []
        item = group[draw(st.sampled_from(columns))] if columns and draw(st.booleans()) else group
        if draw(st.booleans()):
            item.attrs[name] = value
        elif name in item.attrs:
            del item.attrs[name]

    return change


def _swap(draw, folder):
    def change(file):
        group, name = _place(draw, file)
        if draw(st.booleans()):
            group.create_group(name)
        else:
            _described(group.create_dataset(name, data=np.ones(3)))

    return change


def _input(draw, folder):
    """Another stored input: any JSON, or the run's own with one key or table set to something."""
    text = draw(
        st.one_of(
            JSON.map(json.dumps),
            st.sampled_from(
                ['{"a":' + "[" * n + "]" * n + "}" for n in (15, 100, 1500, 50_000)]
                + ['{"seed":' + "9" * n + "}" for n in (400, 5000)]
                + ["", "nonsense", "NaN", '{"policy": [], "power": 3, "plugins": {}}', "\ufeff{}"]
            ),
            st.just(""),
        )
    )
    own, value = draw(st.booleans()), draw(JSON | _others(folder))

    def change(file):
        stored = text
        if own:
            tables = json.loads(file["input/json"][()])
            name = draw(st.sampled_from(sorted(tables)))
            if isinstance(tables[name], dict) and tables[name] and draw(st.integers(0, 3)):
                tables[name][draw(st.sampled_from(sorted(tables[name])))] = value
            else:
                tables[name] = value
            stored = json.dumps(tables)
        for name in draw(st.sampled_from([["json"], ["toml"], ["json", "toml"]])):
            if name in file["input"]:
                del file["input"][name]
            encoded = stored.encode("utf-8", "replace")
            file["input"].create_dataset(name, data=np.array(encoded, f"S{max(1, len(encoded))}"))

    return change


def _reads(draw, folder):
    """The input names files."""
    other = draw(_others(folder) | st.sampled_from([str(folder / "*"), "/**", "/dev/zero", "~", "\0"]))
    tables = draw(
        st.sampled_from(
            [
                {"sites": {"kind": "csv", "path": other}},
                {"power": {"kind": "trace", "path": other}},
                {"faults": {"deadline_s": 25.0, "outages": other}},
                {"plugins": [other]},
                {"plugins": other},
                {"workload": {"kind": "llm", "model": other, "data": other}},
            ]
        )
    )

    def change(file):
        stored = json.dumps(json.loads(file["input/json"][()]) | tables).encode()
        del file["input/json"]
        file["input"].create_dataset("json", data=np.array(stored, f"S{len(stored)}"))

    return change


_SORTS = {
    "links": _link,
    "storage": _storage,
    "types": _type,
    "values": _values,
    "attributes": _attribute,
    "swaps": _swap,
    "input": _input,
    "reads": _reads,
}


def resealed(path):
    """Write the checksums of what the file now holds, where it can be read at all: past them, only the checks of the
    content are left."""
    try:
        run = open_any(path)
    except InputError:
        return
    tables = {}
    for name, frame in run.tables.items():
        units, docs = frame.attrs["units"], frame.attrs["descriptions"]
        kept = frame.drop(columns=frame.attrs["added"])
        tables[name] = {c: Column(frame[c].to_numpy(), units[c], docs[c]) for c in kept}
    written = {name: value for name, value in run.meta.items() if name not in run.added}
    with h5py.File(path, "r+") as file:
        for name, table in tables.items():
            file[name].attrs["checksum"] = np.bytes_(schema.table_checksum(table))
        checksum = schema.meta_checksum(written, run.input_toml, run.input)
        file.attrs["checksum"] = np.bytes_(checksum)


@pytest.fixture(scope="module")
def figures():
    """The names of the figures of results files, which draw small pictures."""
    from hpctrip.figures import FIGURES
    from hpctrip.figures.common.style import LOOK

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LOOK, "savefig.dpi", 20)
        of_runs = {name: plot for name, plot in FIGURES.items() if plot.source.params[0].name == "runs"}
        assert len(of_runs) > 5
        yield sorted(of_runs)


@pytest.fixture(scope="module")
def sound_cluster(folder):
    """A sound results file of a simulated cluster."""
    path = folder / "sound_cluster.h5"
    few = ("-o", "cluster.num_nodes=2", "-o", "jobs.num_jobs=4", "-o", "jobs.largest=8")
    made = hpctrip("cluster", *few, "--out", path)
    assert made.code == 0, made.err
    return path


def crafted(data, folder, sound):
    """Where the file of this name lies after one or two changes."""
    path = folder / "crafted.h5"
    shutil.copy(folder / sound, path)
    with h5py.File(path, "r+") as file:
        for _ in range(data.draw(st.integers(1, 2))):
            change = data.draw(changes(folder))
            with contextlib.suppress(*NOT_BUILT):
                change(file)
    if data.draw(st.booleans()):
        resealed(path)
    return path


def read(name, *arguments, also=()):
    """Run a command that is to say nothing of this machine."""
    ended = accepted_or_refused(f"crafted: {name}", *arguments, also=also)
    assert SECRET not in ended.out + ended.err
    assert len(ended.err) < 4096 and len(ended.out) < 6000
    return ended


def looked_at(folder, sound, path):
    """What verify and show say of it, which others read too."""
    verified = read("verify", "verify", path)
    shown = read("show", "show", path)
    read("show --status", "show", "--status", path)
    read("diff", "diff", folder / sound, path, also=(1,))
    return verified, shown


@many
@given(data=st.data())
def test_a_crafted_results_file(folder, figures, data):
    path, csv = crafted(data, folder, "sound.h5"), folder / "csv"
    verified, shown = looked_at(folder, "sound.h5", path)
    read("verify --data", "verify", "--data", folder / "csv", path)
    read("watch", "watch", path)
    read("retime", "retime", path, "--out", folder / "retimed.h5", "--overwrite", also=(3,))
    read("merge", "merge", "--overwrite", folder / "merged.h5", folder / "sound.h5", path)
    read("resume", "resume", path)
    exported = read("export", "export", path, csv, "--overwrite")
    if exported.code == 0:
        assert not any(SECRET in file.read_text() for file in csv.iterdir())
    if verified.code == 0:
        assert shown.code == exported.code == 0
    name = data.draw(st.sampled_from(figures))
    read("figures", "plot", name, path, "--out", folder / "picture.png")


@many
@given(data=st.data())
def test_a_crafted_results_file_of_a_cluster(folder, figures, sound_cluster, data):
    path = crafted(data, folder, sound_cluster.name)
    verified, shown = looked_at(folder, sound_cluster.name, path)
    shutil.rmtree(folder / "csv", ignore_errors=True)
    exported = read("export", "export", path, folder / "csv")
    if verified.code == 0:
        assert shown.code == exported.code == 0
    name = data.draw(st.sampled_from([name for name in figures if name.startswith("cluster")]))
    read("figures", "plot", name, path, "--out", folder / "picture.png")


@many
@given(data=st.data())
def test_going_on_with_a_crafted_results_file(folder, data):
    path = folder / "resumed.h5"
    shutil.copy(folder / "sound.h5", path)
    with h5py.File(path, "r+") as file:
        change = data.draw(changes(folder))
        with contextlib.suppress(*NOT_BUILT):
            change(file)
    resealed(path)
    ended = accepted_or_refused(
        "crafted: run --resume", "run", "--resume", folder / "small.toml", "--out", path
    )
    assert SECRET not in ended.out + ended.err and (ended.out + ended.err).replace("\n", "").isprintable()


def test_the_secret_is_found_where_it_may_be(folder):
    """Else the tests above could not fail."""
    options = ("-o", "sites.kind='csv'", "-o", f"sites.path='{folder}/elsewhere.csv'")
    no_sites = folder / "no_sites.toml"
    no_sites.write_text(SMALL.replace("num_sites = 5", ""))
    assert SECRET in hpctrip("check", no_sites, *options).err
