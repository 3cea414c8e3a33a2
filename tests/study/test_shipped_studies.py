"""The studies of the paper that come with hpctrip: small forms, and what the claims ask for."""

from pathlib import Path

import pytest
from test_claims import seeds

from hpctrip.study.claims.gather import PAPER
from hpctrip.study.claims.paper import CLAIMS
from hpctrip.study.studies import Asked, found_file, read_studies


@pytest.fixture(scope="module", params=[False, True], ids=["in full", "small"])
def studies(request, tmp_path_factory):
    """All of them, one seed each."""
    folder = tmp_path_factory.mktemp("studies")
    found = read_studies(found_file(PAPER), Asked(folder, ["seed=0"], small=request.param))
    return {study.file.name: study for study in found}


def test_claims_ask_for_variants_that_their_studies_have(studies):
    evidence = {
        name: {entry.variant: seeds(1, 1.1) for entry in study.ledger.entries}
        for name, study in studies.items()
    }
    said = [claim.finding(evidence).ours for claim in CLAIMS]
    assert [text for text in said if "no finished run of" in text or "was not run" in text] == []


def test_studies_of_the_paper_have_a_small_form():
    found = read_studies(found_file(PAPER), Asked(Path("nowhere"), small=True))
    of_each = {study.file.name: {entry.seed for entry in study.ledger.entries} for study in found}
    # the LSTM learns nothing in as many steps as a small form has: it has none yet
    assert [name for name, of_study in of_each.items() if len(of_study) != 3] == ["shakespeare_policies"]
    small = [study for study in found if study.file.name != "shakespeare_policies"]
    assert max(entry.given.experiment.num_sites() for s in small for entry in s.ledger.entries) <= 40
