"""The claims of the paper (arXiv 2507.17904, Sec. 5), in its order. Labels are those of inputs/studies.

"Static optimal" appears twice: with the 70 sites of the paper, and with the best number of sites for the runs at hand,
which is what the paper defines it as (Eq. 9).
"""

from __future__ import annotations

from typing import Any

from paper import checks, sweep_checks
from paper.claim import Claim

POWERTRIP, STATIC, RANDOM, RADIUS = "PowerTrip", "static optimal", "random", "fixed radius"
HIGHEST, CENTRAL_25, CENTRAL_50 = "highest power", "centralized 25 %", "centralized 50 %"
SEVENTY = "the static cohort of 70 sites"
OPTIMAL = "static optimal (Eq. 9: the best number of sites, chosen without the seed it is judged on)"

FIG09_HOURS = {POWERTRIP: 0.65, STATIC: 1.16, HIGHEST: 1.27, CENTRAL_25: 1.33, RANDOM: 1.49, RADIUS: 2.9}
"""Times-to-accuracy of Fig 9 in hours, as stated in the text; centralized 50 % is "about equal" to PowerTrip. Savings
are computed from these, as the text rounds 51 % to 50."""
AT_1_GB, AT_1_5_GB, AT_2_GB = (f"update size = {size} GB" for size in ("1", "1.5", "2"))

ONLY_REACHED = "weak: it asks only whether the target is reached"
ONE_CELL = "weak: the mean of one cell"
BY_CONSTRUCTION = "holds by construction: a property of the bandwidth law that was chosen"
FIRST_ROUND = "weak: an effect of the first round, in which too little is known to choose more"


def _takes(label: str, hours: float) -> tuple[Any, ...]:
    """A claim about the time of PowerTrip, without its figure and study."""
    return f"{label} reaches the target", checks.takes, (label, hours), f"{hours:g} h", ONLY_REACHED


def _faster(
    says: str, fast: str, slow: str, share: float, *study_of_slow: str, hours: str = ""
) -> tuple[Any, ...]:
    """A claim that one variant is faster than another by a share. `hours`: those of both, if the paper states them."""
    return says, checks.faster, (fast, slow, share, *study_of_slow), f"{share:.0%}{hours}"


def _optimal(sweep: str, share: float, says: str = "PowerTrip") -> tuple[Any, ...]:
    """The claim that PowerTrip beats static optimal, with the sizes of a sweep."""
    says = f"{says} takes less time than {OPTIMAL}"
    return says, sweep_checks.faster_than_best_static, (POWERTRIP, sweep, share), f"{share:.0%}"


def _fig09(label: str) -> tuple[Any, ...]:
    fast, slow = FIG09_HOURS[POWERTRIP], FIG09_HOURS[label]
    hours = f" ({fast} h against {slow} h)"
    name = SEVENTY if label == STATIC else label
    return _faster(f"PowerTrip takes less time than {name}", POWERTRIP, label, 1 - fast / slow, hours=hours)


def _fig12(where: str = "") -> list[tuple[Any, ...]]:
    """The claims of Fig. 12 on the power of one cell; `where` ends the names of its studies."""
    return [
        _faster(f"PowerTrip takes less time than {SEVENTY}", POWERTRIP, STATIC, 0.24),
        _optimal(f"fig12_static{where}", 0.24),
        _faster(f"PowerTrip takes less time than {CENTRAL_25}", POWERTRIP, CENTRAL_25, 0.27),
        (
            "PowerTrip remains the most efficient policy, outperforming all baselines",
            checks.fastest,
            (POWERTRIP, (STATIC, HIGHEST, RANDOM, RADIUS, CENTRAL_25)),
        ),
        (
            "The time of every policy is longer than at uniform power",
            checks.slower_than_in,
            ((POWERTRIP, STATIC, HIGHEST, RANDOM, RADIUS), "fig09"),
        ),
    ]


def _fig13(at: str) -> list[tuple[Any, ...]]:
    """PowerTrip against the static cohorts at one update size, 23.3 % in the paper at 2 GB."""
    share = 1 - 1.02 / 1.33
    return [
        _faster(
            f"{at}: PowerTrip takes less time than {SEVENTY}", f"{at}, {POWERTRIP}", f"{at}, {STATIC}", share
        ),
        (
            f"{at}: PowerTrip takes less time than {OPTIMAL}",
            sweep_checks.faster_than_best_static,
            (f"{at}, {POWERTRIP}", "fig13_static", share, at),
            f"{share:.0%}",
        ),
    ]


