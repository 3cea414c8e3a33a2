"""Placements never assign a GPU twice, keep buddy blocks aligned, and keep small jobs within a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invariants import check_layout

from hpctrip.cluster.placement import PLACEMENTS, Machine
from hpctrip.cluster.placement.buddy import fit

MACHINES = st.builds(
    Machine,
    num_nodes=st.integers(1, 6),
    gpus_per_node=st.sampled_from([1, 2, 4, 6, 8]),
    nodes_per_rack=st.integers(1, 4),
)
TURNS = st.lists(st.tuples(st.booleans(), st.integers(1, 20), st.booleans()), max_size=40)


def layout_of(kind, **keys):
    machine = Machine(**keys)
    return PLACEMENTS[kind]().layout(machine, seed=0)


def check_blocks(layout, gpus_of):
    """Assert that a job has whole nodes and, in one node, an aligned block for each binary digit of the rest."""
    per_node = layout.machine.gpus_per_node
    for job, parts in layout.parts.items():
        whole, rest = divmod(gpus_of[job], per_node)
        masks = [mask for _, mask in parts if mask != layout.full]
        assert len(parts) == whole + bool(rest) and len(masks) <= 1
        for left in masks:
            for size in (1 << digit for digit in reversed(range(rest.bit_length())) if rest >> digit & 1):
                blocks = [((1 << size) - 1) << offset for offset in range(0, per_node, size)]
                left &= ~next(block for block in blocks if block & left == block)
            assert not left


@given(MACHINES, TURNS, st.sampled_from(sorted(PLACEMENTS)))
def test_no_gpu_is_given_twice_and_all_come_back(machine, turns, kind):
    layout = PLACEMENTS[kind]().layout(machine, seed=3)
    gpus_of = {}
    for number, (comes, gpus, moves) in enumerate(turns):
        if comes:
            placed = layout.place(gpus, number, 0)
            assert placed == (number in layout.parts)
            if placed:
                gpus_of[number] = gpus
                for node, _ in layout.parts[number]:
                    layout.power(node, True)
            elif kind != "buddy":
                assert layout.free.sum() < gpus, "it would have fitted"
        elif layout.parts:
            layout.release(min(layout.parts))
        if moves:
            before = {job: sum(mask.bit_count() for _, mask in parts) for job, parts in layout.parts.items()}
            layout.rearrange(2)
            layout.make_room(gpus, 3)
            assert before == {job: gpus_of[job] for job in layout.parts}
        check_layout(layout)
        if kind == "buddy":
            check_blocks(layout, gpus_of)
    for job in list(layout.parts):
        layout.release(job)
    assert layout.free_mask == [layout.full] * machine.num_nodes


@given(st.integers(0, 255), st.sampled_from([1, 2, 4, 8]))
def test_a_block_is_found_wherever_an_aligned_one_is_free(mask, gpus):
    blocks = [((1 << gpus) - 1) << offset for offset in range(0, 8, gpus)]
    free = [block for block in blocks if mask & block == block]
    assert fit(mask, gpus)[0] in free if free else fit(mask, gpus) is None


def test_the_smallest_block_is_split_and_buddies_join_again():
    assert fit(0b11110111, 1) == (0b100, 1)  # 0 and 1 are buddies, 2 is alone
    assert fit(0b11110011, 2) == (0b11, 2)
    assert fit(0b11111111, 2) == (0b11, 8)
    assert fit(0b01101010, 2) is None
    assert fit(0b11111100, 6) == (0b11111100, 4)


def test_nodes_that_are_on_come_first_and_the_fullest_of_them():
    layout = layout_of("buddy", num_nodes=4, gpus_per_node=4)
    layout.power(2, True)
    assert layout.find(1) == [(2, 1)]
    layout.power(1, True)
    layout.take(0, [(2, 0b0001)])
    layout.take(1, [(1, 0b0111)])
    assert layout.find(1) == [(1, 0b1000)]


def test_a_job_of_several_nodes_gets_an_aligned_run_of_one_rack():
    layout = layout_of("buddy", num_nodes=8, gpus_per_node=2, nodes_per_rack=4)
    layout.take(0, [(1, 1)])
    assert [node for node, _ in layout.find(4)] == [2, 3]
    assert [node for node, _ in layout.find(8)] == [4, 5, 6, 7]
    assert [node for node, _ in layout.find(5)] == [1, 2, 3]
    assert len(layout.find(14)) == 7 and layout.find(16) is None


def test_room_is_made_for_a_job_that_fragments_keep_out():
    layout = layout_of("buddy", num_nodes=2, gpus_per_node=4)
    for node in (0, 1):
        layout.power(node, True)
        layout.take(node, [(node, 0b0001)])
    assert layout.find(4) is None and layout.make_room(4, 0) == []
    (move,) = layout.make_room(4, 1)
    assert layout.find(4) is not None and layout.free.tolist() == [4, 2]
    assert move.before == [(0, 0b0001)]


def test_nothing_moves_where_that_would_not_help():
    layout = layout_of("buddy", num_nodes=2, gpus_per_node=4)
    layout.take(0, [(0, 0b0111)])
    layout.take(1, [(1, 0b0111)])
    before = dict(layout.parts)
    assert layout.make_room(2, 5) == [] and layout.rearrange(5) == []
    assert layout.parts == before and layout.stranded == 2


def test_first_fit_takes_the_first_node_and_random_any():
    first, drawn = (layout_of(kind, num_nodes=9, gpus_per_node=2) for kind in ("first-fit", "random"))
    assert first.find(2, 0, 0) == [(0, 0b11)] and first.find(3, 0, 0) == [(0, 0b11), (1, 1)]
    assert len({drawn.find(1, job, 0)[0][0] for job in range(30)}) > 4
    assert drawn.find(5, 7, 1) == layout_of("random", num_nodes=9, gpus_per_node=2).find(5, 7, 1)


def test_taking_what_another_has_is_an_error():
    layout = layout_of("buddy", num_nodes=1, gpus_per_node=2)
    layout.take(0, [(0, 1)])
    with pytest.raises(ValueError, match="are not all free"):
        layout.take(1, [(0, 0b11)])
    assert layout.free.tolist() == [1]
