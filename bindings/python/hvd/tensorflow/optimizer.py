"""DistributedOptimizer: for tf.compat.v1's optimizers itself, for Keras's by way of `hvd.keras`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd.process_set import ProcessSet, global_process_set, numbered_name
from hvd.reduce_op import Average
from hvd.tensorflow.aggregation import LocalGradientAggregationHelper
from hvd.tensorflow.compression import Compression, Compressor
from hvd.tensorflow.gradients import GradientReducer


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """One of tf.compat.v1.train's optimizers, whose `compute_gradients` reduces what it computes over the ranks."""

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        reducer: GradientReducer,
        passes: LocalGradientAggregationHelper,
    ) -> None:
        super().__init__(use_locking, name)
        self._optimizer, self._reducer, self._aggregation = optimizer, reducer, passes

    def register_local_var(self, var: Any) -> None:
        """The gradients of this variable stay this rank's own."""
        self._reducer.register_local_source(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer's, reduced over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        reduced = self._aggregation.compute_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """As the optimizer's; in the last backward pass of a step."""
        pairs = list(grads_and_vars)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(pairs, global_step, name), self._optimizer, global_step=global_step
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer, of tf.compat.v1.train or of Keras: gradients are reduced over all ranks before it acts on
    them. Every rank must make the same optimizers, in the same order, over variables of the same shapes.

    Args:
        optimizer: the one to be wrapped.
        name: of the wrapping optimizer.
        use_locking: see tf.compat.v1.train.Optimizer.
        device_dense, device_sparse: where the reductions are to be placed, as for tf.device.
        backward_passes_per_step: gradients are added up over so many passes, and reduced in the last.
        average_aggregated_gradients: those sums are divided by the number of passes.
        The others as for `hvd.tensorflow.gradients.GradientReducer`.

    Returns:
        An optimizer of the same kind.

    Raises:
        ValueError: it is of neither kind, or arguments are wrong.
    """
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from hvd.keras.optimizer import DistributedOptimizer as of_keras

        return of_keras(
            optimizer,
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            backward_passes_per_step=backward_passes_per_step,
            op=op,
            gradient_predivide_factor=gradient_predivide_factor,
            average_aggregated_gradients=average_aggregated_gradients,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    reducer = GradientReducer(
        name=numbered_name(process_set, "optimizer"),
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )
    passes = LocalGradientAggregationHelper(
        backward_passes_per_step, reducer, sparse_as_dense, average_aggregated_gradients
    )
    return _DistributedOptimizer(
        optimizer, name or f"Distributed{type(optimizer).__name__}", use_locking, reducer, passes
    )
