"""Gluon's trainer, with gradients that are summed over the ranks."""

from __future__ import annotations

import warnings
from typing import Any

import mxnet

from hvd.mxnet.compression import Compression
from hvd.mxnet.gradients import GradientSummer
from hvd.mxnet.optimizer import DistributedOptimizer
from hvd.process_set import ProcessSet, global_process_set


class DistributedTrainer(mxnet.gluon.Trainer):
    """A `gluon.Trainer` whose `step` makes the update with the gradients of all ranks, as one process with all their
    batches would. `batch_size` is that of each rank.

    `allreduce_grads()` leaves sums in the gradients; `update()` divides them by the number of ranks.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """
        Args:
            params, optimizer, optimizer_params: see `gluon.Trainer`; the same parameters in the same order on every
                rank, each on one device.
            compression: what makes gradients smaller while they are sent, such as `Compression.fp16`.
            gradient_predivide_factor: gradients are divided by it before they are summed, and by the rest of the number
                of ranks afterwards.
            prefix: begins the names of the operations.
            num_groups: into how many groups the gradients are divided, each of which is one operation. 0: an operation
                for each gradient.
            process_set: the ranks that train together; on others gradients stay as they are.

        Raises:
            ValueError: a factor or number makes no sense, hvd is not initialised, or a parameter is on several devices.
        """
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer sums gradients itself: give it the optimizer without hvd", stacklevel=2)
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        if len(self._contexts) > 1:
            raise ValueError(f"the parameters are on {len(self._contexts)} devices: start a process for each")
        settings = gradient_predivide_factor, num_groups, process_set, compression
        self._summer = GradientSummer("DistributedTrainer", prefix or "", *settings)
        self._scale *= self._summer.scale

    def _allreduce_grads(self) -> None:
        trained = [i for i, parameter in enumerate(self._params) if parameter.grad_req != "null"]
        self._summer.sum(trained, [self._params[i].list_grad()[0] for i in trained])
