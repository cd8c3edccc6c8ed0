"""A second model like one that is trained: a thread can give it what was saved, and have Keras write it, meanwhile."""

from __future__ import annotations

import logging
import pathlib
import random
from typing import Any

from hvd.keras.framework import is_keras_3, keras
from hvd.keras.functions import are_built, state_of

_log = logging.getLogger("hvd")


class Twin:
    """In main memory. For one thread at a time.

    Args:
        model: compiled and built, of Keras 3.

    Raises:
        Exception: whatever Keras raises if the model cannot be made from its configuration.
        ValueError: Keras makes another one of it.
    """

    def __init__(self, model: Any) -> None:
        config = keras.saving.serialize_keras_object(model)
        with keras.device("cpu"):
            self._model = keras.saving.deserialize_keras_object(config, safe_mode=False)
        if not are_built(self._model) or _shapes(self._model) != _shapes(model):
            raise ValueError("its copy has other variables")

    def write(self, values: list[Any], file: pathlib.Path) -> list[Any]:
        """Writes a model with these values of `state_of`. Returns those that Keras does not write, which are the states
        of random generators, and None in place of the others."""
        with keras.device("cpu"):
            for variable, value in zip(state_of(self._model), values):
                variable.assign(value)
            self._model.save(file)
        written = {id(variable) for of in (self._model.weights, self._model.optimizer.variables) for variable in of}
        return [None if id(v) in written else value for v, value in zip(state_of(self._model), values)]


def _shapes(model: Any) -> list[Any]:
    return [(tuple(variable.shape), str(variable.dtype)) for variable in state_of(model)]


def twin_of(model: Any, optimizer: Any) -> Twin | None:
    """None: there can be none, or its file would lack this optimizer."""
    if not is_keras_3(optimizer) or optimizer is not model.optimizer:
        return None
    drawn = random.getstate()
    try:
        return Twin(model)
    except Exception as error:
        _log.info(
            "hvd: checkpoints of the model are pickled, since Keras cannot make it from its configuration: %s", error
        )
        return None
    finally:
        random.setstate(drawn)  # initializers draw their seeds; the training goes on as if nobody had
