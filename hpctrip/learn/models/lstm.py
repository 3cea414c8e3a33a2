"""The character LSTM of the shakespeare workload (McMahan et al. 2017; LEAF, Caldas et al. 2018).

Shapes: B batch, T characters, C symbols, H hidden units. Input [B, T] indices -> embedding [B, T, 8] -> two LSTM
layers [B, T, H] -> linear, at the last character [B, C] or at every one [B, T, C]. Stacked: S sites, each with its
own weights.

With C = 80 and H = 256 there are 80 x 8 + (8 + 256 + 1) x 1024 + (256 + 256 + 1) x 1024 + (256 + 1) x 80 = 817,872
parameters; the LSTM layers' 271,360 and 525,312 are those of Reddi et al. 2021, whose alphabet has 90 symbols.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import nn

from hpctrip.learn.models.cnn import stacked_linear

# cuDNN copies weights that do not lie in its own order at every call, which is what views of one flat vector cost.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


class CharLSTM(nn.Module):
    """Next-character model, initialised as TensorFlow does for LEAF: Glorot-uniform matrices, forget gates open.

    A gate has one bias, as in LEAF and the papers; torch's second one stays zero and does not travel.
    """

    def __init__(
        self, num_symbols: int, every: bool = False, embedding: int = 8, hidden: int = 256, layers: int = 2
    ):
        super().__init__()
        self.every = every
        self.embedding = nn.Embedding(num_symbols, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, num_symbols)
        nn.init.xavier_uniform_(self.embedding.weight)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        for name, p in self.lstm.named_parameters():
            if name.startswith("weight_ih"):
                num_inputs = p.shape[1] + hidden  # one matrix over input and state, as in TensorFlow
                bound = (6 / (num_inputs + 4 * hidden)) ** 0.5
                nn.init.uniform_(p, -bound, bound)
                nn.init.uniform_(self.lstm.get_parameter(name.replace("ih", "hh")), -bound, bound)
            elif name.startswith("bias_ih"):
                nn.init.zeros_(p)
                nn.init.ones_(p[hidden : 2 * hidden])  # the forget gates
            elif name.startswith("bias_hh"):
                nn.init.zeros_(p).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T] int64 -> logits [B, C], or [B, T, C] where `every`."""
        y, _ = self.lstm(self.embedding(x))
        return self.fc(y if self.every else y[:, -1])

    def stacked_forward(self, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """`forward` for S sites at once: weights [S, ...] by name, x [S, B, T] int64 -> [S, B, C] or [S, B, T, C]."""
        embedding = weights["embedding.weight"]
        # A product with one-hot rows, not a look-up: its gradient is a sum in fixed order, and asks the host nothing.
        symbols = torch.arange(embedding.shape[1], device=x.device)
        y = (x.flatten(1).unsqueeze(-1) == symbols).to(embedding.dtype) @ embedding
        y = y.unflatten(1, x.shape[1:])
        for layer in range(self.lstm.num_layers):
            names = (f"lstm.{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih"))
            y = _stacked_layer(y, *(weights[name] for name in names))
        if not self.every:
            y = y[:, :, -1:]
        logits = stacked_linear(y.flatten(1, 2), weights["fc.weight"], weights["fc.bias"])
        return logits.unflatten(1, y.shape[1:3]) if self.every else logits


def next_character_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of [..., 80] logits and [...] labels."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _stacked_layer(
    x: torch.Tensor, weight_ih: torch.Tensor, weight_hh: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """One LSTM layer, gates in torch's order: [S, B, T, I], [S, 4H, I], [S, 4H, H], [S, 4H] -> [S, B, T, H]."""
    num_sites, batch, _, _ = x.shape
    # all characters at once
    inputs = stacked_linear(x.flatten(1, 2), weight_ih, bias).unflatten(1, x.shape[1:3])
    weight = weight_hh.transpose(1, 2)
    h = c = inputs.new_zeros(num_sites, batch, weight_hh.shape[2])
    outputs = []
    for from_input in inputs.unbind(2):
        i, f, g, o = torch.baddbmm(from_input, h, weight).chunk(4, dim=2)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs, dim=2)
