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
from keras.src.backend.jax import trainer

import hvd
import hvd.jax
from hvd.jax import collectives, ordering
from hvd.jax.compression import reduce_compressed
from hvd.jax.errors import translated
from hvd.keras import gradients
from hvd.keras.backend import Backend
from hvd.keras.framework import native, wrap_method
from hvd.keras.reduction import is_distributed, reduction_of, reduction_within
from hvd.process_set import ProcessSet

if TYPE_CHECKING:
    Behaviour = Any  # the optimizer's class, which comes after it in the bases
else:
    Behaviour = object


class OnJax(Backend):
    package = hvd.jax

    def tensor(self, value: Any) -> Any:
        """NumPy's stay what they are: JAX would make 32 bits of 64."""
        return value if isinstance(value, jax.Array) else np.asarray(value)

    def to_numpy(self, tensor: Any) -> Any:
        return np.asarray(tensor)

    def snapshot(self, variable: Any) -> Any:
        """Waits for the step that has made it, since a later one may reuse its memory."""
        with translated():
            return np.array(variable)

    def allreduce(self, tensor: Any, compression: Any = None, **options: Any) -> Any:
        compressor = compression or self.package.Compression.none
        compressed, context = compressor.compress(tensor)
        return compressor.decompress(_collectives_for(tensor).allreduce(compressed, **options), context)

    def allgather(self, tensor: Any, name: str | None) -> Any:
        return _collectives_for(tensor).allgather(tensor, name=name)

    def broadcast(self, tensor: Any, root_rank: int, name: str | None) -> Any:
        return _collectives_for(tensor).broadcast(tensor, root_rank, name=name)

    def reducescatter(self, tensor: Any, name: str | None, op: int) -> Any:
        return _collectives_for(tensor).reducescatter(tensor, name=name, op=op)

    def why_not_a_variable(self, variable: Any) -> str | None:
        if isinstance(variable, keras.Variable):
            return None
        return f"JAX has no variables of its own: a keras.Variable is needed, not {type(variable).__name__}"

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet) -> None:
        with translated():
            received = jax.block_until_ready(
                self.package.broadcast_tree([native(variable) for variable in variables], root_rank, process_set)
            )
        for variable, value in zip(variables, received):
            variable.assign(value)

    def reducer(self, **settings: Any) -> Any:
        return GradientReducer(**settings)

    def saved_variables(self, optimizer: Any) -> list[Any]:
        reduction = reduction_within(optimizer)
        sums = reduction.aggregation.own_variables() if reduction is not None and reduction.passes > 1 else []
        return _without(sums, super().saved_variables(optimizer))

    def aggregation(self, passes: int, reduce: Callable[..., Any], averages: bool) -> Any:
        return Accumulation(passes, reduce, averages) if passes > 1 else OnePass(reduce)

    def optimizer_mixins(self, passes: int) -> tuple[type, ...]:
        return (Accumulating,) if passes > 1 else ()

    def on_distributed(self, optimizer: Any) -> None:
        if optimizer.built and isinstance(optimizer, Accumulating):
            optimizer._reduction.aggregation.build(optimizer)

    def refuse_passes_under_loss_scaling(self) -> None:
        raise ValueError(
            "with Keras on JAX, backward_passes_per_step does not go with a LossScaleOptimizer: give the inner "
            "optimizer gradient_accumulation_steps instead"
        )

    def patch_keras(self, keras: Any) -> None:
        wrap_method(keras.optimizers.LossScaleOptimizer, "stateless_apply", _reducing_first)
        for method in ("fit", "train_on_batch"):
            wrap_method(keras.Model, method, _waiting)
        wrap_method(keras.Model, "make_train_function", _compiling)

    def sync_variables(self, model: Any) -> None:
        model.jax_state_sync()

    def forget_ranks(self) -> None:
        ordering.forget_error()
        collectives.forget_place()


