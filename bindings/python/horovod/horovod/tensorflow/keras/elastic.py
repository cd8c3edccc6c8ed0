"""See `hvd.keras.elastic`."""

from hvd.keras.elastic import *  # noqa: F403
from hvd.keras.elastic import __all__ as __all__
