"""The reduction of a model's gradients, in eager mode and within tf.function; for tapes and optimizers.

In a graph each gradient is an operation of its own, without order among them: it starts as soon as the gradient is
there, while the backward pass goes on, and hvd fuses what is ready on all ranks. In eager mode all gradients are there
already, and are reduced as one group.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd import arguments, elastic
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, check_gradient_reduction
from hvd.tensorflow.collectives import reduce_slices, reduce_tensors, set_id, size_op, unforeseen
from hvd.tensorflow.compression import Compression, Compressor
from hvd.tensorflow.naming import wire_name


def key_of(variable: Any) -> int:
    """What tells variables apart, also where Keras wraps them."""
    value = getattr(variable, "_value", None)
    return id(variable if value is None else value)


class GradientReducer:
    """Reduces lists of gradients over the ranks. All ranks must make and call reducers alike.

    Args:
        name: of the reductions on the wire; what is reduced at the same time needs different ones. None: it is set
            before the first call.
        op: Average, Sum, Adasum, Min, Max or Product.
        compression: the smaller type that is used on the wire.
        sparse_as_dense: makes IndexedSlices dense; otherwise their values and indices are gathered.
        gradient_predivide_factor: with Average, gradients are divided by it before the sum, and the sum by
            size / factor after it, which keeps 16-bit gradients in range.
        num_groups: into how many groups the gradients are divided, to be reduced group by group. 0: none.
        groups: such groups, as lists of variables, or their number. What is in none is reduced by itself.
        process_set: the ranks that take part.
        scale_local_gradients: gradients of local sources are divided by the number of ranks, so that they weigh as much
            as averages do.
        device_dense: where the reductions of tensors are to be placed, as for tf.device.
        device_sparse: the same for IndexedSlices.

    Raises:
        ValueError: on wrong arguments.
    """

    def __init__(
        self,
        *,
        name: str | None,
        op: int = Average,
        compression: type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: int | Sequence[Sequence[Any]] | None = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        device_dense: str = "",
        device_sparse: str = "",
    ) -> None:
        check_gradient_reduction(op, gradient_predivide_factor)
        arguments.compressor(compression)
        self._num_groups, self._groups = _checked_groups(num_groups, groups)
        self._grouped_variables = groups  # kept, so that no other variable has the key of one of them
        self.name, self._op, self._compression = name, op, compression
        self._sparse_as_dense = sparse_as_dense
        self._factors = 1.0 / gradient_predivide_factor, gradient_predivide_factor
        self._process_set = process_set
        self._scales_local = scale_local_gradients
        self._devices = device_dense, device_sparse
        self._local: dict[int, Any] = {}  # by key; the variable is kept, so that the key stays its own

    def register_local_source(self, variable: Any) -> None:
        """The gradients of this variable stay this rank's own."""
        self._local[key_of(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        return key_of(variable) in self._local

    @property
    def reduces(self) -> bool:
        """Whether there is anybody to reduce with."""
        number_of_ranks = self._process_set.size() or 1
        return bool(self._process_set.included()) and (number_of_ranks > 1 or elastic.may_grow())

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any] | None = None) -> list[Any]:
        """The reduced gradients. None stays None.

        Args:
            gradients: tensors, IndexedSlices or None; of the same variables, shapes and dtypes on every rank.
            variables: whose gradients they are; needed for local sources and groups of variables.
        """
        set_id(self._process_set)  # raises if there is none
        result = list(gradients)
        if not self.reduces:
            return result
        if variables is None:
            keys = [-1 - i for i in range(len(result))]
        else:
            keys = [key_of(variable) for variable in variables]
        shared = []
        for i, gradient in enumerate(result):
            if gradient is None:
                continue
            if keys[i] in self._local:
                result[i] = self._scaled(gradient)
            else:
                if self._sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
                    result[i] = tf.convert_to_tensor(gradient)
                shared.append(i)
        self._reduce(result, shared, keys)
        return result

    def _scaled(self, gradient: Any) -> Any:
        if not self._scales_local:
            return gradient
        size = tf.cast(size_op(set_id(self._process_set)), gradient.dtype)  # of the job in which a graph runs
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / size, gradient.indices, gradient.dense_shape)
        return gradient / size

    def _reduce(self, gradients: list[Any], shared: list[int], keys: list[int]) -> None:
        dense = [i for i in shared if not isinstance(gradients[i], tf.IndexedSlices)]
        label = f"{self.name}.{_signature([gradients[i] for i in shared])}"
        without_order = unforeseen() if shared else None
        for group in self._grouped(dense, keys, gradients):
            name = wire_name("allreduce", f"{label}.{group[0]}")
            reduced = self._reduce_group([gradients[i] for i in group], name, without_order)
            for i, tensor in zip(group, reduced):
                gradients[i] = tensor
        for i in shared:
            if isinstance(gradients[i], tf.IndexedSlices):
                name = wire_name("allgather", f"{label}.{i}")
                with tf.device(self._devices[1]):
                    gradients[i] = reduce_slices(gradients[i], name, self._op, self._process_set, without_order)

    def _reduce_group(self, tensors: list[tf.Tensor], name: str, without_order: Any) -> list[tf.Tensor]:
        with tf.device(self._devices[0]):
            compressed = [self._compression.compress(tensor) for tensor in tensors]
            number = set_id(self._process_set)
            sent = [tensor for tensor, _ in compressed]
            reduced = reduce_tensors(sent, name, self._op, *self._factors, number, without_order)
            contexts = [context for _, context in compressed]
            return [self._compression.decompress(*pair) for pair in zip(reduced, contexts)]

    def _grouped(self, dense: list[int], keys: list[int], gradients: list[Any]) -> list[list[int]]:
        """The positions of dense gradients, as they are reduced together: of one dtype."""
        if self._groups is not None:
            number_of = {key: number for number, group in enumerate(self._groups) for key in group}
            chosen: dict[Any, list[int]] = {}
            for i in dense:
                chosen.setdefault(number_of.get(keys[i], ("alone", i)), []).append(i)
            groups = list(chosen.values())
        elif self._num_groups > 0:
            each = -(-len(dense) // self._num_groups)
            groups = [dense[start : start + each] for start in range(0, len(dense), each)] if dense else []
        elif tf.executing_eagerly():
            groups = [dense] if dense else []
        else:
            groups = [[i] for i in dense]
        return [
            [i for i in group if gradients[i].dtype == dtype]
            for group in groups
            for dtype in dict.fromkeys(gradients[i].dtype for i in group)
        ]


def _checked_groups(
    num_groups: int, groups: int | Sequence[Sequence[Any]] | None
) -> tuple[int, list[list[int]] | None]:
    if isinstance(groups, int):
        if num_groups:
            raise ValueError("num_groups and groups exclude each other")
        num_groups, groups = groups, None
    if num_groups < 0:
        raise ValueError(f"the number of groups must not be negative, not {num_groups}")
    if groups is None:
        return num_groups, None
    if num_groups:
        raise ValueError("num_groups and groups exclude each other")
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups must be a number that is not negative, or a list of lists of variables")
    keys = [[key_of(variable) for variable in group] for group in groups]
    if len({key for group in keys for key in group}) != sum(len(group) for group in keys):
        raise ValueError("a variable can be in one group only")
    return 0, keys


def _signature(gradients: list[Any]) -> str:
    """Tells lists of gradients apart, so that each has names of its own; the same on every rank."""
    kinds = [(str(gradient.dtype), str(gradient.shape)) for gradient in gradients]
    return f"{zlib.crc32(repr(kinds).encode()):08x}"
