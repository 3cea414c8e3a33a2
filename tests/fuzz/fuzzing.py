"""What the fuzz tests share: the command line in this process, and ways to spoil a file."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tomllib
from dataclasses import dataclass
from types import MappingProxyType

import click
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from hpctrip.__main__ import main
from hpctrip.app.net import OWN_FAULT
from hpctrip.base.component import Component, registry_of
from hpctrip.base.inputs import known_keys

EXAMPLES = int(os.environ.get("HPCTRIP_FUZZ", "15"))
"""Examples per test, the same ones each time. The long run asks for new ones: HPCTRIP_FUZZ=1000 pytest tests/fuzz -s
(counts by kind at the end)."""
HANG_S = 30
"""A command that works so long hangs; of time that it gets from the machine, which may be busy."""
WAITS_S = 5 * HANG_S
"""A command that is not over after so long hangs too, whatever it waits for."""
COUNTS: dict[str, dict[int, int]] = {}
"""{test: {exit code: how often}} of the test that runs; those of all are printed at the end."""

SMALL = """
name = "fuzz"

[sites]
num_sites = 6

[workload]
kind = "emnist"
train_samples = 60
test_samples = 20

[stop]
max_rounds = 2
"""
SMALL_WORKLOADS = {
    "femnist": {"train_samples": 60, "test_samples": 20, "glyphs": {"writers": 8, "samples": 20}},
    "llm": {
        "pretrain_steps": 1,
        "block_tokens": 16,
        "sentences": {"roles": 8, "characters": 600},
    },
    "shakespeare": {
        "train_samples": 60,
        "test_samples": 20,
        "sentences": {"roles": 8, "characters": 600},
    },
    "speech": {
        "train_samples": 60,
        "test_samples": 20,
        "depth": 1,
        "chirps": {"num_speakers": 8, "num_words": 4},
    },
}
"""What makes the others as small."""
PLAN = ("plan", "--samples-per-second", 100, "--rounds", 2)

VALUES = st.one_of(
    st.sampled_from(
        [0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.0, 0.5, 1.0, 1e-300, 1e300, float("nan"),
         float("inf"), True, False, "", "x", "1.5 GB", "1000 mi", "-3 s", "1e999 s", "5 min", "auto", "\x00",
         "nan", [], [1], ["x"], {}, {"kind": "x"}, [[0.5, 0.5], [1.0, 1.0]]]
    ),
    st.integers(-5, 300),
    st.floats(-2, 2),
    st.text(max_size=8),
)  # fmt: skip
"""What a key may be set to."""


@st.composite
def wild_inputs(draw, root, small, of_kinds=MappingProxyType({})):
    """The input `small`, TOML, with one to three tables of any kind, and up to two keys in each set to anything.
    `of_kinds`: {kind: the keys that make it small}."""
    tables = tomllib.loads(small)
    root.model_rebuild(force=True)
    for name in draw(st.lists(st.sampled_from(sorted(root.model_fields)), min_size=1, max_size=3)):
        field, table = root.model_fields[name], tables.get(name, {})
        registry, owner = registry_of(field), field.annotation
        if registry is not None:
            kind = draw(st.sampled_from(sorted(registry)))
            same = kind == table.get("kind", registry.default)
            table = {"kind": kind} | (table if same else of_kinds.get(kind, {}))
            owner = registry[kind]
        elif not (isinstance(owner, type) and issubclass(owner, Component)):
            tables[name] = draw(VALUES)
            continue
        keys = st.sampled_from(
            [*known_keys(owner), *(["no_such_key"] if draw(st.integers(0, 9)) == 0 else [])]
        )
        tables[name] = table | {draw(keys): draw(VALUES) for _ in range(draw(st.integers(0, 2)))}
    tables.pop("plugins", None)
    return tables


many = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


class Hangs(BaseException):
    """No Exception: nothing between here and there may take it for an error of a file."""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def hpctrip(*args: object) -> Ended:
    """Run a command in this process. Whatever but an exit code leaves it is a bug, and so is taking so long."""

    def hangs(*_: object) -> None:
        raise Hangs(f"still running after {HANG_S} s of work, or {WAITS_S} s: {args}")

    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["hpctrip", *map(str, args)]
    strip = click.utils.should_strip_ansi, click.termui.style
    # click takes what a terminal obeys out of what goes to none: here it is to be seen; its own colours are not
    click.utils.should_strip_ansi, click.termui.style = (lambda *_: False), (lambda text, **_: text)
    before = {number: signal.signal(number, hangs) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    signal.alarm(WAITS_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.argv = argv
        click.utils.should_strip_ansi, click.termui.style = strip
    return Ended(code, out.getvalue(), err.getvalue())


def accepted_or_refused(test: str, *args: object, also: tuple[int, ...] = ()) -> Ended:
    """Run; demand exit code 0, or 2 with a clear text, or one of `also`; count it."""
    ended = hpctrip(*args)
    counts = COUNTS.setdefault(test, {})
    counts[ended.code] = counts.get(ended.code, 0) + 1
    assert ended.code in (0, 2, *also), (args, ended)
    assert "Traceback" not in ended.err
    assert OWN_FAULT not in ended.err, "the last net hides no fault from these tests"
    if ended.code in (1, 2):
        lines = ended.err.splitlines() or ended.out.splitlines()  # diff tells what differs on stdout
        assert lines and (ended.code == 1 or lines[0].startswith(("hpctrip: ", "Usage: ", "Error: "))), (
            ended.err
        )
        assert len((ended.out + ended.err).encode()) < 4000, "an error is read by a person"
    assert not [c for c in ended.out + ended.err if c != "\n" and not c.isprintable()]
    return ended


_NASTY = [
    b"", b"\x00", b"\xff", b"\n", b"\r\n", b",", b'"', b"-1", b"0", b"1e999", b"nan", b"inf", b"-inf", b"[", b"]",
    b"=", b"#", b"99999999999999999999", b"1.5", b"true", b"\xef\xbb\xbf", b"'", b"  ", b"\x1f\x8b", b"1e-320",
]  # fmt: skip


@st.composite
def spoiled(draw, original: bytes) -> bytes:
    """The original with one to four wounds: bytes changed, cut, doubled, moved, or replaced by something nasty."""
    data, gentle = bytearray(original), draw(st.booleans())  # gentle: nothing changes its length
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        end = min(
            len(data), start + draw(st.integers(0, 1) | st.integers(0, 40) | st.integers(0, len(original)))
        )
        kind = draw(st.sampled_from(["flip", "nasty", "insert", "cut", "double", "truncate", "random"]))
        kind = "flip" if gentle else kind
        if kind == "flip" and start < len(data):
            data[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "nasty":
            data[start:end] = draw(st.sampled_from(_NASTY))
        elif kind == "insert":
            data[start:start] = draw(st.sampled_from(_NASTY))
        elif kind == "cut":
            del data[start:end]
        elif kind == "double":
            data[start:start] = data[start:end]
        elif kind == "truncate":
            del data[start:]
        else:
            data[start:end] = draw(st.binary(max_size=max(1, end - start)))
    return bytes(data)
