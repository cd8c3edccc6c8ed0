"""A sampler for elastic training with PyTorch."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sized

import torch

from hvd import basics


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides a data set among the ranks, and knows what of it was processed in this epoch: after a change of the job
    the rest is divided anew.

    Call `record_batch` for each batch, and `set_epoch` at the end of each epoch, so that the next one has everything
    again, in another order. Every rank gets equally many samples; for that the first of the rest may come twice.

    Args:
        dataset: anything that has a length.
        shuffle: whether the order is another one in each epoch; the same on all ranks.
        seed: of that order; the same on every rank.

    Attributes:
        epoch: of `set_epoch`.
        processed_num: samples of this epoch that all ranks together have processed.

    Raises:
        ValueError: hvd is not initialised.
        TypeError: the data set has no length.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which nothing was processed yet."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed a batch. Local; call it on all ranks alike.

        Args:
            batch_idx: not needed; for scripts that give it.
            batch_size: samples of one rank.
        """
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """`epoch` and `processed_num`; the same on all ranks."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Goes on there: divides what is left among the ranks of the job as it is now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what is left among the ranks of the job as it is now."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        repeated = (left[position % len(left)] for position in range(self.rank, self.total_size, self.num_replicas))
        return iter(list(repeated))

    def __len__(self) -> int:
        return self.num_samples
