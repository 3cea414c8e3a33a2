"""Time-to-accuracy of runs, and which runs belong together."""

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import grouping, reading, style


def test_time_to_accuracy_is_the_end_of_the_first_evaluated_round_at_the_target(make_run):
    (run,) = reading.read_runs([make_run("a", k=(1, 1, 1, 1), accuracy=(0.1, np.nan, 0.5, 0.4))])
    assert run.time_to(0.5) == 3 * HOUR_S
    assert run.time_to(0.1) == 1 * HOUR_S
    assert np.isnan(run.time_to(0.51))


def test_the_times_of_runs_are_in_hours_and_in_the_order_of_their_seeds(make_run):
    runs = reading.read_runs([make_run("b", seed=1, accuracy=(0.1, 0.2, 0.3), hours=2.0), make_run("a")])
    times = grouping.times_of(runs, 0.45)
    assert (times.seeds, times.spent_h.tolist(), times.arrived.tolist()) == ((0, 1), [3, 6], [True, False])
    assert times.accuracies.tolist() == [0.5, 0.3]


def test_seeds_of_one_configuration_are_one_group_and_k_is_named(make_run):
    paths = [
        make_run("a", "static", seed=0, policy_keys={"k": 2}),
        make_run("b", "static", seed=1, policy_keys={"k": 2}),
    ]
    (group,) = grouping.grouped(reading.read_runs(paths))
    assert group.label == "static k = 2" and len(group.runs) == 2


def test_keys_that_tell_runs_of_a_policy_apart_are_in_the_label(make_run):
    near = make_run("near", update_bytes=1e9)
    far = make_run("far", update_bytes=2e9)
    labels = [group.label for group in grouping.grouped(reading.read_runs([near, far]))]
    assert labels == ["powertrip network.update_bytes = 1e+09", "powertrip network.update_bytes = 2e+09"]


def test_what_follows_from_the_policy_is_not_repeated_in_the_label(make_run):
    quarter = make_run("c25", "centralized", policy_keys={"power_fraction": 0.25}, power_fraction=0.25)
    half = make_run("c50", "centralized", policy_keys={"power_fraction": 0.5}, power_fraction=0.5)
    labels = [group.label for group in grouping.grouped(reading.read_runs([quarter, half]))]
    assert labels == ["centralized power_fraction = 0.25", "centralized power_fraction = 0.5"]


def test_a_run_with_a_label_of_its_own_keeps_it(make_run):
    (group,) = grouping.grouped(reading.read_runs([make_run("a", label="PowerTrip, 1 GB")]))
    assert group.label == "PowerTrip, 1 GB"


def test_where_a_run_was_made_does_not_make_another_configuration(make_run):
    one, three = make_run("n1", seed=0, ranks=1), make_run("n3", seed=1, ranks=3)
    assert len(grouping.grouped(reading.read_runs([one, three]))) == 1


def test_the_same_seed_twice_is_refused(make_run):
    runs = reading.read_runs([make_run("a"), make_run("b")])
    with pytest.raises(InputError, match=r"b\.h5: is powertrip with seed 0, and so is .*a\.h5"):
        grouping.grouped(runs)


def test_one_label_for_two_configurations_is_two_groups_told_apart_by_what_differs(make_run):
    paths = [
        make_run(f"m{m}s{seed}", label="static-70", update_bytes=m * 1e9, seed=seed)
        for m in (1, 2)
        for seed in (0, 1)
    ]
    groups = grouping.grouped(reading.read_runs(paths))
    assert [group.label for group in groups] == [
        "static-70 network.update_bytes = 1e+09",
        "static-70 network.update_bytes = 2e+09",
    ]
    assert [len(group.runs) for group in groups] == [2, 2]


def test_seeds_of_another_precision_are_a_group_of_their_own(make_run):
    paths = [
        make_run(p, seed=seed, tables={"engine": {"precision": p}})
        for seed, p in enumerate(("float32", "bfloat16"))
    ]
    labels = [group.label for group in grouping.grouped(reading.read_runs(paths))]
    assert labels == ["powertrip engine.precision = float32", "powertrip engine.precision = bfloat16"]


def test_keys_that_change_no_result_and_stop_rules_make_no_group(make_run):
    paths = [
        make_run(f"w{n}", seed=n, tables={"watchdog": {"limit_s": n + 1.0}, "stop": {"max_rounds": n + 3}})
        for n in range(3)
    ]
    assert len(grouping.grouped(reading.read_runs(paths))) == 1


def test_numbers_that_only_rounding_makes_equal_are_told_apart_in_labels(make_run):
    paths = [make_run(f"m{m}", update_bytes=1e9 + m) for m in (0, 1)]
    labels = [group.label for group in grouping.grouped(reading.read_runs(paths))]
    assert labels == [
        "powertrip network.update_bytes = 1e+09",
        "powertrip network.update_bytes = 1000000001.0",
    ]


def test_runs_with_different_targets_need_one_named(make_run):
    runs = reading.read_runs([make_run("a"), make_run("b", target=0.3)])
    with pytest.raises(InputError, match=r"no common target accuracy \(0.3, 0.45\); name one with --target"):
        reading.common_target(runs, None)
    assert reading.common_target(runs, 0.4) == 0.4


def test_only_settings_beside_the_policy_are_warned_of(make_run, capsys):
    alike = grouping.grouped(
        reading.read_runs([make_run("a"), make_run("b", "static", policy_keys={"k": 2})])
    )
    assert grouping.warn_of_differences(alike) == "" and capsys.readouterr().err == ""
    unlike = grouping.grouped(reading.read_runs([make_run("a"), make_run("c", "random", update_bytes=1e9)]))
    assert grouping.warn_of_differences(unlike) == "not alike in network.update_bytes"
    assert capsys.readouterr().err == (
        "warning: not alike in network.update_bytes: 1.5e+09 (powertrip) | 1e+09 (random)\n"
    )


def test_synthetic_data_is_called_so(make_run):
    runs = reading.read_runs([make_run("a"), make_run("b", synthetic=False)])
    assert (
        reading.provenance(runs)
        == "synthetic data in 1 of 2 runs, synthetic power in 1 of 2 runs; simulated time"
    )
    assert reading.provenance(runs[1:]) == "real data, real power; simulated time"


def test_a_label_is_one_line_without_what_a_terminal_obeys_nor_what_hides_it_from_a_legend(make_run):
    (group,) = grouping.grouped(reading.read_runs([make_run("a", label="__a\x1b[31m\nb$x^2$")]))
    assert group.label == r"a\x1b[31m\nb$x^2$"


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
    ("said", "letters", "lines"),
    [
        ("update of 1.5 GB", 14, ["update of", "1.5 GB"]),
        ("at least 45 % of all", 12, ["at least", "45 % of all"]),
        ("simulated time; n = 4", 17, ["simulated time;", "n = 4"]),
        ("static 70 (n = 5)", 10, ["static 70", "(n = 5)"]),
    ],
)
def test_lines_do_not_part_a_number_from_what_it_counts(said, letters, lines):
    assert style.wrapped(said, letters).splitlines() == lines