def _collectives_for(tensor: Any) -> Any:
    """Outside of a program those of arrays, whose ranks may have different numbers of rows."""
    return hvd.jax if isinstance(tensor, jax.core.Tracer) else hvd


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Model.fit and train_on_batch. Steps run in the background: without waiting for the last one, a lost rank could go
    unnoticed."""

    @functools.wraps(method)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_distributed(getattr(self, "optimizer", None)):
            return method(self, *args, **kwargs)
        with translated():
            result = method(self, *args, **kwargs)
            jax.block_until_ready([variable.value for variable in self.variables])
        return result

    return waiting


def _compiling(make_train_function: Callable[..., Any]) -> Callable[..., Any]:
    """Model.make_train_function: the step is compiled by `hvd.jax.jit`, whose calls take JAX a tenth of the time."""

    @functools.wraps(make_train_function)
    def making(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = getattr(trainer, "jit", None)
        if compiled is not jax.jit or not is_distributed(getattr(self, "optimizer", None)):
            return make_train_function(self, *args, **kwargs)
        trainer.jit = _jit
        try:
            return make_train_function(self, *args, **kwargs)
        finally:
            trainer.jit = compiled

    return making


def _jit(function: Callable[..., Any], *, out_shardings: Any = None, **options: Any) -> Callable[..., Any]:
    if out_shardings is not None:
        return jax.jit(function, out_shardings=out_shardings, **options)
    return hvd.jax.jit(function, **options)


def _reducing_first(stateless_apply: Callable[..., Any]) -> Callable[..., Any]:
    """LossScaleOptimizer.stateless_apply: see `hvd.keras.attachment`."""

    @functools.wraps(stateless_apply)
    def apply_reduced(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        reduction = reduction_of(self.inner_optimizer)
        if reduction is None:
            return stateless_apply(self, optimizer_variables, grads, trainable_variables)
        if reduction.passes > 1:
            BACKEND.refuse_passes_under_loss_scaling()
        reduced = reduction.reduced(list(grads), self.inner_optimizer._trainable_variables)
        with reduction.done():
            return stateless_apply(self, optimizer_variables, reduced, trainable_variables)

    return apply_reduced


class GradientReducer(gradients.GradientReducer):
    def __call__(self, gradients: gradients.Gradients, variables: Sequence[Any]) -> list[Any]:
        collectives.depend_on_place()  # whether there is anybody to reduce with is decided where this is traced
        return super().__call__(gradients, variables)

    def kind(self, gradient: Any) -> str:
        return "gradients"

    def reduce(self, groups: list[gradients.Group]) -> list[list[Any]]:
        return [self._reduced(name, members) for name, members in groups]

    def _reduced(self, name: str, members: list[Any]) -> list[Any]:
        reduce = functools.partial(
            hvd.jax.grouped_allreduce,
            op=self.op,
            prescale_factor=self.factors[0],
            postscale_factor=self.factors[1],
            process_set=self.process_set,
        )
        return list(reduce_compressed(members, name, self.compression, reduce))


class OnePass:
    """What `Accumulation` does for one pass: nothing lasts until the next one."""

    counts_passes = False

    def __init__(self, reduce: Callable[..., list[Any]]) -> None:
        self._reduce = reduce

    def forget(self) -> None:
        """There is nothing to forget."""

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        return self._reduce(list(gradients), variables)

    def apply_gradients(self, update: Callable[[], object], optimizer: Any) -> None:
        update()


class Accumulation:
    """Adds up the gradients of several backward passes on this rank, in variables of the optimizer, since nothing else
    lasts from one call of a compiled step to the next. Methods as in `hvd.tensorflow.LocalGradientAggregationHelper`.

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
        own = self.own_variables()
        variables = _without(own, [*optimizer._trainable_variables, *optimizer.variables])
        before = [variable.value for variable in variables]
        held = [(variable, variable.value) for variable in own]  # Keras's own accumulation reads all of an optimizer's

        def step() -> list[Any]:
            return _values_after(update, variables, before, held)

        def wait() -> list[Any]:
            if not self.counts_passes:
                return before
            return _values_after(lambda: optimizer.iterations.assign_add(1), variables, before, held)

        for variable, value in zip(variables, jax.lax.cond(self._is_last, step, wait)):
            variable.assign(value)


def _values_after(
    assign: Callable[[], object], variables: list[Any], before: list[Any], held: list[tuple[Any, Any]]
) -> list[Any]:
    """`held`: other variables that may be read, and their values."""
    with keras.StatelessScope(state_mapping=[*zip(variables, before), *held]) as scope:
        assign()
    return [scope.get_current_value(variable) for variable in variables]


def _without(left_out: list[Any], variables: list[Any]) -> list[Any]:
    ids = {id(variable) for variable in left_out}
    return [variable for variable in variables if id(variable) not in ids]


class Accumulating(Behaviour):
    """A distributed optimizer whose Accumulation has variables in it. They are not saved with the model, so that it can
    be loaded without hvd."""

    def build(self, variables: Sequence[Any]) -> None:
        super().build(variables)
        self._reduction.aggregation.build(self)

    def save_own_variables(self, store: Any) -> None:
        for number, variable in enumerate(BACKEND.saved_variables(self)):
            store[str(number)] = keras.ops.convert_to_numpy(variable.value)

    def load_own_variables(self, store: Any) -> None:
        variables = BACKEND.saved_variables(self)
        if len(store.keys()) != len(variables):
            super().load_own_variables(store)  # says what is wrong
            return
        for number, variable in enumerate(variables):
            variable.assign(store[str(number)])


BACKEND = OnJax()
