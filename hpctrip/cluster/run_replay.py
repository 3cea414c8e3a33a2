"""Repeats a recorded simulation from its stored input and compares every column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hpctrip.base.errors import Fault, InputError
from hpctrip.cluster.results import ClusterRun, tables_of
from hpctrip.cluster.rows import Result
from hpctrip.cluster.run_input import scenario_of
from hpctrip.config.plugins import Plugin
from hpctrip.config.sources import named_files, read_sources
from hpctrip.record.verify import RELATIVE_TOLERANCE
from hpctrip.runner.replay import NotReplayable, other_files, run_plugins, with_files


def replay(run: ClusterRun, plugins: Sequence[Plugin] = (), data: Sequence[str] = ()) -> list[Fault]:
    """Repeat the simulation; returns one fault for each recorded column that differs, none if all are confirmed.

    The arguments are those of `hpctrip.runner.replay.replay`. Raises NotReplayable if plug-ins or files are missing.
    """
    try:
        recorded = read_sources(run.meta["sources"], run.path)
        run_plugins(recorded, run, plugins)
        scenario = scenario_of(with_files(run.input, named_files(scenario_of(run.input)), data))
        if other := other_files(run, recorded, [file.source() for file in named_files(scenario)]):
            return other  # any further difference would follow from these
        result = scenario.simulator().run()
    except InputError as error:
        raise NotReplayable(str(error.faults[0])) from None
    return list(_differences(run, result))


def _differences(run: ClusterRun, result: Result) -> Iterator[Fault]:
    for table, columns in tables_of(result).items():
        frame = run.tables[table]
        for name, column in columns.items():
            place = f"{run.path}: /{table}/{name}"
            recorded, expected = frame[name].to_numpy(), column.values
            if len(recorded) != len(expected):
                yield Fault(place, f"has {len(recorded):,} rows, simulated again {len(expected):,}")
                break
            if expected.dtype == object:
                same = recorded == expected
            else:
                same = np.isclose(recorded, expected, rtol=RELATIVE_TOLERANCE, atol=1e-9, equal_nan=True)
            if not same.all():
                at = int(np.flatnonzero(~same)[0])
                more = f" (and {(~same).sum() - 1:,} more)" if (~same).sum() > 1 else ""
                yield Fault(f"{place}, row {at}", f"is {recorded[at]}, simulated again {expected[at]}{more}")
