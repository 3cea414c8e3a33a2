"""Faults of a study are reported in clear lines before anything is trained."""

from __future__ import annotations

import pytest
from small_study import BASE, STUDY

from hpctrip.base.errors import InputError
from hpctrip.studies.studies import axes_of

AXIS = '[[axis]]\nkey = "policy.k"\nvalues = [2, 3]\n'
VARIANTS = '[[axis]]\nname = "policy"\nvariants = [{label = "a", policy.k = 2}, {label = "b", %s}]\n'


@pytest.fixture
def wrong(tmp_path, study):
    """`wrong(text, *arguments)`: run `hpctrip study` on a file with this text."""
    (tmp_path / "base.toml").write_text(BASE)

    def run(text, *arguments, do="run"):
        (tmp_path / "study.toml").write_text(text)
        return study(tmp_path, *arguments, do=do)

    return run


HEAD = 'name = "x"\ninputs = ["base.toml"]\n'


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("nam = 'x'\n" + AXIS, ["name: is missing", "nam: unknown key; did you mean 'name'?"]),
        (HEAD + "seeds = []\n" + AXIS, ["seeds = []: must not be empty"]),
        (HEAD + "seeds = '9..0'\n" + AXIS, ["seeds = '9..0': must rise"]),
        (
            HEAD + "seeds = ['a']\n" + AXIS,
            ["seeds = ['a']: must be a list of whole numbers, or a range such as \"0..9\""],
        ),
        (
            HEAD
            + AXIS
            + '[[axis]]\nname = "c"\nvariants = [{label = "a, b"}, {label = "a", train.lr = 0.1}]\n'
            '[[axis]]\nname = "d"\nvariants = [{label = "c"}, {label = "b, c", stop.max_rounds = 4}]\n',
            ["'policy.k = 2, a, b, c': is the name of two runs; give one of the labels another"],
        ),
        ("name = 'x'\nstudies = []\n", ["studies = []: must not be empty"]),
        (HEAD + "overlays = ['over.toml']\n" + AXIS, ["study.toml: overlays: ", "over.toml: no such file"]),
        (HEAD + "seeds = [1, 1]\n" + AXIS, ["seeds = [1, 1]: names a seed twice"]),
        (HEAD + AXIS.replace("key", "kee"), ["axis.0.kee: unknown key; did you mean 'key'?"]),
        (HEAD + AXIS.replace("values", "name = 'k' #"), ["axis.0: needs a key and its values, or variants"]),
        (HEAD + AXIS.replace("policy.k", "seed"), ["axis.0: the seed is not an axis: use seeds"]),
        (
            HEAD + AXIS + 'name = "status"\n',
            ["axis.0: cannot be called status, as a column of the ledger is"],
        ),
        (HEAD + AXIS + AXIS, ["study.toml: axis: two are called 'policy.k'"]),
        (
            HEAD + AXIS.replace("policy.k", "policy.kk"),
            ["policy.kk = 2, seed 0 and 1 more: policy.kk: unknown key"],
        ),
        (
            HEAD + AXIS.replace("3]", "300]"),
            ["study.toml: policy.k = 300, seed 0: there are only 6 sites"],
        ),
        (HEAD + VARIANTS % "lr = 3", ["study.toml: b, seed 0: lr: unknown key"]),
        (HEAD + VARIANTS % "label = 'a'", ["not valid TOML"]),
        (HEAD + VARIANTS.replace('"b"', '"a"') % "policy.k = 3", ["axis.0: has the label 'a' twice"]),
        (
            HEAD + VARIANTS.replace("policy.k = 2", "small = false") % "small = false",
            ["axis.0: has no variant in the small form: leave out small = false of one"],
        ),
        (
            HEAD + VARIANTS % "small = true",
            ["axis.0.variants.1.small = True: must be a table, or must be False"],
        ),
        (
            HEAD + VARIANTS % "policy.k = 2",
            ["'b': is the same run as 'a': no key that can change a result differs"],
        ),
        (HEAD + VARIANTS % "inputs = ['c.toml']", ["c.toml: no such file"]),
        (
            HEAD
            + VARIANTS % "policy.k = 3"
            + '[[axis]]\nname = "reading"\nvariants = [{label = "c"}, {label = "log", among = ["A"]}]\n',
            ["among of 'log': no other axis has a variant 'A'; known: a, b"],
        ),
        (
            HEAD + VARIANTS % f"policy.k = 2, power = {{kind = 'trace', path = '{__file__}'}}",
            ["b, seed 0", "test_wrong_studies.py", "not a CSV file"],
        ),
        (HEAD + AXIS + "[[figure]]\nname = 'fig9'\n", ["no figure is called 'fig9'"]),
        (
            HEAD + AXIS + "[[figure]]\nname = 'policies'\ntarget = 3\n",
            ["target: '3' is not a fraction"],
        ),
        (HEAD + AXIS + "[[figure]]\nname = 'policies'\nlabel = 3\n", ["has no option 'label'"]),
        (
            HEAD + AXIS + "[[figure]]\nname = 'summary'\n",
            ["summary is drawn of results files, a picture each"],
        ),
        ("name = 'x'\nstudies = ['study.toml']\n", ["includes itself"]),
        ("name = 'x'\nseeds = [1]\nstudies = ['a.toml']\n", ["so it has no seeds of its own"]),
        ("name = 'runs'\ninputs = ['base.toml']\n" + AXIS, ["is a folder that all studies share"]),
        (HEAD + AXIS + "[small]\nseeds = []\n", ["small.seeds = []: must not be empty"]),
    ],
)
def test_a_wrong_grid_is_reported_before_anything_is_trained(text, fragments, wrong, tmp_path):
    ended = wrong(text)
    assert ended.code == 2 and len(ended.report) == len(ended.err.splitlines()) <= 2, ended.err
    for fragment in fragments:
        assert fragment in ended.err
    assert not (tmp_path / "out").exists()


