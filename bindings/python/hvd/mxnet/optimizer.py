"""An optimizer of MXNet that averages gradients over the ranks before each update: for the Module API."""

from __future__ import annotations

from typing import Any

import mxnet

from hvd.mxnet.gradients import GradientSummer
from hvd.process_set import ProcessSet, global_process_set

_OWN = ("_optimizer", "_summer")


class DistributedOptimizer(mxnet.optimizer.Optimizer):
    """Averages the gradients of all ranks in place, and lets another optimizer make the update.

    Everything else, such as `learning_rate`, is the other optimizer's. All ranks of the process set make the same
    updates in the same order. For gluon there is `DistributedTrainer`.
    """

    def __init__(
        self,
        optimizer: mxnet.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """
        Args:
            optimizer: which makes the updates.
            gradient_predivide_factor: gradients are divided by it before they are summed, and by the rest of the number
                of ranks afterwards.
            num_groups: into how many groups the gradients of an update are divided, each of which is one operation. 0:
                an operation for each gradient.
            process_set: the ranks that train together; on others gradients stay as they are.

        Raises:
            ValueError: a factor or number makes no sense, or hvd is not initialised.
        """
        if not isinstance(optimizer, mxnet.optimizer.Optimizer):
            raise TypeError(f"optimizer is a {type(optimizer).__name__}: expected a mxnet.optimizer.Optimizer")
        summer = GradientSummer("DistributedOptimizer", "", gradient_predivide_factor, num_groups, process_set)
        self.__dict__.update(_optimizer=optimizer, _summer=summer)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN or name.startswith("__"):  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def _average(self, index: Any, grad: Any) -> None:
        is_one = not isinstance(index, (tuple, list))
        self._summer.sum([index] if is_one else index, [grad] if is_one else grad, self._summer.scale)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)

    def __reduce__(self) -> Any:
        return _restored, (self._optimizer, self._summer)


def _restored(optimizer: mxnet.optimizer.Optimizer, summer: GradientSummer) -> DistributedOptimizer:
    result = DistributedOptimizer.__new__(DistributedOptimizer)
    result.__dict__.update(_optimizer=optimizer, _summer=summer)
    return result
