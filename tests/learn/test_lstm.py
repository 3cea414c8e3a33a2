"""The character LSTM: LEAF's size and start, one model for both definitions of a prediction, one for both engines."""

import numpy as np
import pytest
import torch

from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.lstm import CharLSTM, next_character_loss
from hpctrip.learn.params import flatten, num_params
from hpctrip.learn.task import Dataset, Task

SITES = [[np.arange(3, 14)], [], [np.arange(1, 21)]]


def task(every):
    draw = np.random.default_rng(0)
    texts = draw.integers(9, size=(40, 8)).astype(np.uint8)
    labels = draw.integers(9, size=(40, 8) if every else 40)
    data = Dataset(texts, labels)
    return Task(
        train=data,
        test=data,
        num_classes=9,
        build_model=lambda: CharLSTM(9, every, embedding=4, hidden=6),
        prepare=torch.Tensor.long,
        loss=next_character_loss,
    )


def test_the_number_of_parameters_is_that_of_the_papers():
    count = {name: p.numel() for name, p in CharLSTM(80).named_parameters() if p.requires_grad}
    layers = [sum(n for name, n in count.items() if name.endswith(f"_l{layer}")) for layer in (0, 1)]
    # four gates of 256 units, each with a weight to every input and every unit and one bias; as in Reddi et al. 2021
    assert layers == [4 * 256 * (8 + 256 + 1), 4 * 256 * (256 + 256 + 1)] == [271_360, 525_312]
    assert count["embedding.weight"] == 80 * 8 and count["fc.weight"] + count["fc.bias"] == 257 * 80
    assert num_params(CharLSTM(80)) == 640 + 271_360 + 525_312 + 20_560 == 817_872


def test_the_last_prediction_of_a_window_is_that_of_the_model_that_predicts_every_character():
    models = []
    for every in (True, False):
        torch.manual_seed(0)
        models.append(CharLSTM(9, every, embedding=4, hidden=6))
    x = torch.randint(9, (3, 7))
    logits = models[0](x)
    assert logits.shape == (3, 7, 9)
    torch.testing.assert_close(models[1](x), logits[:, -1])


def test_a_prediction_does_not_see_what_comes_after_it():
    model, x = CharLSTM(9, True, embedding=4, hidden=6), torch.randint(9, (1, 7))
    changed = x.clone()
    changed[0, 4] = (x[0, 4] + 1) % 9
    same = (model(x) == model(changed)).all(-1)[0]
    assert same.tolist() == [True] * 4 + [False] * 3


def test_gates_start_open_where_they_forget_and_have_one_bias_each():
    lstm = CharLSTM(9, hidden=6).lstm
    for layer in (0, 1):
        assert lstm.get_parameter(f"bias_ih_l{layer}").tolist() == [0] * 6 + [1] * 6 + [0] * 12
        second = lstm.get_parameter(f"bias_hh_l{layer}")
        assert not second.requires_grad and not second.any()


@pytest.mark.parametrize("every", [False, True], ids=["last", "every"])
def test_both_engines_train_what_a_plain_loop_trains(every, reference):
    torch.manual_seed(1)
    one, work = task(every), LocalWork(lr=0.8, batch_size=4, optimizer="sgd")
    params = flatten(one.build_model())
    for engine in (Sequential, Stacked):
        for site, update in zip(SITES, engine(one, work).train(params, SITES), strict=True):
            delta, *_ = reference(one, work, params, site)
            torch.testing.assert_close(update.delta, delta, rtol=1e-3, atol=1e-5)


def test_a_stacked_step_asks_the_host_for_no_value():
    """So that it can be captured in a CUDA graph."""
    with torch.device("meta"):
        model = CharLSTM(9, True, embedding=4, hidden=6)
        weights = {name: torch.empty(2, *p.shape) for name, p in model.named_parameters()}
        logits = model.stacked_forward(weights, torch.empty(2, 3, 7, dtype=torch.int64))
    assert logits.shape == (2, 3, 7, 9)
