"""Defaults of keys must not change, as the identity of a run contains only the keys that its input sets."""

import json
from pathlib import Path

from hpctrip.cli.keys_reference import sections
from hpctrip.config.component import registry_of
from hpctrip.runner.experiment import Experiment
from hpctrip.studies.grid import RULES

RECORDED = Path(__file__).with_name("defaults.json")


def defaults():
    """{key, after its table and kind: default} of all keys that can change a result, and {"table kind rules": rules} of
    the components whose rules have been raised."""
    values = {}
    for table, field in Experiment.model_fields.items():
        for kind, component in (registry_of(field) or {}).items():
            if component.rules > 1:
                values[f"{table} {kind} rules"] = component.rules
    for section in sections(Experiment):
        for key in section.keys:
            if not key.neutral:
                values[" ".join((*section.path, key.name))] = key.default
        if section.kind and section.is_default:
            values[f"{section.table} kind"] = section.kind
    return values


def test_no_default_has_changed_under_the_same_rules():
    """To change a default, raise `rules` of its component and write `defaults.json` again with `python
    tests/studies/test_defaults.py`. Add a new key in the same way, without raising `rules`, if its default keeps the
    results."""
    recorded, now = json.loads(RECORDED.read_text()), defaults()
    assert recorded.pop("rules") == RULES
    assert {key: now[key] for key in recorded} == recorded  # other tests may have added kinds of their own


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({"rules": RULES} | defaults(), indent=0) + "\n")
