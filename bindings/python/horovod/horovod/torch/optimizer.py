"""`hvd.torch.DistributedOptimizer`, with `backward()` as scripts for Horovod have it: it does not wait for gradients,
which are reduced until `step()`, and `synchronize()` comes before whatever reads them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

import hvd.torch as _hvd
from hvd.torch.optimizer import _Distributed as _DistributedOptimizer  # for annotations in scripts  # noqa: F401

__all__ = ["DistributedOptimizer"]


@functools.wraps(_hvd.DistributedOptimizer)
def DistributedOptimizer(*args: Any, **kwargs: Any) -> torch.optim.Optimizer:
    wrapped = _hvd.DistributedOptimizer(*args, **{"wait_in_backward": False, **kwargs})
    type(wrapped).__module__ = __name__  # scripts look for "horovod" in it, so as not to wrap an optimizer twice
    return wrapped
