"""Collectives on what Keras programs hold: tensors of the backend, NumPy arrays and numbers, and variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, NoReturn

from hvd.keras.framework import backend, is_plain, native
from hvd.objects import allgather_object
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, resolve_op


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = None,
) -> Any:
    """Reduces a value over all ranks. All ranks must call it.

    Args:
        value: a tensor of the backend, a variable, a NumPy array or a number; of the same shape and dtype on all ranks.
        name: the same on every rank; None: operations are numbered.
        average: as Horovod had it before `op`: True is Average, False is Sum.
        prescale_factor: by which the value is multiplied before.
        postscale_factor: and after.
        op: Average (the default), Sum, Min, Max, Product or Adasum.
        compression: the type used on the wire, one of `hvd.Compression`.

    Returns:
        A tensor; for NumPy arrays and numbers a NumPy array.

    Raises:
        ValueError, TypeError: this rank's call is wrong.
        HorovodInternalError: a rank was lost; on PyTorch and JAX also if the ranks disagree.
        tf.errors.FailedPreconditionError: on TensorFlow, if the ranks disagree.
    """
    op = resolve_op(op, average if op is None else None)  # horovod.keras has average=True by default
    return _applied(
        lambda tensor: backend().allreduce(
            tensor,
            compression,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        ),
        value,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenates the values of all ranks along the first dimension, in rank order. All ranks must call it.

    Args:
        value: as for `allreduce`, with at least one dimension; the first one may differ between ranks, the others may
            not.
        name: the same on every rank; None: operations are numbered.

    Returns:
        As `allreduce`, of shape [sum of the first dimensions, ...], the same on every rank.

    Raises:
        ValueError, tf.errors.FailedPreconditionError: the value is a scalar; the second on TensorFlow.
        Other errors: as `allreduce`.
    """
    return _applied(lambda tensor: backend().allgather(tensor, name), value)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Gives every rank the root's value. All ranks must call it.

    Args:
        value: as for `allreduce`; of the others' only shape and dtype matter.
        root_rank: the rank whose value everybody gets.
        name: the same on every rank; None: operations are numbered.

    Returns:
        As `allreduce`, of the value's shape and dtype.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: there is no such rank; the second on TensorFlow.
        Other errors: as `allreduce`.
    """
    return _applied(lambda tensor: backend().broadcast(tensor, root_rank, name), value)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Reduces a value over all ranks, and gives each rank its part of the rows, in rank order. All ranks must call it.

    Args:
        value: as for `allreduce`, with at least one dimension. If its rows do not divide evenly, the first ranks
            receive one more.
        name: the same on every rank; None: operations are numbered.
        op: Average (the default), Sum, Min, Max or Product.

    Returns:
        As `allreduce`, of shape [this rank's rows, ...].

    Raises:
        ValueError, tf.errors.FailedPreconditionError: the value is a scalar; the second on TensorFlow.
        Other errors: as `allreduce`.
    """
    return _applied(lambda tensor: backend().reducescatter(tensor, name, op), value)


def _applied(operation: Callable[[Any], Any], value: Any) -> Any:
    result = operation(backend().tensor(native(value)))
    return backend().to_numpy(result) if is_plain(value) else result


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """There are no global variables any more.

    Raises:
        RuntimeError: says what takes its place.
    """
    raise RuntimeError(
        "hvd.broadcast_global_variables() is for sessions of TensorFlow 1: Keras has no global variables any more. "
        f"Give model.fit() hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}), or in a loop of your own call "
        f"hvd.broadcast_variables(model.variables + optimizer.variables, {root_rank})"
    )


def broadcast_variables(variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrites variables with the root's. All ranks of the set must call it.

    Args:
        variables: of Keras, or of the backend; of any dtype, and of the same shapes on every rank.
        root_rank: the rank whose values all ranks of the set receive: its rank in the job. It must be in the set.
        process_set: the ranks that take part.

    Raises:
        ValueError: ranks have variables of other shapes or dtypes; on every rank, before anything has changed.
        HorovodInternalError: a rank was lost.
    """
    given = list(variables)
    wrong = [problem for problem in map(backend().why_not_a_variable, given) if problem is not None]
    described = [(tuple(variable.shape), str(native(variable).dtype)) for variable in given] if not wrong else wrong[0]
    everywhere = allgather_object(described, process_set=process_set)
    _require_alike(dict(zip(process_set.ranks or (), everywhere)), root_rank)
    backend().broadcast_variables(given, root_rank, process_set)


def _require_alike(by_rank: dict[int, Any], root_rank: int) -> None:
    """`by_rank`: what ranks have to broadcast, or why they cannot."""
    for rank, described in by_rank.items():
        if isinstance(described, str):
            raise ValueError(f"rank {rank}: {described}")
    if root_rank not in by_rank:
        raise ValueError(f"root_rank {root_rank} is none of the ranks that take part: {sorted(by_rank)}")
    expected = by_rank[root_rank]
    for rank, described in by_rank.items():
        if len(described) != len(expected):
            raise ValueError(
                f"rank {rank} has {len(described)} variables to broadcast, but rank {root_rank}, the root, has "
                f"{len(expected)}: all ranks must build the same model and optimizer first"
            )
        for number, (here, there) in enumerate(zip(described, expected)):
            if here != there:
                raise ValueError(
                    f"variable {number} has shape {here[0]} and dtype {here[1]} on rank {rank}, but {there[0]} and "
                    f"{there[1]} on rank {root_rank}, the root"
                )


def state_of(model: Any, optimizer: Any = None) -> list[Any]:
    """The variables that make a training run what it is: all of the model's but those of its metrics, and all of the
    optimizer's."""
    optimizer = optimizer or model.optimizer
    of_metrics = {id(variable) for variable in getattr(model, "metrics_variables", ())}
    of_model = [variable for variable in model.variables if id(variable) not in of_metrics]
    return of_model + backend().saved_variables(optimizer)


def are_built(model: Any, optimizer: Any = None) -> bool:
    """Whether both have all of their variables."""
    return bool(model.built and has_variables(optimizer or model.optimizer))


def has_variables(optimizer: Any) -> bool:
    """Whether an optimizer has made all of its variables."""
    if hasattr(optimizer, "_create_all_weights"):  # one of tf_keras.optimizers.legacy, which does not say so itself
        innermost = getattr(optimizer, "inner_optimizer", optimizer)
        return bool(innermost._hypers_created and innermost.weights)
    return bool(getattr(optimizer, "built", False) or getattr(optimizer, "_built", False))


def make_variables(optimizer: Any, variables: Iterable[Any]) -> None:
    """Has an optimizer make all of its variables, those of tf_keras.optimizers.legacy included."""
    (getattr(optimizer, "build", None) or optimizer._create_all_weights)(variables)


def slots_of(optimizer: Any, variables: Iterable[Any]) -> list[Any]:
    """The optimizer's own variables that belong to these: Keras names them after them."""
    paths = [getattr(variable, "path", variable.name.split(":")[0]) for variable in variables]
    # sgd/dense_kernel_momentum in Keras 3, SGD/m/dense/kernel:0 in Keras 2
    return [
        slot
        for slot in backend().saved_variables(optimizer)
        for path in paths
        if f"/{path.replace('/', '_')}_" in getattr(slot, "path", "") or f"/{path}:" in slot.name
    ]
