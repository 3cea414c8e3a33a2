"""Update compression: lossy encodings of an update on its way up, and what a host does with them.

Shapes: P parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from hpctrip.base.rng import stream
from hpctrip.base.validate import numbers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.learn.params import check_finite, check_params

if TYPE_CHECKING:
    import torch


class Compression(Component):
    """Base of update compressions: a lossy encoding of an update on its way up, from a site to the aggregator.

    The model's way down is not compressed. Encodings have a fixed length, so the size of a payload follows from P.
    """

    lossless: ClassVar[bool] = False
    """True where the decoded update equals the encoded one: then no random number is drawn and nothing is copied."""

    @property
    def keeps_residual(self) -> bool:
        """Error feedback: whether a site keeps what its encodings lost and adds it to its next update."""
        return False

    def payload_bytes(self, num_params: int) -> float:
        """Size of an encoded update of `num_params` parameters, in bytes."""
        raise NotImplementedError

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """The decoded update, float32 [P], on the device of `delta` [P], which is not changed.

        An update that is not finite decodes to one that is not finite, which the sum then refuses.
        """
        raise NotImplementedError

    def sent_fraction(self, num_params: int, num_buffers: int = 0) -> float:
        """Size of the payload and of the model's buffers, which are never compressed, relative to the float32 update.
        Raises InputError where it is not finite or below 0."""
        size, place = self.payload_bytes(num_params), config_key("compression", self)
        payload = float(numbers(size, (), 0.0, np.finfo(float).max, place, "payload_bytes"))
        return (payload + 4 * num_buffers) / (4 * (num_params + num_buffers))

    def check(self, num_params: int, seed: int) -> None:
        """Sends a small update before the first round. Raises InputError where it arrives as no finite float32 vector
        [P]."""
        import torch

        arriving = self.send(torch.linspace(-1e-3, 1e-3, num_params), seed, round=0, site=0)
        check_finite(arriving, config_key("compression", self), "a decoded update")

    def send(
        self, delta: torch.Tensor, seed: int, round: int, site: int, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """A site's update `delta` [P] as the aggregator decodes it; the update did not diverge.

        Random numbers come from the stream (seed, "compression", round, site). With error feedback (Stich et al. 2018;
        Karimireddy et al. 2019, Algorithm 1): send C(e + delta), keep e + delta - C(e + delta) as the next e, where e
        is the site's `residual` [P], which is changed in place. Raises InputError where the decoded update is no
        float32 vector [P] on delta's device.
        """
        if self.lossless:
            return delta
        update = delta if residual is None else residual.add_(delta)
        decoded = self.roundtrip(update, stream(seed, "compression", round, site))
        check_params(decoded, delta, config_key("compression", self), "a decoded update")
        if residual is not None:
            residual.sub_(decoded)
        return decoded


COMPRESSIONS = Registry("update compression", default="none")
_MOST_STEPS = 127
"""Int8 steps of a bucket's largest entry; -128 is unused, so that both signs have the same range."""


@COMPRESSIONS.add
class Uncompressed(Compression):
    """float32, 4 bytes per entry."""

    kind = "none"
    lossless = True

    def payload_bytes(self, num_params: int) -> float:
        """4 P."""
        return 4.0 * num_params

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """The update itself."""
        return delta


@COMPRESSIONS.add
class Half(Compression):
    """A 16-bit floating-point format, rounded to nearest."""

    kind = "half"
    format: Literal["float16", "bfloat16"] = "float16"
    """float16: relative error up to 2^-11 from 6e-5 to 65,504, absolute error up to 2^-25 below. bfloat16: relative
    error up to 2^-8 over float32's whole range."""

    def payload_bytes(self, num_params: int) -> float:
        """2 P."""
        return 2.0 * num_params

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """To the format and back. Beyond float16's range: infinite, so the update counts as diverged."""
        return (delta.half() if self.format == "float16" else delta.bfloat16()).float()


