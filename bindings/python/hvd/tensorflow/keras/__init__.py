"""hvd.keras, under the name that scripts use which train with tf.keras."""

from hvd.keras import *  # noqa: F403
from hvd.keras import __all__ as __all__
from hvd.keras import __getattr__ as __getattr__
