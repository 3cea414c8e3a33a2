import importlib

import pytest
from pydantic import Field, ValidationError

from hpctrip.config.component import Component, Registry

SHAPES = Registry("shape", default="disc")


@SHAPES.add
class Disc(Component):
    kind = "disc"
    radius: float = Field(1.0, gt=0)


@SHAPES.add
class Box(Component):
    kind = "box"
    sides: list[float] = [1.0, 1.0]


class Drawing(Component):
    shape: SHAPES.field() = Field(default_factory=dict, validate_default=True)


def test_the_kind_chooses_the_class_and_its_absence_the_default():
    assert Drawing.model_validate({}).shape == Disc()
    assert Drawing.model_validate({"shape": {"radius": 2}}).shape == Disc(radius=2)
    assert Drawing.model_validate({"shape": {"kind": "box", "sides": [1, 2]}}).shape == Box(sides=[1, 2])


@pytest.mark.parametrize(
    "shape",
    [{"kind": "disk"}, {"kind": "box", "radius": 1}, *({"radius": r} for r in (0, "1", float("nan"))), 3],
)
def test_a_wrong_table_is_refused(shape):
    with pytest.raises(ValidationError):
        Drawing.model_validate({"shape": shape})


def test_components_do_not_change():
    with pytest.raises(ValidationError):
        Disc().radius = 2


@pytest.mark.parametrize("name", ["Other", "Box"])
def test_a_kind_is_not_taken_by_another_class_or_one_of_the_same_name_from_elsewhere(name):
    other = type(name, (Component,), {"kind": "box", "__module__": "hpctrip_plugin_box"})
    with pytest.raises(ValueError, match=rf"{name}: kind 'box' is already taken by .*test_component\.Box"):
        SHAPES.add(other)
    assert SHAPES["box"] is Box


def test_a_class_of_a_module_imported_again_takes_its_own_place():
    again = type("Box", (Component,), {"kind": "box", "__module__": Box.__module__})
    assert SHAPES.add(again) is SHAPES["box"]
    SHAPES.add(Box)


def test_a_new_file_in_a_package_of_components_is_a_new_component(tmp_path, monkeypatch):
    (tmp_path / "curves").mkdir()
    (tmp_path / "curves/__init__.py").write_text(
        "from hpctrip.config.component import import_all\n"
        "from curves.base import CURVES as CURVES\n"
        "import_all(__name__)\n"
    )
    (tmp_path / "curves/base.py").write_text(
        "from hpctrip.config.component import Registry\nCURVES = Registry('curve', default='arc')\n"
    )
    (tmp_path / "curves/arc.py").write_text(
        "from hpctrip.config.component import Component\nfrom curves.base import CURVES\n\n\n"
        "@CURVES.add\nclass Arc(Component):\n    kind = 'arc'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert list(importlib.import_module("curves").CURVES) == ["arc"]
