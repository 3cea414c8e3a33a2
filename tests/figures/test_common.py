"""Time-to-accuracy of runs, and which runs belong together."""

from dataclasses import replace

import pytest

from hpctrip.base.errors import InputError
from hpctrip.figures.common import grouping, reading, style


@pytest.fixture
def groups(make_run):
    """The groups of runs, each given by its policy and other arguments of `make_run`."""

    def group(*runs):
        paths = [make_run(f"r{i}", policy, **settings) for i, (policy, settings) in enumerate(runs)]
        return grouping.grouped(reading.read_runs(paths))

    return group


def test_the_times_of_runs_are_in_hours_and_in_the_order_of_their_seeds(make_run):
    runs = reading.read_runs([make_run("b", seed=1, accuracy=(0.1, 0.2, 0.3), hours=2.0), make_run("a")])
    times = grouping.times_of(runs, 0.45)
    assert (times.seeds, times.spent_h.tolist(), times.arrived.tolist()) == ((0, 1), [3, 6], [True, False])
    assert times.accuracies.tolist() == [0.5, 0.3]


STATIC = {"policy_keys": {"k": 2}}


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([("static", {"seed": 0, **STATIC}), ("static", {"seed": 1, **STATIC})], ["static k = 2"]),
        # keys that tell runs of a policy apart; numbers that only rounding makes equal
        (
            [("powertrip", {"update_bytes": 1e9}), ("powertrip", {"update_bytes": 1e9 + 1})],
            ["powertrip network.update_bytes = 1e+09", "powertrip network.update_bytes = 1000000001.0"],
        ),
        (
            [("powertrip", {"seed": i, "tables": {"engine": {"precision": f"float{i}"}}}) for i in (16, 32)],
            ["powertrip engine.precision = float16", "powertrip engine.precision = float32"],
        ),
        # what follows from the policy is not repeated
        (
            [
                ("centralized", {"policy_keys": {"power_fraction": p}, "power_fraction": p})
                for p in (0.25, 0.5)
            ],
            ["centralized power_fraction = 0.25", "centralized power_fraction = 0.5"],
        ),
        # a label of its own; one label for two configurations of two seeds
        ([("powertrip", {"label": "PowerTrip, 1 GB"})], ["PowerTrip, 1 GB"]),
        (
            [
                ("static", {"label": "static-70", "update_bytes": m * 1e9, "seed": seed})
                for m in (1, 2)
                for seed in (0, 1)
            ],
            ["static-70 network.update_bytes = 1e+09", "static-70 network.update_bytes = 2e+09"],
        ),
        # of one label and several policies: keys that only one of them has are told by its kind
        (
            [
                ("random", {"label": "x", "policy_keys": {"k": k, "own": 1, "some": some}})
                for k, some in ((2, None), (3, None), (3, 4))
            ]
            + [("oort", {"label": "x", "policy_keys": {"k": 3, "cutoff": 1, "by": {"kind": "time"}}})],
            [
                "x k = 2, kind = random",
                "x k = 3, kind = random",
                "x k = 3, kind = random, some = 4",
                "x k = 3, kind = oort",
            ],
        ),
        # neither a terminal obeys a label, nor does a legend hide it
        ([("powertrip", {"label": "__a\x1b[31m\nb$x^2$"})], [r"a\x1b[31m\nb$x^2$"]),
        # where a run was made, keys that change no result, and stop rules
        ([("powertrip", {"seed": n, "ranks": n}) for n in (1, 3)], ["powertrip"]),
        (
            [
                ("all", {"seed": n, "tables": {"watchdog": {"limit_s": n + 1.0}, "stop": {"max_rounds": n}}})
                for n in (1, 2)
            ],
            ["all"],
        ),
    ],
)
def test_a_group_is_a_configuration_and_is_called_by_what_tells_it_apart(groups, runs, labels):
    found = groups(*runs)
    assert [group.label for group in found] == labels
    assert {len(group.runs) for group in found} == {len(runs) // len(labels)}


def test_the_same_seed_twice_is_refused(groups):
    with pytest.raises(InputError, match=r"r1\.h5: is powertrip with seed 0, and so is .*r0\.h5"):
        groups(("powertrip", {}), ("powertrip", {}))


def test_runs_with_different_targets_need_one_named(make_run):
    runs = reading.read_runs([make_run("a"), make_run("b", target=0.3)])
    with pytest.raises(InputError, match=r"no common target accuracy \(0.3, 0.45\); name one with --target"):
        reading.common_target(runs, None)
    assert reading.common_target(runs, 0.4) == 0.4


def test_many_settings_in_which_runs_differ_are_one_line(make_run, capsys):
    alike, other = ({f"key{number}": value for number in range(6)} for value in (1, 2))
    runs = reading.read_runs([make_run("a", tables={"train": alike}), make_run("b", tables={"train": other})])
    assert (
        grouping.warn_of_differences(grouping.grouped(runs)) == "not alike in train.key0, train.key1, 4 more"
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "warning: not alike in 6 keys, such as train.key0, train.key1, train.key2, train.key3; "
    )


def test_only_settings_beside_the_policy_are_warned_of(groups, capsys):
    assert grouping.warn_of_differences(groups(("powertrip", {}), ("static", STATIC))) == ""
    assert capsys.readouterr().err == ""
    unlike = groups(("powertrip", {}), ("random", {"update_bytes": 1e9}))
    assert grouping.warn_of_differences(unlike) == "not alike in network.update_bytes"
    assert capsys.readouterr().err == (
        "warning: not alike in network.update_bytes: 1.5e+09 (powertrip) | 1e+09 (random)\n"
    )


def test_synthetic_data_is_called_so_and_of_power_its_file_is_named(make_run):
    runs = reading.read_runs([make_run("a"), make_run("b", synthetic=False)])
    half = "synthetic data in 1 of 2 runs, synthetic power in 1 of 2 runs; simulated time"
    assert reading.provenance(runs) == half
    assert reading.provenance(runs[1:]) == "real data, power of constant; simulated time"
    own = [
        replace(runs[1], input=runs[1].input | {"power": {"kind": "csv", "path": f"data/{name}.csv"}})
        for name in ("may", "june")
    ]
    assert reading.provenance(own[:1]) == "real data, power of may.csv; simulated time"
    assert reading.provenance([*own, own[0]]) == "real data, power of 2 files; simulated time"


def test_more_configurations_than_anyone_can_look_at_are_refused(make_run):
    runs = reading.read_runs([make_run(f"k{k}", "static", policy_keys={"k": k}) for k in (1, 2, 3)])
    assert len(grouping.grouped(runs, 3)) == 3
    with pytest.raises(InputError, match="are of 3 configurations, 2 at most are drawn"):
        grouping.grouped(runs, 2)


def test_the_number_of_seeds_is_never_cut_off_a_long_name():
    name = style.counted_name("a name that goes on and on " * 9, 12, 20)
    assert name.endswith("(n = 12)") and len(name.splitlines()) == 4
    assert style.counted_name("short", 1, 20) == "short (n = 1)"


@pytest.mark.parametrize(
    ("text", "letters", "lines"),
    [
        ("update of 1.5 GB", 14, ["update of", "1.5 GB"]),
        ("at least 45 % of all", 12, ["at least", "45 % of all"]),
        ("simulated time; n = 4", 17, ["simulated time;", "n = 4"]),
        ("static 70 (n = 5)", 10, ["static 70", "(n = 5)"]),
    ],
)
def test_lines_do_not_part_a_number_from_what_it_counts(text, letters, lines):
    assert style.wrapped(text, letters).splitlines() == lines
