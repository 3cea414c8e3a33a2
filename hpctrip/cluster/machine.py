"""The cluster itself: nodes of GPUs in racks, and what it costs to have them on."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpctrip.base.units import Seconds, Watts
from hpctrip.config.component import Component

MOST_GPUS = 1_000_000


class Machine(Component):
    """Equal nodes of equal GPUs. A node that is on draws `host_w`, a free GPU in it its idle power."""

    num_nodes: int = Field(16, ge=1, le=100_000)
    """Nodes."""
    gpus_per_node: int = Field(8, ge=1, le=64)
    """GPUs of a node."""
    nodes_per_rack: int = Field(16, ge=1, le=100_000)
    """Nodes of a rack; a job of several nodes is kept within one where it can be."""
    host_w: Watts = Field(600.0, ge=0)
    """Power of a node that is on or booting, without its GPUs."""
    off_after_s: Annotated[Seconds, Field(ge=0, le=1e9)] | Literal["never"] = 300.0
    """A node without a job is switched off after this time, or "never"."""
    boot_s: Seconds = Field(120.0, ge=0, le=1e6)
    """Time from switching a node on to its first job."""
    hot_spares: int = Field(0, ge=0, le=100_000)
    """So many nodes without a job stay on."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return self.product_at_most(MOST_GPUS, "num_nodes", "gpus_per_node")

    @property
    def num_gpus(self) -> int:
        """Of all nodes."""
        return self.num_nodes * self.gpus_per_node
