"""The notebook of the docs: its cells run in order, and give what is stored in it."""

import ast
import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first_run.ipynb"
CELLS = json.loads(NOTEBOOK.read_text())["cells"]


def executed(source, names):
    """The value of the last line of a cell, as a notebook shows it; None where that is no expression."""
    *statements, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], None
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def words_and_numbers(text):
    """The same text twice over: with # for its numbers, without its spaces; and these numbers."""
    numbers = re.findall(r"\d+(?:\.\d+)?", text)
    return "".join(re.sub(r"\d+(?:\.\d+)?", "#", text).split()), list(map(float, numbers))


def check_same(shown, stored):
    """The same words; numbers as near as they are on another machine, whose kernels round in other ways."""
    words, numbers = words_and_numbers(shown)
    stored_words, stored_numbers = words_and_numbers(stored)
    assert words == stored_words
    assert numbers == pytest.approx(stored_numbers, rel=0.1, abs=0.1)


def test_its_cells_run_in_order_and_give_what_is_stored_in_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in CELLS:
        if cell["cell_type"] != "code":
            continue
        value = executed("".join(cell["source"]), names)
        stored = {output["output_type"]: output for output in cell["outputs"]}
        check_same(capsys.readouterr().out, "".join(stored.pop("stream", {}).get("text", "")))
        assert (value is not None) == ("execute_result" in stored)
        if value is None:
            continue
        data = stored.pop("execute_result")["data"]
        if "image/png" in data:
            assert value._repr_png_().startswith(b"\x89PNG")
        else:
            check_same(repr(value), "".join(data["text/plain"]))
            assert "text/html" in data and value._repr_html_()
        assert not stored, "errors and warnings are no part of it"


def test_it_is_stored_executed_and_small():
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code)
    assert NOTEBOOK.stat().st_size < 200_000
