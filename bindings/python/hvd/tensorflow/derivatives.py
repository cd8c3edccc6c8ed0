"""The gradients of the collectives: collectives too, which therefore every rank must compute, and which have gradients
in their turn.

Those of allgather and broadcast are averaged over the ranks, so that a loss that all ranks compute alike counts once.
"""

from __future__ import annotations

import struct
from typing import Any

import tensorflow as tf

from hvd.arguments import OPERATIONS
from hvd.reduce_op import Average, Sum
from hvd.tensorflow.collectives import gather_tensors, reduce_tensors, run, size_op
from hvd.tensorflow.library import ops
from hvd.tensorflow.naming import wire_name


def _factor(op: Any, name: str) -> float:
    return float(struct.unpack("<d", struct.pack("<q", op.get_attr(name)))[0])


def _refuse_unless_linear(op: Any) -> None:
    if op.get_attr("reduce_op") not in (Average, Sum):
        raise LookupError(
            "hvd: only averages and sums have a gradient that is a collective, and not "
            f"op={OPERATIONS[op.get_attr('reduce_op')]}: give it tf.stop_gradient(tensor)"
        )


@tf.RegisterGradient("HvdAllreduce")
@tf.RegisterGradient("HvdAllreduceOrdered")
def _of_allreduce(op: Any, *gradients: Any) -> list[Any]:
    _refuse_unless_linear(op)
    factors = _factor(op, "prescale_bits"), _factor(op, "postscale_bits")
    return _for_all_inputs(op, _reduced(gradients, op.get_attr("reduce_op"), factors, op.get_attr("process_set")))


def _for_all_inputs(op: Any, of_tensors: list[Any]) -> list[Any]:
    """An op without order has one input more than tensors."""
    return of_tensors + [None] * (len(op.inputs) - len(of_tensors))


def _reduced(gradients: tuple[Any, ...], op: int, factors: tuple[float, float], process_set: int) -> list[Any]:
    """In graphs None is the gradient of what has none: of the integers in a group."""
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return list(gradients)
    reduced = iter(reduce_tensors(present, wire_name("allreduce", None), op, *factors, process_set))
    return [None if gradient is None else next(reduced) for gradient in gradients]


def _averages(gradients: tuple[Any, ...], process_set: int) -> list[Any]:
    return _reduced(gradients, Average, (1.0, 1.0), process_set)


@tf.RegisterGradient("HvdAllgather")
@tf.RegisterGradient("HvdAllgatherOrdered")
def _of_allgather(op: Any, *gradients: Any) -> list[Any]:
    process_set = op.get_attr("process_set")
    averages = _averages(gradients, process_set)
    own = tf.stack([tf.shape(tensor, out_type=tf.int64)[0] for tensor in op.inputs[: len(gradients)]])
    rows = gather_tensors([own[tf.newaxis]], wire_name("allgather", None), process_set)[0]
    before = tf.reduce_sum(rows[: ops.hvd_rank(process_set=process_set)], axis=0)
    parts = [None if each is None else each[before[i] : before[i] + own[i]] for i, each in enumerate(averages)]
    return _for_all_inputs(op, parts)


@tf.RegisterGradient("HvdBroadcast")
@tf.RegisterGradient("HvdBroadcastOrdered")
def _of_broadcast(op: Any, *gradients: Any) -> list[Any]:
    averages = _averages(gradients, op.get_attr("process_set"))
    is_root = tf.equal(ops.hvd_rank(), op.get_attr("root_rank"))
    # Depends on the average on all ranks, so that all of them run the collective of a second derivative.
    return [None if average is None else tf.where(is_root, average, tf.zeros_like(average)) for average in averages]


@tf.RegisterGradient("HvdReducescatter")
@tf.RegisterGradient("HvdReducescatterOrdered")
def _of_reducescatter(op: Any, *gradients: Any) -> list[Any]:
    _refuse_unless_linear(op)
    process_set = op.get_attr("process_set")
    scale = _factor(op, "prescale_bits") * _factor(op, "postscale_bits")
    factor = scale * (tf.cast(size_op(process_set), tf.float64) if op.get_attr("reduce_op") == Sum else 1.0)
    scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients if gradient is not None]
    gathered = iter(gather_tensors(scaled, wire_name("allgather", None), process_set) if scaled else [])
    return [None if gradient is None else next(gathered) for gradient in gradients]


@tf.RegisterGradient("HvdAlltoall")
@tf.RegisterGradient("HvdAlltoallOrdered")
def _of_alltoall(op: Any, gradient: tf.Tensor, _: Any) -> tuple[tf.Tensor, None]:
    splits = tf.cast(op.outputs[1], tf.int64)
    name, process_set = wire_name("alltoall", None), op.get_attr("process_set")
    sent_back, _ = run("alltoall", gradient, splits, tensor_name=name, process_set=process_set)
    # Rows beyond the splits were not sent.
    missing = tf.shape(op.inputs[0])[0] - tf.shape(sent_back)[0]
    rest = tf.zeros(tf.concat([[missing], tf.shape(sent_back)[1:]], axis=0), sent_back.dtype)
    return tf.concat([sent_back, rest], axis=0), None
