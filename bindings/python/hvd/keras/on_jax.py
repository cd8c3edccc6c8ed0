"""Keras 3 on JAX, whose training step is compiled as a whole: gradients are reduced in it.

Such a step is a function of the values of all variables (`stateless_apply`). While one is traced, assignments to
variables are noted, and a branch of `cond` cannot make them: it returns what they would be.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

import jax
import jax.numpy as jnp
import keras
import numpy as np

import hvd
import hvd.jax
from hvd.jax.errors import translated
from hvd.keras import gradients
from hvd.keras.backend import Backend
from hvd.keras.framework import native, wrap_method
from hvd.keras.reduction import is_distributed, reduction_of

if TYPE_CHECKING:
    Behaviour = Any  # the optimizer's class, which comes after it in the bases
else:
    Behaviour = object


class OnJax(Backend):
    package = hvd.jax

    def tensor(self, value: Any) -> Any:
        """NumPy's stay what they are: JAX would make 32 bits of 64."""
        return value if isinstance(value, jax.Array) else np.asarray(value)

    def copied(self, variable: Any) -> Any:
        with translated():
            return np.array(variable)  # waits for the step that it is a result of; a later one may be donated it

    def allreduce(self, tensor: Any, compression: Any = None, **options: Any) -> Any:
        compressor = compression or self.package.Compression.none
        compressed, context = compressor.compress(jnp.asarray(tensor) if compression else tensor)
        return compressor.decompress(_collectives_for(tensor).allreduce(compressed, **options), context)

    def allgather(self, tensor: Any, name: str | None) -> Any:
        return _collectives_for(tensor).allgather(tensor, name=name)

    def broadcast(self, tensor: Any, root_rank: int, name: str | None) -> Any:
        return _collectives_for(tensor).broadcast(tensor, root_rank, name=name)

    def reducescatter(self, tensor: Any, name: str | None, op: int) -> Any:
        return _collectives_for(tensor).reducescatter(tensor, name=name, op=op)

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int) -> None:
        for variable in variables:
            if not isinstance(variable, keras.Variable):
                raise ValueError(f"a variable of Keras is needed, not {type(variable).__name__}: JAX has none")
        with translated():
            received = jax.block_until_ready(
                self.package.broadcast_tree([native(variable) for variable in variables], root_rank)
            )
        for variable, value in zip(variables, received):
            variable.assign(value)

    def reducer(self, **settings: Any) -> Any:
        return GradientReducer(**settings)

    def aggregation(self, passes: int, reduce: Callable[..., Any], averages: bool) -> Any:
        return Accumulation(passes, reduce, averages) if passes > 1 else OnePass(reduce)

    def behaviour(self) -> tuple[type, ...]:
        return (Accumulating,)

    def adopt(self, optimizer: Any) -> None:
        if optimizer.built:
            optimizer._reduction.aggregation.build(optimizer)

    def attach(self, keras: Any) -> None:
        wrap_method(keras.optimizers.LossScaleOptimizer, "stateless_apply", _reducing_first)
        for method in ("fit", "train_on_batch"):
            wrap_method(keras.Model, method, _waiting)

    def attach_state(self, model: Any) -> None:
        model.jax_state_sync()