_BY_FIGURE = {
    ("Fig 2", "fig12"): [
        (
            "Sites have 26 to 51 % of their power to spare",
            checks.spare_power,
            (POWERTRIP, 0.26, 0.51),
            "26% to 51%",
            ONE_CELL,
        ),
    ],
    ("Fig 5", "fig09"): [
        (
            "Delay grows faster than in proportion to distance",
            checks.delay_is_not_linear,
            (POWERTRIP,),
            "",
            BY_CONSTRUCTION,
        ),
    ],
    ("Fig 7a", "fig07_final"): [
        (
            "At equal power and without a WAN, more sites have a higher final accuracy",
            sweep_checks.higher_final,
        ),
    ],
    ("Fig 7a", "fig06"): [
        (
            "At equal power and without a WAN, more sites are more accurate after equally many rounds",
            sweep_checks.higher_in_the_end,
        ),
    ],
    ("Fig 7b", "fig06"): [
        (
            "At equal power and without a WAN, more sites substantially reduce the time",
            sweep_checks.more_is_faster,
        ),
    ],
    ("Fig 7c", "fig06"): [("Each additional site adds less", sweep_checks.diminishing)],
    ("Fig 8", "fig08"): [
        (
            "Time-to-accuracy has an interior minimum in the number of sites",
            sweep_checks.minimum_inside,
            (70,),
            "k = 70",
        ),
        ("Time-to-accuracy is convex in the number of sites", sweep_checks.convex),
        (
            "The best number of sites is only valid for one configuration",
            sweep_checks.best_k_moves,
            ((("fig12_static", ""), ("fig13_static", AT_1_GB), ("fig13_static", AT_2_GB)),),
        ),
    ],
    ("Fig 9", "fig09"): [
        _takes(POWERTRIP, FIG09_HOURS[POWERTRIP]),
        *(_fig09(label) for label in FIG09_HOURS if label != POWERTRIP),
        _optimal("fig08", 1 - FIG09_HOURS[POWERTRIP] / FIG09_HOURS[STATIC]),
        (
            "PowerTrip takes about as long as training in one place at 50 % of its power",
            checks.about_equal,
            (POWERTRIP, CENTRAL_50),
            "about equal",
        ),
        (
            "The policies stand in the paper's order",
            checks.in_this_order,
            ([*FIG09_HOURS],),
            " < ".join(FIG09_HOURS),
        ),
    ],
    ("Fig 10", "fig09"): [
        (
            "PowerTrip starts with few sites and adds more",
            checks.starts_small_and_grows,
            (POWERTRIP,),
            "",
            FIRST_ROUND,
        ),
        (
            "Early on, rounds of the static cohort take longer",
            checks.slower_early_rounds,
            (POWERTRIP, STATIC),
        ),
    ],
    ("Fig 11", "fig06"): [
        (
            f"{k} sites gain less over 10 in the first rounds than later",
            sweep_checks.small_early_gain,
            (k,),
        )
        for k in (50, 100)
    ],
    ("Fig 12, measured power", "fig12"): _fig12(),
    ("Fig 12, production power", "fig12_production"): _fig12("_production"),
    ("Fig 12, renewable share", "fig12_renewable"): _fig12("_renewable"),
    ("Fig 13", "fig13"): [
        _takes(f"{AT_1_GB}, {POWERTRIP}", 0.94),
        _takes(f"{AT_2_GB}, {POWERTRIP}", 1.02),
        *_fig13(AT_1_GB),
        *_fig13(AT_2_GB),
        _faster(
            f"{AT_2_GB}: PowerTrip takes less time than {CENTRAL_25}",
            f"{AT_2_GB}, {POWERTRIP}",
            CENTRAL_25,
            1 - 1.02 / 1.33,
            "fig09",
            hours=" (1.02 h against 1.33 h)",
        ),
        (
            "From 1 to 2 GB PowerTrip's time increases only modestly",
            checks.modestly_slower,
            (f"{AT_2_GB}, {POWERTRIP}", f"{AT_1_GB}, {POWERTRIP}", 1.02 / 0.94),
            "+9% (0.94 h to 1.02 h)",
        ),
        (
            "PowerTrip is the fastest at every update size",
            checks.fastest,
            (POWERTRIP, (STATIC, HIGHEST, RANDOM), (AT_1_GB, AT_1_5_GB, AT_2_GB), (("fig09", CENTRAL_25),)),
        ),
    ],
    ("Fig 14", "speech_policies"): [
        _faster(f"On spoken words PowerTrip takes less time than {SEVENTY}", POWERTRIP, "static", 0.32),
        _optimal("speech_static", 0.32, "On spoken words PowerTrip"),
        ("On spoken words PowerTrip is the fastest", checks.fastest, (POWERTRIP, ("random", CENTRAL_25))),
    ],
    ("Fig 14", "shakespeare_policies"): [
        _faster(f"On Shakespeare PowerTrip takes less time than {SEVENTY}", POWERTRIP, "static", 0.19),
        _optimal("shakespeare_static", 0.19, "On Shakespeare PowerTrip"),
        ("On Shakespeare PowerTrip is the fastest", checks.fastest, (POWERTRIP, ("random", CENTRAL_25))),
    ],
}
"""{(figure, study): claims}, each with its statement, check, arguments of the check, paper's number, and caveat."""

CLAIMS = tuple(
    Claim(figure, study, *rest) for (figure, study), claims in _BY_FIGURE.items() for rest in claims
)
