"""The policies that use the losses of training, on histories whose every number is known."""

from dataclasses import replace

import numpy as np
import pytest
from worlds import played
from worlds import world as build_world

from hpctrip.base.rng import stream
from hpctrip.sim.energy import Accounts
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.base import Decision
from hpctrip.sim.rounds import History, LastSeen, RoundRow
from hpctrip.sim.step import State

RNG = np.random.default_rng


@pytest.fixture
def past_rounds(history):
    """`past_rounds(({site: loss}, signal, noise), ...)`: one round for each, in which these sites trained."""

    def build(*rounds):
        rows = []
        plain = history(*[(len(losses), 0, None) for losses, _, _ in rounds])
        for (losses, signal, noise), row in zip(rounds, plain.rows, strict=True):
            cohort = replace(
                row.cohort,
                site=np.array(list(losses)),
                train_loss=np.array(list(losses.values()), dtype=float),
            )
            rows.append(replace(row, cohort=cohort, update_signal=signal, update_noise=noise))
        return History(tuple(rows))

    return build


def select(kind, sites, past=None, seed=0, **fields):
    past = past or History()
    return POLICIES[kind](**fields).select(sites, past, stream(seed, "policy", 1 + len(past)))


def test_experience_is_that_of_the_last_time_that_a_site_trained(past_rounds):
    past = past_rounds(({0: 9.0, 1: 8.0}, 1.0, 1.0), ({1: 5.0, 3: 4.0}, 1.0, 1.0), ({3: 2.0}, 1.0, 1.0))
    last_seen = LastSeen.of(past, 5)
    assert last_seen.age.tolist() == [2, 1, 3, 0, 3]
    assert np.array_equal(last_seen.loss, [9, 5, np.nan, 2, np.nan], equal_nan=True)
    assert last_seen.seen.tolist() == [True, True, False, True, False]


@pytest.mark.parametrize("kind", ["oort", "fedzero", "power-of-choice", "goodput"])
def test_a_decision_reads_the_newest_round_alone_and_is_that_of_the_whole_history(
    simulation, monkeypatch, kind
):
    world = build_world(40, accounts=Accounts(site_max_energy="1 GWh"))
    run = simulation(world, policy=POLICIES[kind](**{} if kind == "goodput" else {"k": 3}))
    state = played(run, 100)
    read = set()

    def counted(row, name):
        value = object.__getattribute__(row, name)
        if name == "cohort":
            read.add(row.round)
        return value

    monkeypatch.setattr(RoundRow, "__getattribute__", counted)
    cohort = run.begin(state).cohort
    assert read <= {100}
    assert (run.begin(replace(state, history=History(state.history.rows))).cohort == cohort).all()
    assert len(read) == 100


# goodput


def test_goodput_takes_everybody_who_is_back_within_the_deadline_of_the_best_gain_per_second(view):
    """Two sites after 10 s, four after 11 s, one after 100 s: with nu = 5 and a weight of 1, worth counted alone."""
    sites = view(np.ones(7), [9, 9, 10, 10, 10, 10, 99], work_s=np.ones(7))
    decision = select("goodput", sites, noise_weight=1.0)
    k = np.arange(2, 8)
    gain = 1 / (1 + 5 * (7 - k) / 6 / k)
    assert decision.candidates.k.tolist() == k.tolist() and decision.candidates.gain == pytest.approx(gain)
    assert decision.candidates.round_s == pytest.approx([10, 11, 11, 11, 11, 100])
    assert decision.cohort.tolist() == [0, 1, 2, 3, 4, 5]


def test_goodput_takes_more_sites_the_noisier_their_updates_are(view, past_rounds):
    sites, trained = view(np.ones(40), np.linspace(5, 60, 40)), dict.fromkeys(range(20), 1.0)
    pasts = [past_rounds((trained, 1.0, nu)) for nu in (0.0, 3.0, 30.0, 1e3)]
    sizes = [len(select("goodput", sites, past, coverage=0.0).cohort) for past in pasts]
    assert sizes == sorted(sizes) and sizes[0] == 2 and sizes[-1] > 2 * sizes[1]
    blind = [
        select("goodput", sites, past_rounds((trained, 1.0, nu)), measured=False).cohort for nu in (0.0, 1e3)
    ]
    assert blind[0].tolist() == blind[1].tolist()


