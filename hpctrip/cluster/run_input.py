"""Reads and validates the input of a simulated cluster."""

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
    """Validated input: the merged tables, the scenario, and the plug-ins, which have been run."""

    tables: Tables
    scenario: ClusterScenario
    extensions: Extensions

    @property
    def toml(self) -> str:
        """The merged tables as TOML text; a file with this text repeats the simulation."""
        return tomli_w.dumps(self.tables)

    @property
    def json(self) -> str:
        """Every key with its resolved value, defaults included, as JSON text."""
        return json.dumps(resolved(self.scenario))

    @property
    def resolved_toml(self) -> str:
        """Every key with its resolved value as TOML text. TOML has no null, so a key without value is left out."""
        return tomli_w.dumps(without_none(resolved(self.scenario)))

    def sources(self) -> list[Source]:
        """The plug-ins and the files that the simulation reads. Raises InputError if one cannot be read."""
        return [
            *(plugin.source for plugin in self.extensions.plugins),
            *(file.source() for file in named_files(self.scenario)),
        ]


def read_cluster_input(
    paths: Iterable[str] = (), overrides: Iterable[str] = (), plugins: Iterable[str] = ()
) -> ClusterInput:
    """Merge TOML files and overrides, run the plug-ins, and validate the result.

    Without a path all keys have their defaults, which simulate synthetic jobs. The plug-ins named in the input and
    those in `plugins` are run before validation. Raises InputError with all faults.
    """
    layers, extensions = read_user_input(paths, overrides, plugins)
    extensions.run()
    tables = merge_layers({}, layers, ClusterScenario)
    return ClusterInput(tables, scenario_of(tables), extensions)


def scenario_of(tables: Tables) -> ClusterScenario:
    """The scenario of these tables, with resolved values. Raises InputError with all faults."""
    return validate(tables, ClusterScenario).resolve()