def test_a_variant_is_combined_with_the_labels_that_it_names(wrong):
    among = 'variants = [{label = "c"}, {label = "d", train.lr = 0.1, among = ["a"]}]\n'
    listed = wrong(
        HEAD + "seeds = [1]\n" + VARIANTS % "policy.k = 3" + f'[[axis]]\nname = "e"\n{among}', do="status"
    )
    names = [line.split("  ")[-1].strip() for line in listed.out.splitlines()[:-1]]
    assert names == ["a, c, seed 1", "a, d, seed 1", "b, c, seed 1"], listed.err


def test_all_faults_of_a_grid_are_one_report(wrong):
    text = HEAD + AXIS.replace("3]", "'three', 300]")
    wrong(text).check_refused(["policy.k = three, seed 0", "policy.k = 300, seed 0"], lines=2)


def test_of_many_faults_the_first_few_are_reported_and_the_others_counted(wrong):
    values = ", ".join(str(300 + n) for n in range(40))
    ended = wrong(HEAD + AXIS.replace("2, 3]", f"{values}]"))
    assert ended.code == 2 and len(ended.report) == 6
    assert "study.toml: policy.k = 304, seed 0: there are only 6 sites" in ended.report[4]
    assert ended.report[5].endswith("study.toml: more faults: 35")


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["-o", "policy.kk=3"], ["policy.kk: unknown key"]),
        (["-o", "seed=9..0"], ["-o seed=9..0: must rise", "; e.g. -o policy.k=10,20 or -o seed=0..9"]),
        (["--sweep", "policy.k=2,,3"], ["--sweep policy.k=2,,3: has an empty value"]),
        (["--sweep", "policy.k"], ["--sweep policy.k: not of the form key=value"]),
        (
            ["--sweep", "policy=powertrip,static", "--sweep", "policy.k=2"],
            [
                "policy.k: unknown key; for keys of one kind: "
                """--sweep 'policy={kind="random",k=2},{kind="powertrip"}', or a study's variants; kinds with it"""
            ],
        ),
        (
            ["--sweep", "policy={kind=3},{kind='all'}"],
            ["policy = 3, seed 4", "unknown policy"],
        ),
        (["-o", "train.lr"], ["-o train.lr: not of the form key=value"]),
        (["--sweep", "seed=a,b"], ["--sweep seed=a,b: names no seeds; e.g. --sweep"]),
        (["--only", "k = 7"], ["--only k = 7: no run has such a name; the first is 'policy.k = 2, seed 4'"]),
        (["--import", "none.csv"], ["none.csv: no such file"]),
    ],
)
def test_a_wrong_command_is_reported_in_one_line(arguments, fragments, wrong):
    ended = wrong(STUDY, *arguments)
    assert ended.code == 2, ended.out
    for fragment in fragments:
        assert fragment in ended.err


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("".join(AXIS.replace("policy.k", f"a.b{i}").replace("[2, 3]", str([*range(10)])) for i in range(12)),
         "2000000000000 runs"),
        ("".join(f'[[axis]]\nname = "a{i}"\nvariants = [{{label = "{i}"}}, {{label = "{i} x"}}]\n' for i in range(40))
         + '[[axis]]\nname = "z"\nvariants = [{label = "z", among = ["0"]}]\n',
         "2199023255552 runs less what `among` leaves out"),
        (f"[[axis]]\nkey = 'policy.k'\nvalues = {[*range(7000)]}\n", "14000 runs"),
    ],
    ids=["twelve axes", "axes of which some are left out", "one axis and its seeds"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_grid_without_end_is_refused_before_it_is_made(text, number, wrong):
    """Listing any of these would take hours and all memory."""
    ended = wrong(HEAD + "seeds = [1, 2]\n" + text)
    ended.check_refused([number, "10,000 are the most; give fewer values or seeds"])


def test_a_sweep_without_end_is_refused_before_it_is_made(hpctrip, tiny):
    axes = ("seed=0..9999", "policy.k=0..9999", "train.batch_size=1..9999")
    lines = [word for axis in axes for word in ("--sweep", axis)]
    hpctrip("run", tiny, *lines).check_refused(["999900000000 runs, 10,000 are the most"])


def test_variants_that_go_with_few_of_many_are_no_large_grid(wrong):
    """Of 300 combinations with each of 300 variants one is left, so the grid is small."""
    labels = [f"of {i}" for i in range(300)]
    first = ", ".join(f'{{label = "{label}"}}' for label in labels)
    second = ", ".join(f'{{label = "x{i}", among = ["{label}"]}}' for i, label in enumerate(labels))
    text = f'[[axis]]\nname = "a"\nvariants = [{first}]\n[[axis]]\nname = "b"\nvariants = [{second}]\n'
    ended = wrong(HEAD + "seeds = [1]\n" + text)
    ended.check_refused(["of 0, x0, seed 1 and 299 more: policy.k = 70: there are only 6 sites"])


def test_an_unknown_study_names_those_that_come_with_hpctrip(folder, hpctrip):
    hpctrip("study", "fig9").check_refused(["fig9: no such study file; did you mean 'fig09'?"])
    (folder / "four.toml").touch()
    hpctrip("study", "fourr.toml").check_refused(["no such study file; did you mean 'four.toml'?"])
    assert hpctrip("study").out.count("Fig. 9") >= 1


@pytest.mark.parametrize(
    ("line", "axes"),
    [
        ("policy.k=10,1e3", {"policy.k": ["10", "1e3"]}),
        ("policy.kind=static, random", {"policy.kind": ["static", "random"]}),
        ("radius=1 mi,2 mi", {"radius": ["1 mi", "2 mi"]}),
        ("power.path=../a.csv,b..c.csv", {"power.path": ["../a.csv", "b..c.csv"]}),
        ("seed=0..2,7,1e2", {"seed": [0, 1, 2, 7, 100]}),
        ("label='a,b','c'", {"label": ["a,b", "c"]}),
        ("words=[1,2],[3]", {"words": [[1, 2], [3]]}),
        ("server={a = 1, b = 2}, {a = 3}", {"server": [{"a": 1, "b": 2}, {"a": 3}]}),
    ],
)
def test_the_values_of_an_axis_are_toml_or_ranges_or_as_they_are_written(line, axes):
    assert axes_of([line], "--sweep") == axes


def test_of_two_lines_with_one_key_the_last_counts():
    assert axes_of(["policy.k=2,3", "policy.k=4"], "--sweep") == {"policy.k": ["4"]}
    with pytest.raises(InputError, match="name 10,000 numbers at most"):
        axes_of(["seed=0..99999"], "--sweep")


def test_a_sweep_is_a_folder_and_overwrites_nothing(hpctrip, tiny, tmp_path):
    lines = ["-o", "policy.kind=static", "--sweep", "policy.k=2,3"]
    hpctrip("run", tiny, *lines, "--out", tmp_path / "a.h5").check_refused(
        ["is one file, and a sweep makes several"]
    )
    hpctrip("run", tiny, *lines, "--overwrite", "--out", tmp_path).check_refused(
        ["--overwrite: a sweep keeps each"]
    )
    hpctrip("run", tiny, *lines, "--sweep", "policy.k=2,x").check_refused(
        ["policy.k = x: policy.k = 'x': must be"]
    )
    hpctrip("run", tiny, "-o", "policy.kind=static", "-o", "policy.k=2,3").check_refused(
        ["policy.k = '2,3': must be", "for several values: --sweep policy.k=2,3"]
    )


def test_a_comma_that_a_key_takes_is_no_sweep(hpctrip, tiny, tmp_path):
    out = tmp_path / "a.h5"
    ended = hpctrip("run", tiny, "-o", "label=static, k = 2", "-o", "stop.max_rounds=1", "--out", out)
    assert ended.code == 0 and out.exists()


def test_a_study_without_a_small_form_is_not_made_in_full_instead(wrong):
    ended = wrong(HEAD + AXIS, "--small", do="status")
    ended.check_refused(["study.toml: --small: this study has no small form", "[small]"])


@pytest.mark.parametrize(
    "text",
    [
        HEAD + AXIS + "small = [2]\n",
        HEAD + VARIANTS % "policy.k = 3, small.policy.k = 4",
        HEAD + VARIANTS % "policy.k = 3, small = false",
        HEAD + AXIS + "[small]\nseeds = [1]\n",
        HEAD + AXIS + "[small]\nstop.max_rounds = 2\n",
    ],
    ids=["axis", "variant", "variant left out", "seeds", "tables"],
)
def test_a_small_form_is_any_change(wrong, text):
    ended = wrong(text, "--small", do="status")
    assert ended.code == 0, ended.err


def test_a_small_form_may_do_without_a_variant(wrong):
    text = HEAD + "seeds = [0]\n" + VARIANTS % "policy.k = 3, small = false"
    full, small = wrong(text, do="status"), wrong(text, "--small", do="status")
    assert ("a, seed 0" in full.out, "b, seed 0" in full.out) == (True, True)
    assert ("a, seed 0" in small.out, "b, seed 0" in small.out) == (True, False)


def test_an_output_of_one_run_is_refused_for_several(wrong):
    lines = ["-o", "callbacks.jsonl.path=rounds.jsonl", "-o", "policy.k=2"]
    wrong(STUDY, *lines).check_refused(
        ["policy.k = 2, seed 5: callbacks.jsonl.path: names one output, rounds.jsonl, for several runs"]
    )
    assert wrong(STUDY, *lines, "-o", "seed=4", do="status").code == 0
