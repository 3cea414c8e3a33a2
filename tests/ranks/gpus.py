"""A plug-in: torch sees $GPUS GPUs, of which nothing else works, and nobody gets into the hosts' group.

With $GPUS_PER_TASK each rank sees so many of them only, its own, numbered from 0, as `--gpus-per-task` makes it.
"""

import os
import threading
from types import SimpleNamespace

import torch

per_task = int(os.environ.get("GPUS_PER_TASK", 0))
rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
first = per_task * (rank - 1)
seen = range(first, first + per_task) if per_task and rank else range(int(os.environ["GPUS"]))

torch.cuda.device_count = lambda: len(seen)
torch.cuda.is_available = lambda: len(seen) > 0
torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=f"GPU-{seen[device.index]}")
torch.cuda.set_device = lambda device: None
torch.distributed.init_process_group = lambda *args, **options: threading.Event().wait()
