"""The input of a simulated cluster, as it was given and as it is understood."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import tomli_w

from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.inputs import Tables, resolved, validate
from hpctrip.config.plugins import Extensions
from hpctrip.config.sources import Source, named_files
from hpctrip.runner.experiment import merge_layers, read_user_input, without_none


@dataclass(frozen=True)
class ClusterInput:
    """The merged tables, what they mean, and the code that the user added, which has run."""

    tables: Tables
    scenario: ClusterScenario
    extensions: Extensions

    @property
    def toml(self) -> str:
        """The merged tables as TOML text: a file with this text repeats the simulation."""
        return tomli_w.dumps(self.tables)

    @property
    def json(self) -> str:
        """Every key with the value in force, defaults included."""
        return json.dumps(resolved(self.scenario))

    @property
    def resolved_toml(self) -> str:
        """The same as TOML, which has no null: a key that is absent means its default."""
        return tomli_w.dumps(without_none(resolved(self.scenario)))

    def sources(self) -> list[Source]:
        """The plug-ins and the files that the simulation reads. Raises InputError where one cannot be read."""
        return [
            *(plugin.source for plugin in self.extensions.plugins),
            *(file.source() for file in named_files(self.scenario)),
        ]


def read_cluster_input(
    paths: Iterable[str] = (), overrides: Iterable[str] = (), plugins: Iterable[str] = ()
) -> ClusterInput:
    """Merge and validate; no path at all means all defaults: synthetic jobs. The plug-ins that the input names, and
    `plugins` besides, are run first. Raises InputError with every fault found."""
    layers, extensions = read_user_input(paths, overrides, plugins)
    extensions.run()
    tables = merge_layers({}, layers, ClusterScenario)
    return ClusterInput(tables, scenario_of(tables), extensions)


def scenario_of(tables: Tables) -> ClusterScenario:
    """The scenario that the tables describe, with the values in force."""
    return validate(tables, ClusterScenario).resolve()