def test_goodput_grows_no_faster_than_it_may_and_all_at_once_where_no_signal_is_left(view, past_rounds):
    sites = view(np.ones(40), np.linspace(5, 60, 40))
    past = past_rounds(({0: 1.0, 1: 1.0, 2: 1.0}, -1.0, 4.0))
    assert len(select("goodput", sites, past).cohort) == 6
    assert len(select("goodput", sites, past, growth=100.0, coverage=0.0).cohort) == 40


def test_goodput_gives_a_noisy_cohort_less_where_progress_falls_exponentially(view, past_rounds):
    sites, keys = (
        view(np.ones(40), np.linspace(5, 60, 40)),
        {"coverage": 0.0, "growth": 100.0, "measured": False},
    )
    past = past_rounds((dict.fromkeys(range(3), 1.0), 1.0, 0.0))

    def chosen(nu: float, **more: str) -> Decision:
        return select("goodput", sites, past, initial_noise=nu, noise_weight=1.0, **keys, **more)

    inverse, steep = chosen(30.0), chosen(30.0, progress="exponential")
    noise = 1 / inverse.candidates.gain - 1
    np.testing.assert_allclose(steep.candidates.gain, np.exp(-noise), rtol=1e-12)
    assert len(steep.cohort) > len(inverse.cohort)
    assert (
        len(chosen(1e6, progress="exponential").cohort) == 40
    )  # nothing but everybody, and no 0 among the gains


def test_goodput_waits_longer_for_a_site_that_has_not_trained_for_long(view, past_rounds):
    """Five of twelve sites are near, one is back a little later. After ten rounds without it, it counts for more."""
    sites = view(np.ones(12), [9] * 5 + [11] + [99] * 6, work_s=np.ones(12))
    near = dict.fromkeys(range(5), 1.0)
    past = past_rounds(*[(near, 1.0, 6.0)] * 10)
    assert 5 not in select("goodput", sites, past, coverage=0.0, noise_weight=0.5).cohort
    assert 5 in select("goodput", sites, past, coverage=3.0, noise_weight=0.5).cohort


def test_goodput_waits_for_sites_with_more_to_do_as_theirs_are_longer_steps(view):
    """Four sites are back after 10 s of little work, four after 20 s of five times as much."""
    sites = view(np.ones(8), [8] * 4 + [10] * 4, work_s=np.array([2.0] * 4 + [10.0] * 4))
    decision = select("goodput", sites, noise_weight=1.0)
    k = np.arange(2, 9)
    step = np.array([2, 2, 2, 18 / 5, 28 / 6, 38 / 7, 48 / 8]) / 6
    assert decision.candidates.gain == pytest.approx(step / (1 + 5 * (8 - k) / 7 / k))
    assert len(decision.cohort) == 8
    assert len(select("goodput", sites, noise_weight=1.0, weigh_work=False).cohort) == 4
    idle = view(np.ones(8), [8] * 4 + [10] * 4, work_s=np.zeros(8))
    assert np.isfinite(select("goodput", idle).candidates.gain).all()


def test_goodput_asks_nobody_without_power_while_others_have_some(view, past_rounds):
    sites = view([1, 1, 0, 1, 0], [1, 2, 1, 3, 1])
    past = past_rounds((dict.fromkeys(range(5), 1.0), -1.0, 5.0))
    assert sorted(select("goodput", sites, past).cohort.tolist()) == [0, 1, 3]
    assert len(select("goodput", view([0, 0], [1, 1])).cohort) == 1


# the field's selectors


def test_fedcs_takes_as_many_as_keep_the_deadline_and_never_nobody(view):
    sites = view(np.ones(4), [30, 10, 50, 20], work_s=np.full(4, 5.0))
    assert select("fedcs", sites, deadline_s=36.0).cohort.tolist() == [1, 3, 0]
    assert select("fedcs", sites, deadline_s=1.0).cohort.tolist() == [1]
    # three transfers take 36 s of the link, and the last has 5 s of work before
    shared = replace(sites, link_s=12.0)
    assert select("fedcs", shared, deadline_s=36.0).cohort.tolist() == [1, 3]
    assert len(select("fedcs", sites, deadline_s=900.0, fraction=0.5).cohort) == 2
    # the round itself ends after 30 s
    assert select("fedcs", replace(shared, deadline_s=30.0), deadline_s=36.0).cohort.tolist() == [1, 3]


def test_goodput_weighs_no_cohort_of_which_a_site_would_be_late(view):
    sites = view(np.ones(4), np.full(4, 5.0), link_s=9.0, deadline_s=30.0)
    decision = select("goodput", sites, growth=9.0)
    assert decision.candidates.k.tolist() == [2] and decision.candidates.round_s.tolist() == [28.0]


