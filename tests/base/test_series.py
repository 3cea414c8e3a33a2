"""Values that change with time in steps: where they change, and their means."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.base.series import mean, never, next_step_s, spans


@given(st.floats(1e-3, 1e5), st.integers(0, 10**6))
def test_steps_are_the_multiples_of_their_length_one_after_the_other(step_s, first):
    """Also where rounding puts a multiple before the step that it begins."""
    walked = islice(spans(first * step_s, partial(next_step_s, step_s=step_s)), 5)
    assert [end_s for _, end_s, _ in walked] == [(first + i) * step_s for i in range(1, 6)]


def test_a_constant_is_one_span_without_end():
    assert next(spans(5.0, never)) == (5.0, np.inf, 5.0)
    assert next(spans(5.0, partial(next_step_s, step_s=np.inf))) == (5.0, np.inf, 5.0)


def test_a_mean_weighs_every_value_by_how_long_it_holds():
    steps = partial(next_step_s, step_s=10.0)

    def at(clock_s):
        return np.array([clock_s // 10, 1.0])

    assert mean(at, steps, 5.0, 25.0) == pytest.approx([(5 * 0 + 10 * 1 + 5 * 2) / 20, 1])
    assert mean(at, steps, 12.0, 12.0).tolist() == mean(at, steps, 12.0, 19.0).tolist() == [1, 1]
    # sampled: more steps than are asked for
    assert mean(at, steps, 0.0, 1e5) == pytest.approx([4999.5, 1], rel=1e-2)
