"""Gradients added up on this rank over several backward passes, before they are reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvd.process_set import ProcessSet, global_process_set


class LocalGradientAggregationHelper:
    """Adds up gradients over `backward_passes_per_step` calls, reduces the sums in the last of them, and lets an
    optimizer act only then. In eager mode, within tf.function, and in graphs of tf.compat.v1.

    Args:
        backward_passes_per_step: how many calls make a step.
        allreduce_func: reduces a list of gradients; called as allreduce_func(gradients, variables).
        sparse_as_dense: makes IndexedSlices dense, as sums always are.
        average_aggregated_gradients: the sums are divided by the number of calls.
        rank, optimizer_type, process_set, scale_local_gradients: change nothing; for scripts that give them.
        counts_passes: whether the optimizer's `iterations`, or the global_step that apply_gradients() is given, counts
            calls, not steps.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        rank: int | None = None,
        optimizer_type: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        counts_passes: bool = False,
    ) -> None:
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step must be at least 1, not {backward_passes_per_step}")
        self.backward_passes_per_step = backward_passes_per_step
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.counts_passes = counts_passes
        self._reduce = allreduce_func
        self._sums: list[Any] | None = None  # by position; None where there is no gradient
        self._passes: Any = None  # since the last step; a variable
        self._returned: list[Any] = []  # by compute_gradients() in a graph; what counts the pass comes after it

    @property
    def counter(self) -> Any:
        """Calls since the last step, as a variable; None before the first one."""
        return self._passes

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Adds the gradients to the sums. Those that are returned are reduced ones in the last pass of a step, and not
        to be used in the others: `apply_gradients` does not."""
        if self.backward_passes_per_step == 1:
            return self._reduce(list(grads), list(vars))
        dense = [tf.convert_to_tensor(gradient) if gradient is not None else None for gradient in grads]
        self._make_sums(dense)
        assert self._sums is not None
        if late := [i for i, gradient in enumerate(dense) if gradient is not None and self._sums[i] is None]:
            raise ValueError(
                f"the gradients of variables {late} were None in the first backward pass, and are not now: with "
                f"backward_passes_per_step={self.backward_passes_per_step} give zeros where a pass has no gradient"
            )
        added = [
            self._sums[i].assign_add(gradient, read_value=False)
            for i, gradient in enumerate(dense)
            if gradient is not None
        ]
        with tf.control_dependencies([each for each in added if each is not None and not tf.executing_eagerly()]):
            present = [total for total in self._sums if total is not None]
            returned = tf.cond(self._is_last_pass(), lambda: self._reduced_sums(vars), lambda: _zeros(present))
        self._returned = [] if tf.executing_eagerly() else list(returned)
        returned = iter(returned)
        return [None if total is None else next(returned) for total in self._sums]

    def forget(self) -> None:
        """Begins anew, when training goes back to an earlier state. In eager mode only."""
        for total in [] if self._sums is None else [self._passes, *self._sums]:
            if total is not None:
                total.assign(tf.zeros_like(total))

    def _make_sums(self, gradients: Sequence[Any]) -> None:
        if self._sums is not None:
            return
        with tf.init_scope():
            self._passes = _local_variable(tf.constant(0, tf.int64), "hvd_backward_passes")
            self._sums = [
                None
                if gradient is None
                else _local_variable(tf.zeros(gradient.shape, gradient.dtype), "hvd_gradient_sum")
                for gradient in gradients
            ]

    def _is_last_pass(self) -> Any:
        return tf.equal(self._passes, self.backward_passes_per_step - 1)

    def _reduced_sums(self, variables: Sequence[Any]) -> list[Any]:
        assert self._sums is not None
        sums = [None if total is None else tf.identity(total) for total in self._sums]
        if self.average_aggregated_gradients:
            sums = [None if total is None else total / self.backward_passes_per_step for total in sums]
        reduced = self._reduce(sums, list(variables))
        with tf.control_dependencies([each for each in reduced if each is not None and not tf.executing_eagerly()]):
            cleared = [
                total.assign(tf.zeros_like(total), read_value=False) for total in self._sums if total is not None
            ]
        with tf.control_dependencies([each for each in cleared if each is not None and not tf.executing_eagerly()]):
            return [tf.identity(each) for each in reduced if each is not None]

    def apply_gradients(
        self,
        apply_grads_closure: Callable[[], Any],
        optimizer: Any,
        *args: Any,
        global_step: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Calls the closure in the last pass of a step, and counts the pass.

        Args:
            apply_grads_closure: lets the optimizer act on what `compute_gradients` returned.
            optimizer: whose `iterations` are counted on in the other passes, with `counts_passes`.
            global_step: what is counted on instead, as tf.compat.v1's optimizers have it.
            args, kwargs: change nothing; for scripts that give them.
        """
        if self.backward_passes_per_step == 1:
            return apply_grads_closure()

        def act() -> tf.Tensor:
            result = apply_grads_closure()
            dependencies = [result] if isinstance(result, (tf.Operation, tf.Tensor)) else []
            with tf.control_dependencies([] if tf.executing_eagerly() else dependencies):
                return tf.constant(True)

        counter = global_step if global_step is not None else getattr(optimizer, "iterations", None)

        def count() -> tf.Tensor:
            counted = tf.constant(0) if counter is None or not self.counts_passes else counter.assign_add(1)
            with tf.control_dependencies([] if tf.executing_eagerly() else [counted]):
                return tf.constant(False)

        acted = tf.cond(self._is_last_pass(), act, count)
        with tf.control_dependencies([] if tf.executing_eagerly() else [acted, *self._returned_here()]):
            following = tf.math.floormod(self._passes + 1, self.backward_passes_per_step)
            return self._passes.assign(following, read_value=False) or acted

    def _returned_here(self) -> list[Any]:
        """In sessions nothing else says that a pass is counted after compute_gradients() has looked at the count."""
        graph = tf.compat.v1.get_default_graph()
        return [each for each in self._returned if each.graph is graph]


def _local_variable(value: tf.Tensor, name: str) -> Any:
    """In graphs of tf.compat.v1 one that savers and broadcasts leave out."""
    if tf.executing_eagerly():
        return tf.Variable(value, trainable=False, name=name)
    collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return tf.compat.v1.Variable(value, trainable=False, collections=collections, name=name, use_resource=True)


def _zeros(tensors: Sequence[Any]) -> list[Any]:
    return [tf.zeros_like(tensor) for tensor in tensors]