def test_power_of_choice_takes_the_largest_losses_of_those_it_draws_and_the_unknown_first(view, past_rounds):
    sites, past = view(np.ones(5), np.ones(5)), past_rounds(({0: 1.0, 1: 3.0, 2: 2.0, 3: 0.5}, 1.0, 1.0))
    assert select("power-of-choice", sites, past, k=3, candidates=5).cohort.tolist() == [4, 1, 2]
    picked = [
        select("power-of-choice", sites, past, seed, k=1, candidates=2).cohort[0] for seed in range(200)
    ]
    assert set(picked) == {4, 1, 2, 0}  # site 3 is never the larger of two


def test_tifl_draws_a_tier_of_one_speed_as_long_as_its_credits_last(view, past_rounds):
    sites = view(np.ones(6), [1, 2, 30, 31, 90, 91])
    drawn = [tuple(sorted(select("tifl", sites, seed=s, k=2, tiers=3).cohort)) for s in range(60)]
    assert set(drawn) == {(0, 1), (2, 3), (4, 5)}
    past = past_rounds(({2: 9.0, 3: 9.0}, 1.0, 1.0), ({4: 9.0, 5: 9.0}, 1.0, 1.0))
    spent = [sorted(select("tifl", sites, past, s, k=2, tiers=3, credits=1).cohort) for s in range(20)]
    assert all(cohort == [0, 1] for cohort in spent)
    past = past_rounds(*[({4: 9.0, 5: 9.0}, 1.0, 1.0)] * 2, ({2: 9.0, 3: 9.0}, 1.0, 1.0))
    drawn = [tuple(sorted(select("tifl", sites, past, s, k=2, tiers=3, credits=4).cohort)) for s in range(60)]
    assert set(drawn) == {(0, 1), (2, 3)}  # four rounds for the second tier, two for the third


@pytest.mark.parametrize(("interval", "share"), [(1, 2 / 3), (2, 1 / 2)])
def test_tifl_prefers_the_tier_that_does_worst_once_an_interval_is_over(view, past_rounds, interval, share):
    sites = view(np.ones(4), [1, 2, 30, 31])
    past = past_rounds((dict(enumerate([1.0, 1.0, 7.0, 7.0])), 1.0, 1.0))
    slow = [3 in select("tifl", sites, past, s, k=2, tiers=2, interval=interval).cohort for s in range(300)]
    assert np.mean(slow) == pytest.approx(share, abs=0.1)


CHOOSERS = {
    "goodput": {},
    "tifl": {"k": 3, "tiers": 1},
    **{kind: {"k": 3} for kind in ("oort", "power-of-choice", "fedzero", "first-back")},
}


@pytest.mark.parametrize("kind", CHOOSERS)
@pytest.mark.parametrize("why", ["no power", "too late", "too late by the link"])
def test_who_cannot_be_back_comes_last(kind, why, view, past_rounds):
    """Sites 0 and 3 have no power, or would miss the deadline, alone or because three sites share the aggregator's link
    for 84 s; site 1 alone has trained."""
    power = [0, 1, 1, 0, 1] if why == "no power" else np.ones(5)
    sites = view(power, [95, 1, 2, 99, 3], deadline_s=100.0)
    if why.endswith("link"):
        sites = replace(sites, comm_s=np.ones(5), link_s=28.0, work_s=np.array([17.0, 10, 11, 90, 12]))
    for seed in range(20):
        cohort = select(kind, sites, past_rounds(({1: 1.0}, 1.0, 1.0)), seed, **CHOOSERS[kind])
        assert set(cohort.cohort.tolist()) <= {1, 2, 4}


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_every_policy_asks_somebody_where_nobody_has_power(kind, view, past_rounds):
    fields = {"k": 2} if "k" in POLICIES[kind].model_fields else {}
    past = past_rounds(({0: 1.0, 1: 2.0}, 1.0, 1.0))
    assert len(select(kind, view(np.zeros(4), np.ones(4)), past, **fields).cohort)


def test_oort_explores_by_speed_first_and_exploits_large_losses_later(view, past_rounds):
    sites = view(np.ones(6), [1, 1, 1, 1, 1, 1000])
    first = [select("oort", sites, seed=s, k=2).cohort for s in range(100)]
    assert sum(5 in cohort for cohort in first) < 10
    losses = dict(enumerate([1.0, 8.0, 1.0, 7.9, 1.0, 8.0]))
    late = past_rounds(*[(losses, 1.0, 1.0)] * 100)
    for seed in range(20):  # all are known, and site 5 is too slow for its loss to matter
        assert sorted(select("oort", sites, late, seed, k=2, straggler_penalty=5.0).cohort) == [1, 3]


