"""Runs the scripts of `postprocess/` in this process."""

import sys
from types import SimpleNamespace

import pytest
from paper.script import run_script


@pytest.fixture
def script(monkeypatch, capsys):
    """`script(command, *words)`: run a script with these arguments; returns its exit code, stdout and stderr."""

    def run(command, *words):
        monkeypatch.setattr(sys, "argv", [f"{command.callback.__module__}.py", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run_script(command)
        out, err = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code or 0, out=out, err=err)

    return run