@COMPRESSIONS.add
class Int8(Compression):
    """Linear quantisation to -127..127 with one scale per bucket, its largest magnitude / 127, rounded to nearest.

    An entry's error is at most half the scale: 1/254 of the bucket's largest entry.
    """

    kind = "int8"
    bucket_size: int = Field(512, ge=1)
    """Consecutive entries that share a scale."""

    def payload_bytes(self, num_params: int) -> float:
        """P, and 4 bytes a bucket for the scale."""
        return num_params + 4.0 * math.ceil(num_params / self.bucket_size)

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Round to whole multiples of the bucket's scale."""
        entries = in_buckets(delta, self.bucket_size)
        scale = entries.abs().amax(dim=1, keepdim=True) / _MOST_STEPS
        steps = (entries / scale.masked_fill(scale == 0, 1)).round_().clamp_(-_MOST_STEPS, _MOST_STEPS)
        return (steps * scale).view(-1)[: len(delta)]


@COMPRESSIONS.add
class QSGD(Compression):
    """Unbiased stochastic quantisation to a few levels of a bucket's 2-norm (Alistarh et al. 2017, Sec. 3.1).

    v_i becomes ||v|| sgn(v_i) l / s, where ||v|| is the 2-norm of its bucket and l one of the two integers around
    s |v_i| / ||v||, drawn so that the mean is v_i. The squared error of a bucket of n is at most
    min(n / s^2, sqrt(n) / s) ||v||^2 on average (Lemma 3.1). The paper's Elias code would be shorter still; here
    entries have a fixed length.
    """

    kind = "qsgd"
    levels: int = Field(7, ge=1, le=127)
    """s: an entry takes one of 2 s + 1 values. 1: 2 bits, 7: 4 bits, 127: 8 bits."""
    bucket_size: int = Field(128, ge=1)
    """n: consecutive entries that share a norm. Fewer mean less noise, and 32 / n more bits per entry."""

    def payload_bytes(self, num_params: int) -> float:
        """ceil(log2(2 s + 1)) bits an entry, in whole bytes, and 4 bytes a bucket for the norm."""
        bits = (2 * self.levels).bit_length()
        return math.ceil(bits * num_params / 8) + 4.0 * math.ceil(num_params / self.bucket_size)

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Draw a level for every entry."""
        import torch

        entries = in_buckets(delta, self.bucket_size)
        # in float64, where the square of no float32 over- or underflows
        norm = torch.linalg.vector_norm(entries, dim=1, keepdim=True, dtype=torch.float64).float()
        exact = entries.abs() / norm.masked_fill(norm == 0, 1) * self.levels
        below = exact.floor()
        # drawn by NumPy, so that the same numbers come on every device
        draw = torch.from_numpy(rng.random(entries.shape, dtype=np.float32)).to(delta.device)
        level = (below + (draw < exact - below)).clamp_(max=self.levels)
        return (entries.sign() * level * (norm / self.levels)).view(-1)[: len(delta)]


@COMPRESSIONS.add
class TopK(Compression):
    """The k entries of largest magnitude, each with its index; the others are 0.

    This is biased: with different sites it may not converge, unless every site adds the unsent entries to its next
    update (error feedback: Stich et al. 2018; Karimireddy et al. 2019), which takes 4 P bytes of memory per site.
    """

    kind = "top-k"
    fraction: float = Field(0.01, gt=0, le=0.5)
    """k / P; at least one entry is sent. Beyond one half the indices cost more than the zeros saved."""
    error_feedback: bool = True
    """Add unsent entries to the site's next update."""

    @property
    def keeps_residual(self) -> bool:
        """With error feedback."""
        return self.error_feedback

    def num_sent(self, num_params: int) -> int:
        """k."""
        return max(1, round(self.fraction * num_params))

    def payload_bytes(self, num_params: int) -> float:
        """4 bytes for a value and 4 for its index."""
        return 8.0 * self.num_sent(num_params)

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Zero but for the k largest."""
        largest = delta.abs().topk(self.num_sent(len(delta)), sorted=False).indices
        return delta.new_zeros(delta.shape).index_copy_(0, largest, delta[largest])


def in_buckets(delta: torch.Tensor, bucket_size: int) -> torch.Tensor:
    """[num_buckets, bucket_size]: consecutive entries of `delta` [P], the last bucket filled up with zeros."""
    import torch.nn.functional as F

    return F.pad(delta, (0, -len(delta) % bucket_size)).view(-1, bucket_size)
