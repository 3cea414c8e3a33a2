"""The stacked engine on a small GPU, without one: chunks, back-off, rounding up, replay, precision."""

import logging
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpctrip.base.errors import InputError
from hpctrip.learn.engines import stacked
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked, captured
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import flatten

WORK = LocalWork(lr=0.1, batch_size=8, optimizer="sgd", momentum=0.5)
SITES = [[np.random.default_rng(site).integers(60, size=3 + 7 * site)] for site in range(5)]


def deltas(engine, params):
    return torch.stack([update.delta.clone() for update in engine.train(params, SITES)])


def on_a_small_gpu(engine, most):
    """Let memory run out for more than so many sites. Returns the list of the numbers that are tried."""
    tried, together = [], engine._train_together

    def small(params, sites, first_step):
        tried.append(len(sites))
        if len(sites) > most + 1:
            raise torch.cuda.OutOfMemoryError("made up by the test")
        if len(sites) > most:  # as a graph's capture ends when memory runs out in the middle of it
            try:
                raise torch.cuda.OutOfMemoryError("made up by the test")
            finally:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        return together(params, sites, first_step)

    engine._train_together = small
    return tried


def test_the_most_sites_that_memory_holds_are_found_before_the_first_round(task, caplog):
    params, engine = flatten(task.build_model()), Stacked(task, WORK)
    tried = on_a_small_gpu(engine, 1)
    with caplog.at_level(logging.WARNING):
        assert engine.fitting(params, SITES) == 1 and tried == [5, 2, 1]
    assert "GPU memory is full: blocks have at most 1 sites" in caplog.text
    tried = on_a_small_gpu(engine, 0)
    with pytest.raises(InputError, match="the memory of cpu does not hold one site; lower train"):
        engine.fitting(params, SITES)


def test_memory_that_runs_out_later_is_freed_of_other_numbers_of_sites(task):
    params, engine = flatten(task.build_model()), Stacked(task, WORK)
    expected = deltas(engine, params)
    list(engine.train(params, SITES[:2]))
    together = engine._train_together

    def full(params, sites, first_step):
        if len(engine.stacks) > 1:
            raise torch.cuda.OutOfMemoryError("made up by the test")
        return together(params, sites, first_step)

    engine._train_together = full
    assert torch.equal(deltas(engine, params), expected) and len(engine.stacks) == 1


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("CUDA error: an illegal memory access"), RuntimeError),
        (torch.cuda.OutOfMemoryError("full for good"), InputError),
    ],
)
def test_an_error_that_more_memory_does_not_mend_is_raised(task, error, raised):
    engine = Stacked(task, WORK)

    def failing(params, sites, first_step):
        raise error

    engine._train_together = failing
    with pytest.raises(raised):
        deltas(engine, flatten(task.build_model()))


def test_a_step_is_prepared_once_for_each_rounded_number_of_sites_and_then_replayed(task, monkeypatch):
    params, engine, prepared, replayed = flatten(task.build_model()), Stacked(task, WORK), [], []
    expected = deltas(Stacked(task, WORK), params)

    def counting(step):
        prepared.append(step.__self__.index.shape[0])
        return lambda: (replayed.append(1), step())

    monkeypatch.setattr(stacked, "captured", counting)
    engine.has_graphs = engine.round_up = True
    for _ in range(2):
        torch.testing.assert_close(deltas(engine, params), expected, rtol=1e-3, atol=1e-5)
    list(engine.train(params, SITES[:4])), list(engine.train(params, SITES[:3]))
    assert prepared == [8, 4]
    longest = [-(-len(sites[-1][0]) // 8) for sites in (SITES, SITES, SITES[:4], SITES[:3])]
    assert len(replayed) == sum(longest)


@pytest.mark.parametrize("engine", [Sequential, Stacked])
def test_bfloat16_trains_nearly_the_same_model(engine, task):
    params = flatten(task.build_model())
    exact, rounded = (
        deltas(engine(task, LocalWork(lr=0.1, batch_size=8, optimizer="sgd"), precision=p), params)
        for p in ("float32", "bfloat16")
    )
    assert rounded.dtype == torch.float32 and not torch.equal(rounded, exact)
    assert (rounded - exact).norm() < 0.1 * exact.norm()


def test_tf32_is_off_unless_asked_for(task):
    Stacked(task, WORK, precision="tf32")
    assert torch.backends.cudnn.allow_tf32 and torch.backends.cuda.matmul.allow_tf32
    Stacked(task, WORK)
    assert not (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("recipe", [{}, {"local_steps": 3, "warmup_steps": 4, "clip_norm": 0.1}])
def test_a_captured_step_trains_the_same_model_as_a_called_one(task, recipe):
    params, results = flatten(task.build_model()).cuda(), []
    work = WORK.model_copy(update=recipe)
    for has_graphs in (True, False):
        engine = Stacked(task, work, "cuda")
        engine.has_graphs = has_graphs
        results += [deltas(engine, params), deltas(engine, params)]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(
        results[0].cpu(), deltas(Stacked(task, work), params.cpu()), rtol=1e-2, atol=1e-4
    )


@pytest.mark.parametrize("error", [RuntimeError("copies from the CPU"), torch.cuda.OutOfMemoryError("full")])
def test_a_step_that_no_graph_can_capture_is_called(error, monkeypatch, caplog):
    """As on a GPU, whose place a stand-in takes: transformers builds its attention masks from tensors of the CPU."""

    @contextmanager
    def graph(of):
        yield
        raise error

    gpu = SimpleNamespace(
        Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
        current_stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
        stream=lambda stream: nullcontext(),
        CUDAGraph=SimpleNamespace,
        graph=graph,
        OutOfMemoryError=torch.cuda.OutOfMemoryError,
    )
    monkeypatch.setattr(torch, "cuda", gpu)

    def step():
        return "called"

    if type(error) is RuntimeError:
        assert captured(step)() == "called"
        assert "not as a CUDA graph: copies from the CPU" in caplog.text
    else:  # fewer sites at once may fit
        with pytest.raises(torch.cuda.OutOfMemoryError):
            captured(step)
