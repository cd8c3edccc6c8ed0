"""See `hvd.keras.callbacks`."""

from hvd.keras.callbacks import *  # noqa: F403
from hvd.keras.callbacks import __all__ as __all__
