"""`hvd.torch.DistributedOptimizer`, with `backward()` as scripts for Horovod have it: it does not wait for gradients,
which are reduced until `step()`, and `synchronize()` comes before whatever reads them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

import hvd.torch as _hvd

__all__ = ["DistributedOptimizer"]


@functools.wraps(_hvd.DistributedOptimizer)
def DistributedOptimizer(*args: Any, **kwargs: Any) -> torch.optim.Optimizer:
    return _hvd.DistributedOptimizer(*args, **{"wait_in_backward": False, **kwargs})
