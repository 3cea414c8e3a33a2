"""KWT-1 is the model of its paper: size, structure, and both engines."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hpctrip.learn.engines import engines
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.kwt import KWT, Block
from hpctrip.learn.params import flatten, num_params
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.speech import Speech


def test_kwt_1_has_as_many_parameters_as_published():
    """With 12 words the released model has 607,308; counted here from its layers."""
    frames, token, positions = 40 * 64 + 64, 64, 99 * 64
    attention = 3 * 64 * 64 + (64 * 64 + 64)
    norms, mlp = 2 * (64 + 64), (64 * 256 + 256) + (256 * 64 + 64)
    body = frames + token + positions + 12 * (attention + norms + mlp)
    assert body == 606_528
    assert num_params(KWT(12)) == body + 12 * 64 + 12 == 607_308
    assert num_params(KWT(35)) == body + 35 * 64 + 35 == 608_803
    assert Speech().depth == 12


def test_weights_start_small_and_cut_at_two_deviations():
    torch.manual_seed(0)
    model = KWT(35)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.any()
        elif "norm" in name:
            assert (p == 1).all()
        else:
            assert 0.03 < p.abs().max() <= 0.04


def test_a_block_is_a_post_norm_encoder_layer_of_one_head_without_biases_of_queries_keys_and_values():
    torch.manual_seed(0)
    block = Block(64, 256)
    layer = nn.TransformerEncoderLayer(
        64,
        nhead=1,
        dim_feedforward=256,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-6,
        batch_first=True,
    )
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(block.qkv.weight)
        layer.self_attn.in_proj_bias.zero_()
    for ours, theirs in (
        (block.projection, layer.self_attn.out_proj),
        (block.norm1, layer.norm1),
        (block.up, layer.linear1),
        (block.down, layer.linear2),
        (block.norm2, layer.norm2),
    ):
        theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 99, 64)
    torch.testing.assert_close(block(x), layer(x), rtol=1e-4, atol=1e-5)


def test_the_order_of_the_frames_matters_only_through_the_positions():
    torch.manual_seed(0)
    model, x = KWT(5, depth=2), torch.randn(3, 98, 40)
    assert not torch.allclose(model(x), model(x.flip(1)), atol=1e-6)
    with torch.no_grad():
        model.positions.zero_()
    torch.testing.assert_close(model(x), model(x.flip(1)), rtol=1e-4, atol=1e-6)


def test_without_gradients_it_takes_a_batch_in_parts():
    torch.manual_seed(0)
    model, x, taken = KWT(5, depth=2), torch.randn(60, 98, 40), []
    model.frames.register_forward_hook(lambda module, args, output: taken.append(len(output)))
    with torch.no_grad():
        logits = model(x)
    assert taken == [25, 25, 10]
    torch.testing.assert_close(logits, model(x).detach(), rtol=1e-5, atol=1e-6)


@pytest.fixture
def task():
    draw = np.random.default_rng(0)
    data = Dataset(draw.standard_normal((40, 98, 40)).astype(np.float16), draw.integers(5, size=40))
    return Task(data, data, 5, lambda: KWT(5, depth=2), torch.Tensor.float, F.cross_entropy)


def test_both_engines_train_it_with_adamw_as_torch_does(task, reference):
    torch.manual_seed(1)
    work = LocalWork(lr=1e-3, batch_size=4, optimizer="adamw", weight_decay=0.1)
    params = flatten(task.build_model())
    sites = [[np.arange(12)], [np.arange(12, 17)]]  # three steps; two, the last with one clip
    expected = [reference(task, work, params, site)[0] for site in sites]
    for engine in engines().values():
        deltas = [update.delta.clone() for update in engine(task, work).train(params, sites)]
        for delta, right in zip(deltas, expected, strict=True):
            # AdamW's first steps are lr * sign of the gradient, so gradients near 0 decide on whole steps.
            assert (delta - right).norm() < 1e-4 * right.norm()
