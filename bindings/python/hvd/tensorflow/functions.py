"""What a script sends around before and beside its training: variables and Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from hvd import basics, objects
from hvd.process_set import ProcessSet, global_process_set
from hvd.tensorflow.collectives import broadcast_tensors
from hvd.tensorflow.dtypes import as_bytes, from_bytes, is_movable
from hvd.tensorflow.naming import wire_name


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Overwrites variables with the root's. All ranks must call it.

    Args:
        variables: of TensorFlow or Keras; the same number, shapes and dtypes on every rank, in the same order. Any
            dtype but strings.
        root_rank: the rank whose values everybody gets.
        process_set: the ranks that take part.
        inplace: changes nothing; for scripts that give it.

    Returns:
        In a graph of tf.compat.v1 the operation that does it; otherwise None.

    Raises:
        tf.errors.FailedPreconditionError: ranks disagree about the variables. UnknownError: one was lost.
    """
    variables = list(variables)
    if not variables:
        return None if tf.executing_eagerly() else tf.no_op()
    values = [tf.convert_to_tensor(variable) for variable in variables]
    sent = [value if is_movable(value.dtype) else as_bytes(value) for value in values]
    received = broadcast_tensors(sent, root_rank, wire_name("broadcast_variables", None), process_set)
    assigned = [
        variable.assign(new if is_movable(value.dtype) else from_bytes(new, value.dtype))
        for variable, value, new in zip(variables, values, received)
    ]
    return None if tf.executing_eagerly() else tf.group(*(each for each in assigned if each is not None))


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that overwrites all global variables of the default graph with the root's; tf.compat.v1 only.

    Raises:
        RuntimeError: in eager mode, where there are no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() needs a graph of tf.compat.v1: in eager mode there is "
            "hvd.broadcast_variables(variables, root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Overwrites all global variables with the root's when a session has been created: with what the root has
    initialised or restored, all ranks begin alike. For tf.compat.v1.train.MonitoredTrainingSession.

    Args:
        root_rank: the rank whose values everybody gets.
        device: where the operation is to be placed, as for tf.device.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """The graph is complete, and not frozen yet."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


def broadcast_object(
    obj: object,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's object, pickled on the way. All ranks must call it.

    Args:
        obj: anything that cloudpickle can write; looked at on the root only.
        root_rank: the rank whose object everybody gets.
        session: not needed; for scripts that give it.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        The root's own object there, a copy on the other ranks.

    Raises:
        pickle.PicklingError: the root cannot pickle its object; on every rank.
        ValueError, TypeError: hvd is not initialised, the set is not registered, or the root is not in it.
        HorovodInternalError: a rank was lost, or has not come in time.
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[object], Any]:
    """A function of the object that does as `broadcast_object`."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: object, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives every rank the objects of all ranks of the set, pickled on the way. All of them must call it.

    Args:
        obj: anything that cloudpickle can write.
        session: not needed; for scripts that give it.
        name: the same on every rank.
        process_set: the ranks that take part.

    Returns:
        A list with an object for each rank of the set, in rank order.

    Raises:
        pickle.PicklingError: a rank cannot pickle its object; on every rank.
        ValueError, TypeError: hvd is not initialised, or the set is not registered or does not have this rank.
        HorovodInternalError: a rank was lost, or has not come in time.
    """
    basics.rank()
    return objects.allgather_object(obj, name, process_set)
