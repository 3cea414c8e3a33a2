"""A missing extra is told by place, package and command."""

import pytest

from hpctrip.base import extras
from hpctrip.base.errors import InputError


def test_in_a_checkout_an_extra_is_installed_from_it_and_else_by_the_name_of_the_package(
    monkeypatch, tmp_path
):
    assert extras.how_to_install("llm") == "pip install -e '.[llm]'"
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages/hpctrip/base/extras.py"))
    assert extras.how_to_install("llm") == "pip install 'hpctrip[llm]'"


def test_only_what_is_missing_is_named():
    extras.require("here", "llm", "numpy")
    with pytest.raises(InputError) as caught:
        extras.require("here", "llm", "numpy", "no_such_package", "nor_this_one")
    assert (
        str(caught.value)
        == f"here: no_such_package and nor_this_one not installed; {extras.how_to_install('llm')}"
    )
