"""A plug-in: torch sees $GPUS GPUs, of which nothing else works, and nobody gets into the hosts' group."""

import os
import threading

import torch

torch.cuda.device_count = lambda: int(os.environ["GPUS"])
torch.cuda.set_device = lambda device: None
torch.distributed.init_process_group = lambda *args, **options: threading.Event().wait()