def _collectives_for(tensor: Any) -> Any:
    """Outside of a program those of arrays, whose ranks may have different numbers of rows."""
    return hvd.jax if isinstance(tensor, jax.core.Tracer) else hvd


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Model.fit and train_on_batch. Steps run in the background: without waiting for the last one, nobody would hear of
    a rank that is lost."""

    @functools.wraps(method)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_distributed(getattr(self, "optimizer", None)):
            return method(self, *args, **kwargs)
        with translated():
            result = method(self, *args, **kwargs)
            jax.block_until_ready([variable.value for variable in self.variables])
        return result

    return waiting


def _reducing_first(stateless_apply: Callable[..., Any]) -> Callable[..., Any]:
    """LossScaleOptimizer.stateless_apply: see `hvd.keras.attachment`."""

    @functools.wraps(stateless_apply)
    def apply_reduced(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        reduction = reduction_of(self.inner_optimizer)
        if reduction is None:
            return stateless_apply(self, optimizer_variables, grads, trainable_variables)
        if reduction.passes > 1:
            raise ValueError(
                "with Keras on JAX, backward_passes_per_step does not go with a LossScaleOptimizer: give the inner "
                "optimizer gradient_accumulation_steps instead"
            )
        reduced = reduction.reduced(list(grads), self.inner_optimizer._trainable_variables)
        with reduction.done():
            return stateless_apply(self, optimizer_variables, reduced, trainable_variables)

    return apply_reduced


class GradientReducer(gradients.GradientReducer):
    def kind(self, gradient: Any) -> str:
        return "gradients"

    def reduce(self, groups: list[gradients.Group]) -> list[list[Any]]:
        return [self._reduced(name, members) for name, members in groups]

    def _reduced(self, name: str, members: list[Any]) -> list[Any]:
        compressed = [self.compression.compress(jnp.asarray(gradient)) for gradient in members]
        arrays = [array for array, _ in compressed]
        reduced = hvd.jax.grouped_allreduce(arrays, self.op, name, *self.factors, self.process_set)
        return [self.compression.decompress(array, context) for array, (_, context) in zip(reduced, compressed)]


class OnePass:
    """`Accumulation` of one pass: without state."""

    counts_passes = False

    def __init__(self, reduce: Callable[..., list[Any]]) -> None:
        self._reduce = reduce

    def build(self, optimizer: Any) -> None:
        """There is nothing to add up."""

    def own_variables(self) -> list[Any]:
        return []

    def forget(self) -> None:
        """There is nothing to forget."""

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        return self._reduce(list(gradients), variables)

    def apply_gradients(self, update: Callable[[], object], optimizer: Any) -> None:
        update()


class Accumulation:
    """Adds up the gradients of several backward passes on this rank, in variables of the optimizer, since nothing else
    lasts from one call of a compiled step to the next. Methods as of `hvd.tensorflow.LocalGradientAggregationHelper`.

    Args:
        passes: how many.
        reduce: called with the sums after the last one, and the variables.
        average: whether the sums are divided by their number before that.
    """

    def __init__(self, passes: int, reduce: Callable[..., list[Any]], average: bool) -> None:
        self._passes, self._reduce = passes, reduce
        self._divisor = passes if average else 1
        self.counts_passes = False
        self._counter: Any = None  # passes since the last step
        self._sums: list[Any] = []
        self._is_last: Any = None  # of the pass whose gradients were taken

    def build(self, optimizer: Any) -> None:
        if self._counter is None:
            self._counter = optimizer.add_variable((), dtype="int32", name="passes")
            self._sums = [
                optimizer.add_variable_from_reference(variable, name="sum")
                for variable in optimizer._trainable_variables
            ]
            self._position = {id(variable): i for i, variable in enumerate(optimizer._trainable_variables)}

    def own_variables(self) -> list[Any]:
        return [] if self._counter is None else [self._counter, *self._sums]

    @property
    def counter(self) -> int:
        return 0 if self._counter is None else int(self._counter.value)

    def forget(self) -> None:
        for variable in self.own_variables():
            variable.assign(jnp.zeros_like(variable.value))

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Takes the gradients of a pass. Returns the reduced sums after the last one, and nothing of use before."""
        sums = [self._sums[self._position[id(variable)]] for variable in variables]
        totals = [
            None if gradient is None else total.value + gradient for total, gradient in zip(sums, gradients)
        ]  # fmt: skip
        self._is_last = self._counter.value == self._passes - 1
        self._counter.assign(jnp.where(self._is_last, 0, self._counter.value + 1))
        for variable, total in zip(sums, totals):
            if total is not None:
                variable.assign(jnp.where(self._is_last, jnp.zeros_like(total), total))

        def reduce() -> list[Any]:
            return self._reduce([None if total is None else total / self._divisor for total in totals], variables)

        return list(jax.lax.cond(self._is_last, reduce, lambda: totals))

    def apply_gradients(self, update: Callable[[], object], optimizer: Any) -> None:
        """Calls `update`, whose assignments count after the last pass."""
        own = {id(variable) for variable in self.own_variables()}
        variables = [v for v in (*optimizer._trainable_variables, *optimizer.variables) if id(v) not in own]
        before = [variable.value for variable in variables]

        def step() -> list[Any]:
            return _values_after(update, variables, before)

        def wait() -> list[Any]:
            if not self.counts_passes:
                return before
            return _values_after(lambda: optimizer.iterations.assign_add(1), variables, before)

        for variable, value in zip(variables, jax.lax.cond(self._is_last, step, wait)):
            variable.assign(value)


def _values_after(assign: Callable[[], object], variables: list[Any], before: list[Any]) -> list[Any]:
    with keras.StatelessScope(state_mapping=list(zip(variables, before))) as scope:
        assign()
    return [scope.get_current_value(variable) for variable in variables]


class Accumulating(Behaviour):
    """What a distributed optimizer of Keras on JAX does besides: it has the variables of its Accumulation, which are
    not saved with the model, so that it is loaded without hvd."""

    def build(self, variables: Sequence[Any]) -> None:
        super().build(variables)
        self._reduction.aggregation.build(self)

    def _saved_variables(self) -> list[Any]:
        own = {id(variable) for variable in self._reduction.aggregation.own_variables()}
        return [variable for variable in self.variables if id(variable) not in own]

    def save_own_variables(self, store: Any) -> None:
        for number, variable in enumerate(self._saved_variables()):
            store[str(number)] = keras.ops.convert_to_numpy(variable.value)

    def load_own_variables(self, store: Any) -> None:
        variables = self._saved_variables()
        if len(store.keys()) != len(variables):
            super().load_own_variables(store)  # says what is wrong
            return
        for number, variable in enumerate(variables):
            variable.assign(store[str(number)])


BACKEND = OnJax()
