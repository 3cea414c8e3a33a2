"""Options of the command line that are shared by commands, or too many to stand above one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import click

Command = Callable[..., Any]

overrides = click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="One line of TOML laid over the files."
)

_POSITIVE = click.FloatRange(0, min_open=True)


def planning(command: Command) -> Command:
    """What is planned for: the machine, and how far to look ahead."""
    options = (
        click.option(
            "-n", "num_ranks", type=click.IntRange(1, 100_000), default=1, help="Ranks, rank 0 included."
        ),
        click.option("--rounds", type=click.IntRange(1, 10_000), default=10, help="Rounds to look ahead."),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "gpu"]),
            default="auto",
            help="What hosts train on; gpu: also from where there is none. auto: as the input says, else as here.",
        ),
        click.option(
            "--memory-gb",
            type=_POSITIVE,
            default=math.inf,
            help="Memory of a host's GPU, or its share of a node's: says whether what is known fits.",
        ),
        click.option(
            "--samples-per-second",
            type=_POSITIVE,
            help="Speed of a host; absent: a few batches are trained here.",
        ),
        click.option(
            "--gbit-per-second",
            type=_POSITIVE,
            default=10,
            show_default=True,
            help="Bandwidth of a rank's link to the others.",
        ),
    )
    return reduce(lambda decorated, option: option(decorated), reversed(options), command)
