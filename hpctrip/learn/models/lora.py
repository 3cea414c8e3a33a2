"""The adapters of a language model, as the input describes them; `causal` puts them in."""

from __future__ import annotations

from pydantic import Field

from hpctrip.base.component import Component


class Lora(Component):
    """Low-rank adapters (Hu et al. 2022): W x + alpha / rank B A x, with W frozen, B = 0 at the start, no dropout."""

    rank: int = Field(8, ge=1, le=4096)
    """Of A [rank, in] and B [out, rank]."""
    alpha: float = Field(16.0, gt=0)
    """Scale of the adapters, divided by the rank."""
    target_modules: list[str] = []
    """Names of the layers that get adapters, e.g. ["q_proj", "v_proj"]; empty: every linear layer but the output."""
