"""Tapes whose gradients are reduced over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd.arguments import layers_of
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average
from hvd.tensorflow.compression import Compression, Compressor
from hvd.tensorflow.gradients import GradientReducer


def gradients_of(loss: Any, variables: Sequence[Any], grad_loss: Any = None, tape: Any = None) -> list[Any]:
    """This rank's gradients of a loss, None where it does not depend on a variable.

    Args:
        loss: a tensor that `tape` has recorded, or a function without arguments that returns it.
        grad_loss: the gradient of what is minimised, of the loss; None: ones.

    Raises:
        ValueError: a tensor without its tape.
    """
    if not callable(loss) and tape is None:
        raise ValueError("a loss that is a tensor needs the tape that has recorded it: tape=...")
    tape = tf.GradientTape() if tape is None else tape
    if callable(loss):
        with tape:
            loss = loss()
    return list(tape.gradient(loss, list(variables), grad_loss))


class _DistributedGradientTape(tf.GradientTape):
    """Stands for the tape given: what is recorded is that one's."""

    __slots__ = ("_hvd_reducer",)

    def __init__(self, tape: tf.GradientTape, reducer: GradientReducer) -> None:
        # Not a copy: both must know when recording has begun and ended, or TensorFlow ends it twice, and crashes.
        self.__dict__ = tape.__dict__  # type: ignore[misc]
        self._hvd_reducer = reducer

    def register_local_source(self, source: Any) -> None:
        """The gradients of this variable stay this rank's own."""
        self._hvd_reducer.register_local_source(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        *args: Any,
        use_generic_names: bool = False,
        **kw: Any,
    ) -> Any:
        """As the tape's, with gradients reduced over all ranks, which must all call it.

        Args:
            use_generic_names: changes nothing, since names are always made of positions; for scripts that give it.
            The others as of tf.GradientTape.gradient.

        Raises: as `hvd.allreduce`, with the name of the tape and the positions of the sources that disagree.
        """
        return tf.nest.pack_sequence_as(sources, self._reduced(target, sources, output_gradients, *args, **kw))

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        *args: Any,
        use_generic_names: bool = False,
        **kw: Any,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """What `gradient()` gives, in two lists of pairs of a gradient and its source, as optimizers take them: those
        of local sources, which differ between the ranks, and the others, which do not. A norm, for instance, can be
        made of each separately. All ranks must call it."""
        flat = tf.nest.flatten(sources)
        pairs = list(zip(self._reduced(target, sources, output_gradients, *args, **kw), flat))
        is_local = self._hvd_reducer.is_local
        return [pair for pair in pairs if is_local(pair[1])], [pair for pair in pairs if not is_local(pair[1])]

    def jacobian(self, target: Any, sources: Any, *args: Any, **kw: Any) -> Any:
        """As the tape's, reduced over all ranks, which must all call it. Raises as `gradient()`."""
        own = self._plain().jacobian(target, sources, *args, **kw)
        return tf.nest.pack_sequence_as(sources, self._hvd_reducer(tf.nest.flatten(own), tf.nest.flatten(sources)))

    def batch_jacobian(self, *args: Any, **kw: Any) -> Any:
        """As the tape's, and this rank's own: its rows belong to the examples in this rank's batch."""
        return self._plain().batch_jacobian(*args, **kw)

    def _plain(self) -> tf.GradientTape:
        """The tape without the reduction, sharing this one's state. TensorFlow makes a Jacobian of calls of gradient()
        in a loop whose iterations run at the same time, under one name: they must not reduce."""
        plain = object.__new__(tf.GradientTape)
        plain.__dict__ = self.__dict__
        return plain

    def _reduced(self, target: Any, sources: Any, *args: Any, **kw: Any) -> list[Any]:
        """The gradients of all sources, as a flat list."""
        own = super().gradient(target, sources, *args, **kw)
        return self._hvd_reducer(tf.nest.flatten(own, expand_composites=False), tf.nest.flatten(sources))


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape whose `gradient()` reduces over all ranks what the tape given has recorded. Every rank must make and use
    its tapes alike.

        with tf.GradientTape() as tape:
            loss = ...
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    Args:
        gradtape: the tape, before, while or after it records.
        device_dense, device_sparse: where the reductions are to be placed, as for tf.device.
        The others as for `hvd.tensorflow.gradients.GradientReducer`.

    Returns:
        A tf.GradientTape, and further `register_local_source(variable)`, for gradients that stay this rank's own, and
        `get_local_and_global_gradients(...)`.

    Raises:
        ValueError, TypeError: on wrong arguments. What the ranks do not agree on is raised by `gradient()`.
    """
    reducer = GradientReducer(
        name="tape",
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )
    return _DistributedGradientTape(gradtape, reducer)


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedGradientTape`, with layers whose gradients stay this rank's own.

    Args:
        local_layers: a Keras layer, or several; their trainable weights are local sources.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for layer in layers_of(local_layers):
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
