"""The reader for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from hvd.data.reader import Reader


class Batches(torch.utils.data.IterableDataset[dict[str, Any]]):
    """The batches of a reader as dictionaries of tensors; columns of objects stay lists. Its state is the reader's."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __len__(self) -> int:
        return len(self.reader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                "hvd.data reads ahead in threads, and counts what was processed: use DataLoader(..., batch_size=None, "
                "num_workers=0)"
            )
        return self.reader.batches(_tensors)

    def state_dict(self) -> dict[str, Any]:
        return self.reader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.reader.load_state_dict(state_dict)


def _tensors(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: _tensor(values) for name, values in columns.items()}


def _tensor(values: Any) -> Any:
    if values.dtype.kind not in "biufc":
        return values.tolist()
    return torch.from_numpy(values if values.flags.writeable else np.array(values))
