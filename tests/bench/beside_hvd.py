"""gloo in the processes of an hvd job."""

from __future__ import annotations

import tempfile

import torch.distributed as dist

import hvd.torch as hvd


def start_gloo() -> None:
    """The default process group of torch.distributed, of all ranks. hvd is initialised."""
    path = tempfile.mktemp(prefix="gloo-") if hvd.rank() == 0 else None
    path = hvd.broadcast_object(path)
    dist.init_process_group("gloo", store=dist.FileStore(path, hvd.size()), rank=hvd.rank(), world_size=hvd.size())
