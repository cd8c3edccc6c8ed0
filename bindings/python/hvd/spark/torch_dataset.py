"""Batches of a feed for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


class FedDataset(IterableDataset[Any]):
    """Each iteration is an epoch."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise ValueError("rows are fed to this process: use a DataLoader without workers (num_workers=0)")
        return map(_as_tensors, self._batches())


def _as_tensors(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _as_tensors(value) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(_as_tensors, batch))
    # What Arrow lends cannot be written to; text stays as it is.
    return list(batch) if batch.dtype == object else torch.from_numpy(np.require(batch, requirements=["W", "C"]))
