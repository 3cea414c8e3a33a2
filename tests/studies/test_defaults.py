"""An input means the same tomorrow: runs are kept by what was chosen in their input, so defaults must stay."""

import json
from pathlib import Path

from hpctrip.cli.keys_reference import sections
from hpctrip.config.component import registry_of
from hpctrip.runner.experiment import Experiment
from hpctrip.studies.grid import RULES

KNOWN = Path(__file__).with_name("defaults.json")


def defaults():
    """{key, after its table and kind: default} of all keys that can change a result, and {"table kind rules": rules} of
    the components whose rules have been raised."""
    found = {}
    for table, field in Experiment.model_fields.items():
        for kind, component in (registry_of(field) or {}).items():
            if component.rules > 1:
                found[f"{table} {kind} rules"] = component.rules
    for section in sections(Experiment):
        for key in section.keys:
            if not key.neutral:
                found[" ".join((*section.path, key.name))] = key.default
        if section.kind and section.is_default:
            found[f"{section.table} kind"] = section.kind
    return found


def test_no_default_has_changed_under_the_same_rules():
    """Where one must: raise `rules` of its component, and write `defaults.json` anew with `python
    tests/studies/test_defaults.py`. A key that is new is added in the same way, without raising them, where its default
    means what was done before."""
    known, now = json.loads(KNOWN.read_text()), defaults()
    assert known.pop("rules") == RULES
    assert {key: now[key] for key in known} == known  # other tests may have added kinds of their own


if __name__ == "__main__":
    KNOWN.write_text(json.dumps({"rules": RULES} | defaults(), indent=0) + "\n")
