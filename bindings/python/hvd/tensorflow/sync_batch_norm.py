"""Batch normalisation over the batches of all ranks, for the Keras that tf.keras is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvd import basics, elastic
from hvd.process_set import global_process_set
from hvd.reduce_op import Sum
from hvd.tensorflow.collectives import gather_tensors, reduce_tensors, set_id
from hvd.tensorflow.naming import wire_name

_Keras: Any = tf.keras.layers.BatchNormalization

if tf.keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"hvd.tensorflow.SyncBatchNormalization needs Keras's TensorFlow backend, and Keras runs on "
        f"{tf.keras.backend.backend()}: on PyTorch there is hvd.torch.SyncBatchNorm"
    )
if not hasattr(_Keras, "_moments"):
    raise ImportError(
        f"Keras {tf.keras.__version__} has no place where its batch normalisation can be given other statistics: "
        "hvd.tensorflow.SyncBatchNormalization works with Keras 2.13 to 2.15, tf_keras and Keras 3.3 or later"
    )

_KERAS_2 = "keep_dims" in inspect.signature(_Keras._moments).parameters


@tf.keras.utils.register_keras_serializable(package="hvd")
class SyncBatchNormalization(_Keras):
    """Normalises with the mean and variance of all ranks' batches together. Made and used like
    `tf.keras.layers.BatchNormalization`, whose arguments it takes, by keyword.

    In training every rank must call it, as often and in the same order as other layers; batches may be of different
    sizes, also empty. What masks leave out does not count. The gradients of gamma and beta are those of this rank's
    batch, as elsewhere; gradients of gradients are refused. In inference, and in a job of one, it is Keras's.

    Args:
        fused: must be False: Keras's fused kernels see one batch.

    Raises:
        ValueError: fused is not False, or there is a virtual_batch_size.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise ValueError("SyncBatchNormalization cannot be fused: leave out fused, or give False")
        if kwargs.get("virtual_batch_size") is not None:
            raise ValueError("SyncBatchNormalization has one batch, that of all ranks: leave out virtual_batch_size")
        if _KERAS_2:
            kwargs["fused"] = False
        super().__init__(**kwargs)
        self.supports_jit = False  # so that Keras 3 does not have XLA compile the model unasked

    if _KERAS_2:

        def _moments(self, inputs: Any, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None) -> Any:
            if _is_alone():
                return super()._moments(inputs, reduction_axes, keep_dims, mask=mask)
            moments = moments_of_all(inputs, reduction_axes, mask)
            return moments if keep_dims else tuple(tf.squeeze(moment, reduction_axes) for moment in moments)

    else:

        def _moments(self, inputs: Any, mask: Any) -> Any:  # type: ignore[misc]
            if _is_alone():
                return super()._moments(inputs, mask)
            return tuple(
                tf.squeeze(moment, self._reduction_axes)
                for moment in moments_of_all(inputs, self._reduction_axes, mask)
            )


def _is_alone() -> bool:
    return basics.size() == 1 and not elastic.may_grow()


def moments_of_all(inputs: tf.Tensor, axes: Sequence[int], mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and biased variance over all ranks' inputs, with dimensions of size 1 in place of `axes`.

    Operations are ordered, and named by their place in the graph alone: which other layers a rank has made, and
    so the numbers that Keras has put into the names of these, may differ between ranks.

    Args:
        inputs: of float32 or float64; another size along the `axes` on each rank.
        axes: over which moments are taken.
        mask: without the last dimension; what is False does not count.
    """
    present = None if mask is None else tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))

    @tf.custom_gradient
    def moments(inputs: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tf.Tensor]]:
        own = tf.stack(_own_statistics(inputs, axes, present))
        count, mean, spread = _combined(own)

        @tf.custom_gradient
        def gradient(of_mean: tf.Tensor, of_variance: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            name = wire_name("allreduce", None, ignore_name_scope=True)
            both = tf.stack([of_mean, of_variance])
            sums = reduce_tensors([both], name, Sum, 1.0, 1.0, set_id(global_process_set))[0]
            factors = tf.math.divide_no_nan(sums, count)
            return _where(present, factors[0] + 2.0 * factors[1] * (inputs - mean)), _refuse_second_derivatives

        return (mean, tf.math.divide_no_nan(spread, count)), gradient

    mean, variance = moments(inputs)
    return mean, variance


def _where(present: tf.Tensor | None, values: tf.Tensor) -> tf.Tensor:
    return values if present is None else tf.where(present, values, tf.zeros_like(values))


def _own_statistics(
    inputs: tf.Tensor, axes: Sequence[int], present: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """How many values there are in each channel, their mean, and the sum of their squared distances from it."""
    total = tf.reduce_sum(_where(present, inputs), axes, keepdims=True)
    if present is None:
        values, channels = (tf.cast(tf.size(tensor, tf.int64), inputs.dtype) for tensor in (inputs, total))
        count = tf.ones_like(total) * (values / channels)
    else:
        count = tf.reduce_sum(tf.cast(present, inputs.dtype), axes, keepdims=True)
    mean = tf.math.divide_no_nan(total, count)
    spread = tf.reduce_sum(_where(present, tf.square(inputs - mean)), axes, keepdims=True)
    return count, mean, spread


def _combined(own: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """As _own_statistics(), of all ranks: in one collective, and without subtracting squares, which would cancel."""
    name = wire_name("allgather", None, ignore_name_scope=True)
    gathered = gather_tensors([own[tf.newaxis]], name, set_id(global_process_set))[0]
    counts, means, spreads = tf.unstack(gathered, axis=1)
    count = tf.reduce_sum(counts, axis=0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, axis=0), count)
    between = tf.reduce_sum(counts * tf.square(means - mean), axis=0)
    return count, mean, tf.reduce_sum(spreads, axis=0) + between


def _refuse_second_derivatives(*_: tf.Tensor) -> Any:
    raise NotImplementedError("SyncBatchNormalization has no gradients of gradients")
