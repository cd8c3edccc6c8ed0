"""Parameter servers for TensorFlow: `hvd.ps`, whose names are here as well, with tables that are used as variables.

>>> servers = hvd.ps.connect()
>>> words = hvd.ps.Embedding(servers.table("words", width=64, optimizer=hvd.ps.Adagrad(0.05)))
>>> model = keras.Sequential([words, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(10)])
>>> model.compile(optimizer=hvd.ps.DenseOptimizer(servers, hvd.ps.SGD(0.1)), loss=loss)

`Embedding` and `DenseOptimizer` need Keras 3 on TensorFlow; `Variables` serves loops of one's own, without Keras. They
work in eager mode and within a `tf.function`, where servers are called in the order of the program. XLA cannot compile
them: jit_compile=False.

Errors are those of `hvd.ps`; from a graph they come as TensorFlow's (`hvd.tensorflow.errors`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import tensorflow as tf

from hvd import basics
from hvd import ps as _ps
from hvd.exceptions import HorovodInternalError
from hvd.ps import *  # noqa: F403
from hvd.ps import SGD, Consistency, ParameterServers
from hvd.ps import Optimizer as Rule
from hvd.tensorflow.errors import refuse_in_xla

if TYPE_CHECKING:
    from hvd.tensorflow.ps_keras import DenseOptimizer, Embedding

__all__ = ["DenseOptimizer", "Embedding", "Variables", *_ps.__all__]


def __getattr__(name: str) -> Any:
    if name not in ("Embedding", "DenseOptimizer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hvd.tensorflow import ps_keras  # Keras takes seconds to import

    return getattr(ps_keras, name)


class Variables:
    """Variables whose values are on the servers: a dense table, and this worker's copy of it.

    The first values are those of rank 0, whichever worker comes first: the others wait for them, and all variables
    have the servers' values afterwards.

    >>> variables = hvd.ps.Variables(servers, "net", model.trainable_variables, hvd.ps.SGD(0.1))
    >>> variables.step(tape.gradient(loss, model.trainable_variables))

    Args:
        servers: of `hvd.ps.connect()`.
        name: of the table.
        variables: of any float type; on the servers they are float32. In the same order on all workers.
        optimizer, consistency, average, compensation: as for `hvd.ps.ParameterServers.dense`.
    """

    def __init__(
        self,
        servers: ParameterServers,
        name: str,
        variables: Iterable[Any],
        optimizer: Rule = SGD(),  # noqa: B008
        consistency: Consistency = "asynchronous",
        average: bool = True,
        compensation: float = 0.0,
    ) -> None:
        self._servers = servers
        self._variables = list(variables)
        self._sizes = [int(np.prod(variable.shape)) for variable in self._variables]
        self._is_synchronous = consistency == "synchronous"
        self._rate = float(getattr(optimizer, "learning_rate", 0.0))
        _require_values(self._variables, name)
        values = [np.asarray(variable, dtype=np.float32).reshape(-1) for variable in self._variables]
        self._table = servers.dense(name, np.concatenate(values), optimizer, consistency, average, compensation)
        self.pull()

    def pull(self) -> None:
        """Gives the variables the servers' values. Of a synchronous table, as of this worker's clock: waits until all
        workers have reached it."""
        self._assign(on_host(self._pull_all, [], tf.float32))

    def push(self, gradients: Sequence[Any]) -> None:
        """Applies gradients by the table's optimizer on the servers. The variables stay as they are.

        Args:
            gradients: one for each variable; `tf.IndexedSlices` are made dense, and None counts as zeros.
        """
        on_host(self._push_all, [self._flat(gradients)], tf.int32)

    def step(self, gradients: Sequence[Any], learning_rate: Any = None) -> None:
        """Pushes gradients, finishes this worker's clock, and gives the variables the servers' values: in one round
        trip, unless the table is synchronous.

        Args:
            gradients: as for `push`.
            learning_rate: from now on; that of rank 0 is everybody's. None: as it is.
        """
        rate = tf.constant(-1.0) if learning_rate is None else tf.cast(learning_rate, tf.float32)
        self._assign(on_host(self._step, [self._flat(gradients), rate], tf.float32))

    def set_learning_rate(self, rate: float) -> None:
        """For all pushes that reach the servers from now on. One worker calls it for all."""
        self._rate = rate
        self._table.set_learning_rate(rate)

    def _flat(self, gradients: Sequence[Any]) -> tf.Tensor:
        if len(gradients) != len(self._variables):
            raise ValueError(f"there are {len(self._variables)} variables, and {len(gradients)} gradients")
        parts = [
            tf.zeros([size])
            if gradient is None
            else tf.reshape(tf.cast(tf.convert_to_tensor(gradient), tf.float32), [size])
            for gradient, size in zip(gradients, self._sizes)
        ]
        return tf.concat(parts, axis=0)

    def _assign(self, flat: tf.Tensor) -> None:
        for variable, part in zip(self._variables, tf.split(flat, self._sizes)):
            variable.assign(tf.cast(tf.reshape(part, variable.shape), variable.dtype))

    def _room(self) -> np.ndarray[Any, Any]:
        return np.empty(sum(self._sizes), dtype=np.float32)

    def _pull_all(self) -> Any:
        return self._table.pull(self._room())

    def _push_all(self, gradients: Any) -> np.int32:
        self._table.push(gradients)
        return np.int32(0)

    def _step(self, gradients: Any, rate: Any) -> Any:
        if rate >= 0 and rate != np.float32(self._rate) and basics.rank() == 0:
            self.set_learning_rate(float(rate))
        if not self._is_synchronous:
            values = self._table.push_pull(gradients, self._room())
            self._servers.clock()
            return values
        pushed = self._table.push(gradients, wait=False)
        self._servers.clock()
        values = self._pull_all()
        pushed.wait()
        return values


def _require_values(variables: Sequence[Any], name: str) -> None:
    """Within the first trace of a tf.function new variables have no values; they would be read as empty arrays."""
    for variable in variables:
        of_tensorflow = variable if isinstance(variable, tf.Variable) else variable.value
        if not of_tensorflow.is_initialized():
            raise ValueError(
                f"the variables for table {name!r} have no values yet: build the model before it is trained, by "
                "keras.Input(...) as its first layer or by model.build(input_shape)"
            )


def on_host(function: Callable[..., Any], inputs: list[Any], result: tf.DType) -> tf.Tensor:
    """Calls a function of NumPy arrays: now, or whenever the graph comes there, in the order of the program."""
    refuse_in_xla("a call of parameter servers")
    return tf.numpy_function(_marking_errors(function), inputs, result)


def _marking_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """What passes through a graph keeps no type, only its text: hvd.tensorflow.errors knows it by the beginning."""

    @functools.wraps(function)
    def marking(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except HorovodInternalError as error:
            raise HorovodInternalError(f"hvd: {error}") from None

    return marking
