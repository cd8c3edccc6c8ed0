"""The reader for TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from hvd.data.reader import Reader


def dataset(reader: Reader, labels: Sequence[str]) -> Any:
    example = reader.example()
    if unknown := [name for name in labels if name not in example]:
        raise ValueError(f"there is no column {', '.join(unknown)}: they are {', '.join(example)}")

    def shaped(columns: dict[str, Any]) -> Any:
        if not labels:
            return columns
        features = {name: value for name, value in columns.items() if name not in labels}
        return _alone(features), _alone({name: columns[name] for name in labels})

    signature = shaped({name: _spec(name, values) for name, values in example.items()})
    made = tf.data.Dataset.from_generator(lambda: reader.batches(shaped), output_signature=signature)
    # Both take batches before the loop does, and what is taken counts as processed: rows would be lost at a restore.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False  # of a map() that the caller adds
    made = made.with_options(options)
    if reader.state_dict()["remaining"] is None:
        made = made.apply(tf.data.experimental.assert_cardinality(len(reader)))
    return made


def _alone(columns: dict[str, Any]) -> Any:
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _spec(name: str, values: Any) -> Any:
    kind = values.dtype
    if kind.kind == "O":
        if not isinstance(values[0], (str, bytes)):
            held = "lists of unequal length" if isinstance(values[0], np.ndarray) else f"a {type(values[0]).__name__}"
            raise ValueError(f"column {name!r} has {held}, which no tensor has: choose other columns")
        return tf.TensorSpec((None,), tf.string)
    if kind.kind in "mM":
        raise ValueError(f"column {name!r} is of type {kind}, which no tensor has: choose other columns")
    return tf.TensorSpec((None, *values.shape[1:]), tf.as_dtype(kind))
