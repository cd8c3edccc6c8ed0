"""A layer and an optimizer for Keras 3 on TensorFlow, whose rows and variables are on parameter servers (`hvd.ps`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hvd.ps import SGD, Consistency, Handle, ParameterServers, Table, find_table
from hvd.ps import Optimizer as Rule
from hvd.tensorflow.ps import Variables, on_host

if not hasattr(keras.optimizers.Optimizer, "_backend_update_step") or keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"hvd.ps.Embedding and hvd.ps.DenseOptimizer need a newer Keras 3, or Keras on TensorFlow: this is Keras "
        f"{keras.__version__} on {keras.backend.backend()}, where hvd.ps.connect() works, which needs no Keras"
    )

_AHEAD = 32  # batches that may be prefetched; beyond, the oldest are forgotten


@keras.saving.register_keras_serializable(package="hvd")
class Embedding(keras.layers.Layer):
    """Vectors by number, like `keras.layers.Embedding`, in a table on the servers. A call pulls each row that the batch
    has once; the backward pass adds up the gradients of a row, pushes them, and does not wait for the servers.

    Numbers are any integers of 64 bits. The layer's one weight, a scalar that stays 0, makes the backward pass come to
    it: give it to the tape or the optimizer with the model's other trainable variables. `trainable=False` keeps the
    rows as they are. The rows are saved by `servers.snapshot()`, and not with the model: `model.save()` keeps the
    table's name, and whoever loads the model has opened a table of that name before.

    Where a gradient tape is asked twice for gradients, they are pushed twice.

    Args:
        table: of `servers.table()`; workers need not make equally many steps, unless it is synchronous.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, table: Table, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.supports_jit = False  # so that Keras does not have XLA compile the model unasked
        self._begun: OrderedDict[bytes, Handle] = OrderedDict()
        self._pushed: Handle | None = None

    def build(self, input_shape: Any) -> None:
        self._anchor = self.add_weight(name="anchor", shape=(), initializer="zeros")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "table": self.table.name, "width": self.table.width}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Embedding:
        config = dict(config)
        table, width = find_table(config.pop("table")), config.pop("width")
        if table.width != width:
            raise ValueError(f"the table {table.name!r} has rows of {table.width} values, and the model's had {width}")
        return cls(table, **config)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (*input_shape, self.table.width)

    def call(self, inputs: Any) -> Any:
        keys, positions = _unique(inputs)

        @tf.custom_gradient
        def look_up(anchor: Any) -> tuple[Any, Callable[..., Any]]:
            rows = tf.reshape(on_host(self._pull, [keys], tf.float32), [-1, self.table.width])

            def gradient(of_rows: Any) -> Any:
                sums = tf.math.unsorted_segment_sum(tf.convert_to_tensor(of_rows), positions, tf.size(keys))
                pushed = on_host(self._push, [keys, sums], tf.int32)
                with tf.control_dependencies([pushed]):
                    return tf.zeros_like(anchor)

            return tf.gather(rows, positions), gradient

        rows = look_up(tf.convert_to_tensor(self._anchor))
        return tf.cast(tf.reshape(rows, [*_shape(inputs), self.table.width]), self.compute_dtype)

    def prefetch(self, inputs: Any) -> Any:
        """Starts to pull the rows of a batch that is to come, and returns its numbers: a later call with the same
        numbers takes these rows, which lack what was pushed in between. In a pipeline that is a batch ahead:

        >>> data = data.map(lambda words, label: (embedding.prefetch(words), label)).prefetch(1)

        At most 32 batches are kept.
        """
        keys, _ = _unique(inputs)
        begun = on_host(self._begin, [keys], tf.int32)
        with tf.control_dependencies([begun]):
            return tf.identity(inputs)

    def _begin(self, keys: Any) -> np.int32:
        self._begun[keys.tobytes()] = self.table.pull(keys, wait=False)
        while len(self._begun) > _AHEAD:
            self._begun.popitem(last=False)
        return np.int32(0)

    def _pull(self, keys: Any) -> Any:
        begun = self._begun.pop(keys.tobytes(), None)
        return self.table.pull(keys) if begun is None else begun.wait()

    def _push(self, keys: Any, gradients: Any) -> np.int32:
        before, self._pushed = self._pushed, self.table.push(keys, gradients, wait=False)
        if before is not None:
            before.wait()
        return np.int32(0)


def _shape(inputs: Any) -> list[Any]:
    dynamic = tf.shape(inputs)
    return [dynamic[i] if size is None else size for i, size in enumerate(inputs.shape)]


def _unique(inputs: Any) -> tuple[Any, Any]:
    """The different numbers, and for each input its place among them."""
    found = tf.unique(tf.reshape(tf.cast(inputs, tf.int64), [-1]))
    return found.y, found.idx


@keras.saving.register_keras_serializable(package="hvd")
class DenseOptimizer(keras.optimizers.Optimizer):
    """Has the model's variables on the servers, which update them: each training step pushes this worker's gradients,
    finishes its clock, and takes the servers' values. The first values are rank 0's.

    Gradients are clipped, and accumulated, before they are pushed; `learning_rate` may be changed and scheduled as that
    of any optimizer, and rank 0's is everybody's. What is no trainable variable (moving averages of batch
    normalisation) is each worker's own. For `fit` and for `optimizer.apply(gradients, variables)`.

    Args:
        servers: of `hvd.ps.connect()`.
        optimizer: what the servers do with gradients.
        name: of the dense table.
        consistency, average, compensation: as for `hvd.ps.ParameterServers.dense`.
        kwargs: of `keras.optimizers.Optimizer`: clipnorm, gradient_accumulation_steps, learning_rate (a schedule), ...
    """

    def __init__(
        self,
        servers: ParameterServers,
        optimizer: Rule = SGD(),  # noqa: B008
        name: str = "dense",
        consistency: Consistency = "asynchronous",
        average: bool = True,
        compensation: float = 0.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("learning_rate", getattr(optimizer, "learning_rate", 0.0))
        super().__init__(**kwargs)
        self._servers, self._table_name, self._rule = servers, name, optimizer
        self._consistency, self._average, self._compensation = consistency, average, compensation

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> DenseOptimizer:
        raise ValueError(
            "a DenseOptimizer belongs to the servers of its job: load the model with compile=False, and compile it "
            "with a new one"
        )

    def build(self, variables: Sequence[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        with tf.init_scope():  # fit() builds it while it traces the training step
            self._served = Variables(
                self._servers,
                self._table_name,
                variables,
                self._rule,
                self._consistency,
                self._average,
                self._compensation,
            )

    def pull(self) -> None:
        """Gives the model's variables the servers' values: others may have trained since this worker's last step."""
        self._served.pull()

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: Any
    ) -> None:
        by_variable = {id(variable): gradient for variable, gradient in zip(trainable_variables, grads)}
        gradients = [by_variable.get(id(variable)) for variable in self._trainable_variables]
        self._served.step(gradients, learning_rate)
