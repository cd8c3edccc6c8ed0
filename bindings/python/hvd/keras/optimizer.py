"""DistributedOptimizer: any Keras optimizer, updating variables with gradients that are reduced over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hvd import arguments, basics
from hvd.keras import attachment
from hvd.keras.framework import backend, is_keras_3, keras, name_of_keras
from hvd.keras.functions import has_variables
from hvd.keras.reduction import Reduction, is_distributed
from hvd.process_set import ProcessSet, global_process_set, numbered_name
from hvd.reduce_op import Average, check_gradient_reduction

if TYPE_CHECKING:
    Behaviour = Any  # the optimizer's class, which comes after it in the bases
else:
    Behaviour = object


class Distributed(Behaviour):
    """What DistributedOptimizer adds to the class of the optimizer it is given; stands before it in the bases."""

    _reduction: Reduction

    def register_local_var(self, var: Any) -> None:
        """The variable's gradient is not reduced: each rank trains its own."""
        self._reduction.register_local(var)

    @property
    def _agg_helper(self) -> Any:
        """By Horovod's name, for code that asks for its `counter`: what adds gradients up; None if nothing does."""
        return self._reduction.aggregation if self._reduction.passes > 1 else None

    def _taken(self, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        pairs = list(pairs)
        variables = [variable for _, variable in pairs]
        return list(zip(self._reduction.take([gradient for gradient, _ in pairs], variables), variables))


class _CallableList(list[Any]):
    """Keras 2 and Horovod have it as a property, and as a method."""

    def __call__(self) -> _CallableList:
        return self


class _OfKeras3(Distributed):
    @property
    def variables(self) -> _CallableList:
        return _CallableList(super().variables)

    def _compute_gradients(
        self, loss: Any, var_list: Sequence[Any], grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Reduced gradients of a loss, and their variables, for `apply_gradients`. All ranks must call it. On the
        TensorFlow backend; by the name that it had in Keras 2 and in Horovod."""
        return self._taken(zip(backend().gradients_of(loss, var_list, grad_loss, tape), var_list))

    def apply(self, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Reduces the gradients, and updates the variables, as the optimizer's. All ranks must call it."""
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            if not self.built:  # here, since the update may come in a branch of a graph, which can make no variables
                with keras.name_scope(self.name, caller=self):
                    self.build(trainable_variables)
        elif not self.built or len(grads) != len(self._trainable_variables):
            super().apply(grads)  # which says what is wrong; it does not compare lists that it is given
            return
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        self._reduction.step(
            list(grads), variables, lambda reduced: super(_OfKeras3, self).apply(reduced, variables), self
        )


class _OfKeras2(Distributed):
    """Keras 2 has a step of its own for what replicas do with their gradients, and leaves it out where it was asked to,
    as its LossScaleOptimizer does, which makes that step before it looks for overflows. Gradients that the optimizer
    has computed itself are reduced before, as Horovod's are."""

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer's, reduced, for `apply_gradients`. All ranks must call it."""
        return self._taken(super().compute_gradients(*args, **kwargs))

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """The same, of tf_keras.optimizers.legacy; of other optimizers, by the name that it has there."""
        if not hasattr(super(), "_compute_gradients"):
            if grad_loss is not None:
                raise ValueError("grad_loss is for tf_keras.optimizers.legacy")
            return self.compute_gradients(loss, var_list, tape)
        return self._taken(super()._compute_gradients(loss, var_list, grad_loss, tape=tape))

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return list(zip(self._reduction.reduced([gradient for gradient, _ in pairs], variables), variables))

    _aggregate_gradients = aggregate_gradients  # its name in tf_keras.optimizers.legacy

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's, after reducing the gradients. All ranks must call it."""
        pairs = list(grads_and_vars)
        if self._reduction.passes == 1:
            with self._reduction.applying():
                return super().apply_gradients(pairs, *args, **kwargs)
        variables = [variable for _, variable in pairs]

        def update(reduced: list[Any]) -> None:
            with self._reduction.done():
                super(_OfKeras2, self).apply_gradients(list(zip(reduced, variables)), *args, **kwargs)

        # By its name in either generation. LossScaleOptimizer asks for it, since it has called aggregate_gradients().
        are_reduced = bool(
            kwargs.get("skip_gradients_aggregation") or not kwargs.get("experimental_aggregate_gradients", True)
        )
        self._reduction.step([gradient for gradient, _ in pairs], variables, update, self, are_reduced)
        return self.iterations


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer: gradients are reduced over the ranks before it clips them and updates variables with them.

    Every rank must make the same optimizers, in the same order, for variables of the same shapes, and update as often
    as the others do. In a job of one rank nothing is reduced.

    The optimizer saves and loads as the one given does; a model that was saved with it loads without hvd. With the
    TensorFlow backend a model that is trained with it is not compiled by XLA (docs/keras.md).

    Args:
        optimizer: of Keras 3 or of tf_keras. It stays as it is, unless it
            has variables already (slots; as that of a loaded model has): then it becomes the result itself.
        name: not needed; for scripts that give it, as the two that follow.
        compression: the type used on the wire, one of `hvd.Compression`; None: none.
        sparse_as_dense: makes IndexedSlices dense. Without it their indices and values are gathered.
        gradient_predivide_factor: with Average, gradients are divided by it before the sum, and the sum by
            size / factor after it, which keeps 16-bit gradients in range.
        op: Average, Sum, Min, Max, Product or Adasum of the gradients.
        backward_passes_per_step: calls whose gradients are added up locally before they are reduced, and variables
            updated. The calls before the last one change no variable, and count as no iteration.
        average_aggregated_gradients: whether what was added up is divided by their number.
        num_groups: into how many groups the gradients are divided, to be reduced group by group. 0: none.
        groups: such groups, as lists of variables, or their number.
        process_set: the ranks that take part. On others the optimizer is like the one given.
        scale_local_gradients: divides gradients of variables that were registered with `register_local_var` by the
            number of ranks, as the average over all of them does with the others.

    Returns:
        An optimizer of a subclass of the given one's class, which has its name, and further `register_local_var()`. Of
        a LossScaleOptimizer, one with such an optimizer in it.

    Raises:
        ValueError: on wrong arguments, and for an optimizer that is distributed already.
    """
    if is_distributed(optimizer):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if not hasattr(optimizer, "apply_gradients") or not hasattr(optimizer, "get_config"):
        raise ValueError(f"an optimizer of Keras is needed, not {optimizer!r}")
    reduction = _reduction_for(
        optimizer,
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        passes=backward_passes_per_step,
        averages_passes=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    chosen = optimizer if has_variables(optimizer) else _twin(optimizer)
    _become_distributed(_innermost(chosen), reduction)
    return chosen


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedOptimizer`, for a model of which each rank has some layers to itself: their gradients are not
    reduced.

    Args:
        local_layers: a layer, or several. They need not be built yet. None: all layers are shared.
    """
    layers = arguments.layers_of(local_layers)
    distributed = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    _innermost(distributed)._reduction.leave_out(layers)
    return distributed


def counting_passes(distributed: Any) -> Any:
    """The optimizer, whose `iterations` counts every pass of `backward_passes_per_step`, as Horovod's does."""
    _innermost(distributed)._reduction.aggregation.counts_passes = True
    return distributed


def distribute(optimizer: Any, compression: Any) -> None:
    """Makes the optimizer of a loaded model a distributed one, where it is; of a LossScaleOptimizer, the inner one. One
    that a custom object has made distributed stays as it is."""
    if is_distributed(optimizer):
        return
    _become_distributed(_innermost(optimizer), _reduction_for(optimizer, compression=compression, loaded=True))


def _innermost(optimizer: Any) -> Any:
    """The optimizer within a LossScaleOptimizer, which sees to it that gradients are reduced first (`attachment`)."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _become_distributed(optimizer: Any, reduction: Reduction) -> None:
    """What the optimizer says of its class (`optimizer.__class__`) stays what it was: by that Keras saves it. What is
    made from its configuration is a plain one, too."""
    of = type(optimizer)
    attachment.attach(name_of_keras(optimizer))
    behaviour = (*backend().optimizer_mixins(reduction.passes), _OfKeras3) if is_keras_3(of) else (_OfKeras2,)
    members = {
        "__class__": property(lambda _: of),
        "__module__": of.__module__,
        "__doc__": of.__doc__,
        "from_config": staticmethod(of.from_config),
    }
    object.__setattr__(optimizer, "__class__", type(of.__name__, (*behaviour, of), members))
    optimizer.__dict__["_reduction"] = reduction
    if is_keras_3(of):
        backend().on_distributed(optimizer)


def _reduction_for(
    optimizer: Any,
    *,
    compression: Any,
    loaded: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    passes: int = 1,
    averages_passes: bool = False,
    groups: int | Sequence[Sequence[Any]] | None = None,
    num_groups: int = 0,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Reduction:
    check_gradient_reduction(op, gradient_predivide_factor)
    arguments.positive(passes, "backward_passes_per_step")
    if compression is not None:
        arguments.compressor(compression)
    if isinstance(groups, int):
        num_groups, groups = groups, None
    if num_groups < 0:
        raise ValueError(f"num_groups must be 0 or more, not {num_groups}")
    if num_groups and groups is not None:
        raise ValueError(f"num_groups={num_groups} and groups are both given: give only one of them")
    if basics.is_initialized() and not process_set._is_known():
        raise ValueError(arguments.not_registered(process_set))
    basics.rank()  # raises if hvd is not initialised
    own_backend = backend(None if is_keras_3(optimizer) else "tensorflow")
    return Reduction(
        own_backend,
        name=None if loaded else numbered_name(process_set, "keras_optimizer"),
        op=op,
        compression=compression or own_backend.package.Compression.none,
        gradient_predivide_factor=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        passes=passes,
        averages_passes=averages_passes,
        groups=groups,
        num_groups=num_groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def _twin(optimizer: Any) -> Any:
    """Another optimizer like this one, which has no state yet."""
    config = optimizer.get_config()
    rate = getattr(optimizer, "_learning_rate", None)
    if callable(rate):  # a schedule, of a class that may not be registered, or a function
        config["learning_rate"] = rate
    twin = type(optimizer).from_config(config)
    # What the configuration does not know, as the variables that are excluded from weight decay.
    twin.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key not in twin.__dict__)
    return twin
