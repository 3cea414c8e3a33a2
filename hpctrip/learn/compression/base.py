"""The contract of update compression, and what a host does with it. Shapes: P parameters."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, numbers
from hpctrip.base.rng import stream
from hpctrip.learn.door import finite, parameters


class Compression(Component):
    """Base of update compressions: a lossy encoding of an update on its way up, from a site to the aggregator.

    The model's way down is not compressed. Encodings have a fixed length, so the size of a payload follows from P.
    """

    lossless: ClassVar[bool] = False
    """Does the aggregator decode just what the site encoded? Then nothing is drawn and nothing copied."""

    @property
    def keeps_residual(self) -> bool:
        """Error feedback: does a site keep what its encodings lost and add it to its next update?"""
        return False

    def payload_bytes(self, num_params: int) -> float:
        """Size of an encoded update of `num_params` parameters."""
        raise NotImplementedError

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """What the aggregator decodes, float32 [P], on the device of `delta` [P], which is not changed.

        An update that is not finite decodes to one that is not finite: the sum is where it is refused.
        """
        raise NotImplementedError

    def sent_fraction(self, num_params: int) -> float:
        """Size of the payload relative to the float32 update."""
        return self.checked_payload_bytes(num_params) / (4 * num_params)

    def try_roundtrip(self, num_params: int, seed: int) -> None:
        """Before the first round: InputError where a small update decodes to what is none."""
        if self.lossless:
            return
        delta = torch.linspace(-1e-3, 1e-3, num_params)
        rng, place = stream(seed, "compression/trial"), config_key("compression", self)
        finite(self.checked_roundtrip(delta, rng), place, "a decoded update")

    def checked_roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """What the aggregator decodes, or InputError where it is no update."""
        return parameters(
            self.roundtrip(delta, rng), delta, config_key("compression", self), "a decoded update"
        )

    def checked_payload_bytes(self, num_params: int) -> float:
        """The size, or InputError where it is none: finite, 0 or more."""
        size, place = self.payload_bytes(num_params), config_key("compression", self)
        return float(numbers(size, (), 0.0, np.finfo(float).max, place, "payload_bytes"))


COMPRESSIONS = Registry("update compression", default="none")


class Compressor:
    """What a host does to the updates of the sites that it trains."""

    def __init__(self, rule: Compression, seed: int):
        self.rule, self.seed = rule, seed

    def __call__(
        self, site: int, round: int, delta: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What the aggregator decodes of the site's update `delta` [P], which did not diverge.

        Random numbers come from the stream (seed, "compression", round, site). With error feedback (Stich et al. 2018;
        Karimireddy et al. 2019, Algorithm 1): send C(e + delta), keep e + delta - C(e + delta) as the next e, where e
        is the site's `residual` [P], which is changed in place. InputError where the rule decodes to what is no update.
        """
        if self.rule.lossless:
            return delta
        rng = stream(self.seed, "compression", round, site)
        if residual is None:
            return self.rule.checked_roundtrip(delta, rng)
        sent = self.rule.checked_roundtrip(residual.add_(delta), rng)
        residual.sub_(sent)
        return sent


def in_buckets(delta: torch.Tensor, bucket_size: int) -> torch.Tensor:
    """[num_buckets, bucket_size]: consecutive entries of `delta` [P], the last bucket filled up with zeros."""
    return F.pad(delta, (0, -len(delta) % bucket_size)).view(-1, bucket_size)
