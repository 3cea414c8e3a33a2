"""Hardware of the cluster: nodes of GPUs in racks, their idle power and boot time."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpctrip.base.units import Seconds, Watts
from hpctrip.config.component import Component

MOST_GPUS = 1_000_000


class Machine(Component):
    """Equal nodes of equal GPUs. A node that is on draws `host_w`, and each free GPU in it draws its idle power."""

    num_nodes: int = Field(16, ge=1, le=100_000)
    """Number of nodes."""
    gpus_per_node: int = Field(8, ge=1, le=64)
    """Number of GPUs of a node."""
    nodes_per_rack: int = Field(16, ge=1, le=100_000)
    """Number of nodes of a rack. A job of several nodes is placed within one rack if possible."""
    host_w: Watts = Field(600.0, ge=0)
    """Power of a node that is on or booting, without its GPUs."""
    off_after_s: Annotated[Seconds, Field(ge=0, le=1e9)] | Literal["never"] = 300.0
    """Time after which a node without a job is switched off, or "never"."""
    boot_s: Seconds = Field(120.0, ge=0, le=1e6)
    """Time from switching a node on until it can run a job."""
    hot_spares: int = Field(0, ge=0, le=100_000)
    """Number of nodes without a job that stay on."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return self.product_at_most(MOST_GPUS, "num_nodes", "gpus_per_node")

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return self.num_nodes * self.gpus_per_node
