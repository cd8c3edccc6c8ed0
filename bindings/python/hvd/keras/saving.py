"""Models with a distributed optimizer, as they come back from a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hvd.keras.framework import backend, keras
from hvd.keras.optimizer import distribute


def load_model(
    filepath: str | os.PathLike[str],
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = None,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model that was saved with a distributed optimizer or with a plain one, and makes its optimizer, which has
    the state that it was saved with, a distributed one. A rank may load a model alone, if it does not train it.

    Args:
        filepath: see `keras.models.load_model`.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: whatever else it does not know, by name.
        compression: of the gradients, one of `hvd.Compression`.
        legacy_opts: not needed; for scripts that give it.

    Returns:
        The model. One that was saved without an optimizer has none.

    Raises:
        ValueError: there is no model in the file.
    """
    objects = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()} | (custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        distribute(optimizer, compression)
        backend().on_loaded(model)
    return model
