"""Which Keras this process trains with, and which of hvd's packages moves its tensors.

Keras 3 is `keras`, on the backend that it is set to. The Keras 2 API is `tf_keras`, or `keras` beside a TensorFlow
before 2.16, and always on TensorFlow. TF_USE_LEGACY_KERAS=1 asks for tf_keras, as it does of TensorFlow.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

import numpy as np

_PACKAGES = {"tensorflow": "hvd.tensorflow", "torch": "hvd.torch"}


def _chosen_keras() -> Any:
    wants_tf_keras = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    return importlib.import_module("tf_keras" if wants_tf_keras else "keras")


keras: Any = _chosen_keras()


def is_keras_3(optimizer_or_class: Any) -> bool:
    """Whether an optimizer, or a class of them, has the API of Keras 3."""
    return hasattr(optimizer_or_class, "apply")


def name_of_keras(optimizer: Any) -> str:
    """The package that an optimizer's class, or the one that it was made from, belongs to: "keras" or "tf_keras"."""
    packages = [cls.__module__.split(".")[0] for cls in type(optimizer).__mro__]
    found = [name for name in packages if name in ("keras", "tf_keras")]
    if not found:
        whose = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
        raise ValueError(f"an optimizer of keras or tf_keras is needed, and {whose} is of neither")
    return found[0]


def backend_name() -> str:
    """The backend of the Keras chosen: "tensorflow" or "torch"."""
    return str(keras.backend.backend())


def runs_tensorflow(some_keras: Any) -> bool:
    return bool(some_keras.backend.backend() == "tensorflow")


def package(backend: str | None = None) -> Any:
    """hvd.torch or hvd.tensorflow: the package that moves the tensors of a backend, by default the one in use.

    Raises:
        ImportError: hvd.keras does not work with this backend.
    """
    backend = backend or backend_name()
    if backend not in _PACKAGES:
        raise ImportError(
            f"hvd.keras works on Keras's backends {' and '.join(_PACKAGES)}, not on {backend!r}: "
            "set KERAS_BACKEND before Keras is imported"
        )
    return importlib.import_module(_PACKAGES[backend])


def native(variable: Any) -> Any:
    """The backend's own variable or parameter in a variable of Keras 3; others as they are."""
    of_keras = getattr(keras, "Variable", None)
    return variable.value if of_keras is not None and isinstance(variable, of_keras) else variable


def is_plain(value: Any) -> bool:
    """Whether this is a number, a list of them or a NumPy array, and no tensor."""
    return isinstance(value, (bool, int, float, list, tuple, np.ndarray, np.generic))


def to_tensor(value: Any) -> Any:
    """A tensor of the backend. Plain Python numbers become what the backend makes of them."""
    if backend_name() == "torch":
        torch: ModuleType = importlib.import_module("torch")
        return torch.as_tensor(value) if is_plain(value) else native(value)
    tensorflow: ModuleType = importlib.import_module("tensorflow")
    return tensorflow.convert_to_tensor(native(value))


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)


def copied(variable: Any) -> Any:
    """A tensor with what is in a variable now."""
    inner = native(variable)
    return inner.detach().clone() if hasattr(inner, "detach") else inner.numpy().copy()


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
