"""The claims of the paper (arXiv 2507.17904, Sec. 5), in its order. Labels are those of inputs/studies."""

from __future__ import annotations

from typing import Any

from paper import checks
from paper.claim import Claim

POWERTRIP, STATIC, RANDOM, RADIUS = "PowerTrip", "static optimal", "random", "fixed radius"
HIGHEST, CENTRAL_25, CENTRAL_50 = "highest power", "centralized 25 %", "centralized 50 %"

FIG09_HOURS = {POWERTRIP: 0.65, STATIC: 1.16, HIGHEST: 1.27, CENTRAL_25: 1.33, RANDOM: 1.49, RADIUS: 2.9}
"""Times-to-accuracy of Fig 9 in hours, as stated in the text; centralized 50 % is "about equal" to PowerTrip. Savings
are computed from these, as the text rounds 51 % to 50."""
AT_1_GB, AT_1_5_GB, AT_2_GB = (f"update size = {size} GB" for size in ("1", "1.5", "2"))


def _takes(says: str, label: str, hours: float) -> tuple[Any, ...]:
    """A claim about the time of one variant, without its figure and study."""
    return says, checks.takes, (label, hours), f"{hours:g} h"


def _faster(
    says: str, fast: str, slow: str, share: float, *study_of_slow: str, hours: str = ""
) -> tuple[Any, ...]:
    """A claim that one variant is faster than another by a share. `hours`: those of both, if the paper states them."""
    return says, checks.faster, (fast, slow, share, *study_of_slow), f"{share:.0%}{hours}"


def _fig09(label: str) -> tuple[Any, ...]:
    fast, slow = FIG09_HOURS[POWERTRIP], FIG09_HOURS[label]
    hours = f" ({fast} h against {slow} h)"
    return _faster(f"PowerTrip takes less time than {label}", POWERTRIP, label, 1 - fast / slow, hours=hours)


_BY_FIGURE = {
    ("Fig 2", "fig12"): [
        (
            "Sites have 26 to 51 % of their power to spare",
            checks.spare_power,
            (POWERTRIP, 0.26, 0.51),
            "26% to 51%",
        ),
    ],
    ("Fig 5", "fig09"): [
        ("Delay grows faster than in proportion to distance", checks.delay_is_not_linear, (POWERTRIP,)),
    ],
    ("Fig 7a", "fig06"): [
        (
            "At equal power and without a WAN, more sites are more accurate after as many rounds",
            checks.higher_in_the_end,
        ),
    ],
    ("Fig 7b", "fig06"): [
        ("At equal power and without a WAN, more sites are faster", checks.more_is_faster),
    ],
    ("Fig 7c", "fig06"): [("What one more site adds gets less", checks.diminishing)],
    ("Fig 8", "fig08"): [
        (
            "Time-to-accuracy has its minimum at a number of sites in between",
            checks.minimum_inside,
            (70,),
            "k = 70",
        ),
        ("Time-to-accuracy is convex in the number of sites", checks.convex),
    ],
    ("Fig 9", "fig09"): [
        _takes("PowerTrip reaches the target", POWERTRIP, FIG09_HOURS[POWERTRIP]),
        *(_fig09(label) for label in FIG09_HOURS if label != POWERTRIP),
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
        ("PowerTrip starts with few sites and adds more", checks.starts_small_and_grows, (POWERTRIP,)),
        (
            "Early on, rounds of the static cohort take longer",
            checks.slower_early_rounds,
            (POWERTRIP, STATIC),
        ),
    ],
    ("Fig 11", "fig06"): [
        (f"{k} sites gain less over 10 in the first rounds than later", checks.small_early_gain, (k,))
        for k in (50, 100)
    ],
    ("Fig 12", "fig12"): [
        _faster("On power traces, PowerTrip beats the static cohort", POWERTRIP, STATIC, 0.24),
        _faster(
            "On power traces, PowerTrip beats training in one place at 25 % of its power",
            POWERTRIP,
            CENTRAL_25,
            0.27,
        ),
        (
            "On power traces PowerTrip takes longer than at uniform power",
            checks.slower_than_in,
            (POWERTRIP, "fig09"),
        ),
    ],
    ("Fig 13", "fig13"): [
        _takes("PowerTrip at 1 GB", f"{AT_1_GB}, {POWERTRIP}", 0.94),
        _takes("PowerTrip at 2 GB", f"{AT_2_GB}, {POWERTRIP}", 1.02),
        _faster(
            "At 2 GB, PowerTrip beats the static cohort",
            f"{AT_2_GB}, {POWERTRIP}",
            f"{AT_2_GB}, {STATIC}",
            0.233,
        ),
        _faster(
            "At 2 GB, PowerTrip beats training in one place at 25 % of its power",
            f"{AT_2_GB}, {POWERTRIP}",
            CENTRAL_25,
            0.233,
            "fig09",
            hours=" (1.02 h against 1.33 h)",
        ),
        (
            "PowerTrip is the fastest at every update size",
            checks.fastest_at_every_value,
            (POWERTRIP, (STATIC, HIGHEST, RANDOM), (AT_1_GB, AT_1_5_GB, AT_2_GB), (("fig09", CENTRAL_25),)),
        ),
    ],
    ("Fig 14", "speech_policies"): [
        _faster("On spoken words, PowerTrip beats the static cohort", POWERTRIP, "static", 0.32),
    ],
    ("Fig 14", "shakespeare_policies"): [
        _faster("On Shakespeare, PowerTrip beats the static cohort", POWERTRIP, "static", 0.19),
    ],
}
"""{(figure, study): claims}, each with its statement, check, arguments of the check, and the paper's number."""

CLAIMS = tuple(
    Claim(figure, study, *rest) for (figure, study), claims in _BY_FIGURE.items() for rest in claims
)
