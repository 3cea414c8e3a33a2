"""The keys of the input file, printed from the components that declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from hpctrip.app.experiment import Experiment
from hpctrip.base.component import Component, named_tables, registry_of, unknown_name
from hpctrip.base.plugins import Extensions


def show_sections(section: str | None = None) -> None:
    """Print every key of the input, or those of one section. Raises click.BadParameter for an unknown one."""
    Extensions.of(()).run()
    Experiment.model_rebuild(force=True)
    if section not in (None, *Experiment.model_fields):
        raise click.BadParameter(
            f"{section!r} is no section; {unknown_name(section, Experiment.model_fields)}"
        )
    for name, field in Experiment.model_fields.items():
        if section not in (None, name):
            continue
        registry = registry_of(field)
        named = named_tables(field)
        if registry is not None:
            click.secho(
                f"\n[{name}]  kind: one of {', '.join(registry)} (default {registry.default})", bold=True
            )
            _describe_all(registry)
        elif named is not None:
            click.secho(
                f"\n[{name}.NAME]  kind: one of {', '.join(named.registry)} (default NAME)", bold=True
            )
            click.echo(field.description)
            _describe_all(named.registry)
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Component):
            click.secho(f"\n[{name}]", bold=True)
            _describe(field.annotation)
        else:
            click.echo(f"{name}: {field.description} (default {field.default!r})")


def show_registry(registry: Mapping[str, Any]) -> None:
    """Print the kinds of one registry, those of installed packages included, and their keys."""
    Extensions.of(()).run()
    _describe_all(registry)


def _describe_all(registry: Mapping[str, Any]) -> None:
    for kind in sorted(registry):
        click.secho(f"{kind}", bold=True, nl=False)
        click.echo(f": {_first_line(registry[kind])}")
        _describe(registry[kind])


def _describe(component: Any) -> None:
    for key, field in component.model_fields.items():
        default = (
            "" if field.is_required() else f" (default {field.get_default(call_default_factory=True)!r})"
        )
        click.echo(f"    {key}{default}: {' '.join((field.description or '').split())}")


def _first_line(component: Any) -> str:
    return (component.__doc__ or "").strip().splitlines()[0]
