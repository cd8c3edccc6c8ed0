"""The ways in which a TensorFlow program runs."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

MODES = ("eager", "function", "session")


def run(mode: str, function: Callable[..., Any], *inputs: Any) -> Any:
    """What the function makes of the inputs, as NumPy arrays in the structure that it returns.

    In a graph inputs are placeholders, so that nothing is folded while it is built.
    """
    tensors = [tf.convert_to_tensor(each) for each in inputs]
    if mode == "eager":
        return values(function(*tensors))
    if mode == "function":
        return values(tf.function(function, autograph=False)(*tensors))
    with tf.Graph().as_default():
        placeholders = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in tensors]
        results = function(*placeholders)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(results, {place: tensor.numpy() for place, tensor in zip(placeholders, tensors)})


def values(results: Any) -> Any:
    return tf.nest.map_structure(lambda each: each.numpy() if tf.is_tensor(each) else each, results)
