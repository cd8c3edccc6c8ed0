"""Which Keras this process trains with, and on which backend.

Keras 3 is `keras`, on the backend that it is set to. The Keras 2 API is `tf_keras`, or `keras` beside a TensorFlow
before 2.16, and always on TensorFlow. TF_USE_LEGACY_KERAS=1 asks for tf_keras, as it does of TensorFlow.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable

import numpy as np

from hvd.keras.backend import Backend

_BACKENDS = {"tensorflow": "hvd.keras.on_tensorflow", "torch": "hvd.keras.on_torch", "jax": "hvd.keras.on_jax"}


def _chosen_keras() -> Any:
    wants_tf_keras = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    return importlib.import_module("tf_keras" if wants_tf_keras else "keras")


keras: Any = _chosen_keras()


def is_keras_3(optimizer_or_class: Any) -> bool:
    """Whether an optimizer, or a class of them, has the API of Keras 3."""
    return hasattr(optimizer_or_class, "apply")


def name_of_keras(instance: Any) -> str:
    """The package that the class of an optimizer or a model, or the one that it was made from, belongs to: "keras" or
    "tf_keras"."""
    packages = [cls.__module__.split(".")[0] for cls in type(instance).__mro__]
    found = [name for name in packages if name in ("keras", "tf_keras")]
    if not found:
        whose = f"{type(instance).__module__}.{type(instance).__name__}"
        raise ValueError(f"an optimizer or model of keras or tf_keras is needed, and {whose} is of neither")
    return found[0]


def backend_name() -> str:
    """The name of the backend of the Keras chosen: "tensorflow", "torch" or "jax"."""
    return str(keras.backend.backend())


def backend(name: str | None = None) -> Backend:
    """The one of this name; by default the one in use.

    Raises:
        ImportError: hvd.keras does not work with it.
    """
    name = name or backend_name()
    if name not in _BACKENDS:
        *others, last = _BACKENDS
        raise ImportError(
            f"hvd.keras works on Keras's backends {', '.join(others)} and {last}, not on {name!r}: "
            "set KERAS_BACKEND before Keras is imported"
        )
    found: Backend = importlib.import_module(_BACKENDS[name]).BACKEND
    return found


def native(variable: Any) -> Any:
    """The backend's own variable or parameter in a variable of Keras 3; others as they are."""
    of_keras = getattr(keras, "Variable", None)
    return variable.value if of_keras is not None and isinstance(variable, of_keras) else variable


def is_plain(value: Any) -> bool:
    """Whether this is a number, a list of them or a NumPy array, and no tensor."""
    return isinstance(value, (bool, int, float, list, tuple, np.ndarray, np.generic))


def wrap_method(cls: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Replaces a method or a property of a class in the base that defines it."""
    defining = next(base for base in cls.__mro__ if name in vars(base))
    setattr(defining, name, wrapper(vars(defining)[name]))


class ForEitherKeras:
    """What tf_keras asks of a callback besides, so that those made for Keras 3 serve its models, too."""

    _chief_worker_only: bool | None = None
    _supports_tf_logs = False

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False
