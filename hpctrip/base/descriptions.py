"""What the fields of components are for: the docstrings below them, read from the source when somebody asks.

Pydantic would read them whenever a class is made, which took longer than everything else that a start does in this
package.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from copy import copy
from functools import cache
from itertools import pairwise

from pydantic.fields import FieldInfo

from hpctrip.base.component import Component


def described(cls: type[Component]) -> dict[str, FieldInfo]:
    """The fields of a class with their descriptions, by name. A field that a class only gives another default keeps the
    description that it has above; a class without a source, made at a prompt, describes none of its own."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Component):
            found |= _own(base)
    fields = {name: copy(field) for name, field in cls.model_fields.items()}
    for name, field in fields.items():
        field.description = found.get(name)
    return fields


@cache
def _own(cls: type[Component]) -> Mapping[str, str]:
    """The docstrings below the fields in the body of a class."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
