"""Numbers that travel as integers: what comes out is what went in, whatever the ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.learn.counters import EVALUATION, TRAINING, Tally, vector_size


@pytest.mark.parametrize("counters", [TRAINING, EVALUATION])
@given(num_sites=st.integers(0, 20), num_ranks=st.integers(1, 5), data=st.data())
@settings(max_examples=20)
def test_what_is_noted_comes_out_of_the_vector_again(counters, num_sites, num_ranks, data):
    tally, noted = Tally(counters, num_sites, num_ranks), {}
    for counter in counters:
        numbers = st.floats(-1000, 1000) if counter.scale > 1 else st.integers(-1000, 1000)
        size = counter.size(num_sites, num_ranks)
        noted[counter.name] = data.draw(st.lists(numbers, min_size=size, max_size=size))
        for at, value in enumerate(noted[counter.name]):
            tally.note(counter.name, value, at)
    assert tally.vector.dtype == np.int64 and len(tally.vector) == vector_size(counters, num_sites, num_ranks)
    received = Tally(counters, num_sites, num_ranks, tally.vector.copy())
    for counter in counters:
        values = received.values(counter.name)
        assert values.dtype == np.float64
        assert values == pytest.approx(noted[counter.name], abs=1 / counter.scale if counter.scale > 1 else 0)


def test_every_counter_has_its_own_place_and_shape():
    """Three sites on two ranks: the vector is cut in the order of the declaration, without gaps."""
    tally = Tally(TRAINING, 3, 2)
    assert {name: part.shape for name, part in tally.integers.items()} == {
        "diverged": (3,),
        "train_wall_s": (3,),
        "train_loss": (3,),
        "loss_before": (3,),
        "loss_after": (3,),
        "update_norm": (3,),
        "rank_train_wall_s": (2,),
    }
    for number, part in enumerate(tally.integers.values()):
        part[:] = number
    assert tally.vector.tolist() == [*[0] * 3, *[1] * 3, *[2] * 3, *[3] * 3, *[4] * 3, *[5] * 3, 6, 6]
    assert Tally(EVALUATION, 3, 2).integers["seen"].shape == (1,)