def test_oort_is_more_patient_once_rounds_bring_less(past_rounds):
    falling = past_rounds(*[({0: 9.0 - i}, 1.0, 1.0) for i in range(6)])
    rising = past_rounds(*[({0: 1.0 + i}, 1.0, 1.0) for i in range(6)])
    oort = POLICIES["oort"](pacer_rounds=2)
    assert oort._percentile(falling) == 30 + 2 * 10 and oort._percentile(rising) == 30


@pytest.mark.parametrize("kind", ["goodput", "oort", "fedcs", "power-of-choice", "tifl", "first-back"])
def test_a_selector_decides_after_rounds_in_which_nobody_arrived(kind, view, past_rounds):
    past = past_rounds(({1: 1.0, 0: 2.0}, np.nan, np.nan))
    lost = tuple(replace(row, cohort=replace(row.cohort, status=np.full(2, 3))) for row in past.rows)
    decision = select(kind, view(np.ones(12), np.ones(12)), History(lost))
    assert isinstance(decision, Decision) and len(decision.cohort)


# FedZero


def fedzero(view, power, past=None, seed=0, **keys):
    sites = view(power, np.ones(len(power)), g_per_kwh=np.arange(len(power), dtype=float))
    return select("fedzero", sites, past, seed, **{"k": 2, "step_s": 1.0} | keys).cohort.tolist()


def test_fedzero_takes_the_shortest_round_in_which_enough_sites_are_back(view):
    """10 s of work: 11 s, 21 s, 13.5 s and 51 s; in rounds of whole minutes all four are back in one."""
    power = [1.0, 0.5, 0.8, 0.2]
    assert sorted(fedzero(view, power)) == [0, 2]
    assert sorted(fedzero(view, power, k=3)) == [0, 1, 2]
    assert len(fedzero(view, power, step_s=60.0)) == 2


def test_fedzero_counts_clean_power_alone(view):
    """Sites have 0, 1, 2, ... g/kWh; who is too dirty is only taken where there are not enough others."""
    power = [0.1, 0.2, 1.0, 1.0]
    assert sorted(fedzero(view, power, max_g_per_kwh=1.0)) == [0, 1]
    assert sorted(fedzero(view, power, max_g_per_kwh=0.0)) == [0, 2]


def test_fedzero_lets_those_rest_who_trained(simulation):
    """Ten rounds of 20 of 200 equal sites: without fairness always the same 20, with a strong one they take turns. Who
    trained once is not above the mean by more than one and goes on; who trained twice rests."""
    rounds = simulation(policy=POLICIES["fedzero"](k=20, fairness=10.0))
    state = played(rounds, 10, 0.1)
    trained = np.unique(np.concatenate([row.cohort.site for row in state.history.rows]))
    assert 70 < len(trained) <= 100
    eager = simulation(policy=POLICIES["fedzero"](k=20, fairness=0.0))
    assert eager.begin(state).cohort.tolist() == list(range(20))


@pytest.mark.parametrize(("fairness", "released"), [(1.0, 1 / 3), (2.0, 1 / 9), (0.0, 1.0)])
def test_fedzero_releases_a_site_with_the_papers_probability(view, past_rounds, fairness, released):
    """Four rounds with one of four sites: it took part 4 times, the mean is 1, so (4 - 1)^-alpha. Released, it is the
    best: its loss is known to be as high as any."""
    past = past_rounds(*[({0: 2.0}, 1.0, 1.0)] * 4)
    chosen = [fedzero(view, [1.0] * 4, past, seed, k=1, fairness=fairness) == [0] for seed in range(600)]
    assert np.mean(chosen) == pytest.approx(released, abs=0.05)


def test_fedzero_prefers_sites_whose_loss_is_high(simulation):
    rounds = simulation(policy=POLICIES["fedzero"](k=200, fairness=0.0))
    draft = rounds.begin(State())
    losses = np.linspace(1, 2, 200)
    result = replace(Outcome.assumed(np.zeros(200), 0.1), train_loss=losses[draft.cohort])
    state, _ = rounds.finish(draft, result)
    picky = simulation(policy=POLICIES["fedzero"](k=3, fairness=0.0))
    assert picky.begin(state).cohort.tolist() == [199, 198, 197]
