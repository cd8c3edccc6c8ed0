"""hvd.keras.callbacks, under the name that scripts use which train with tf.keras."""

from hvd.keras.callbacks import *  # noqa: F403
from hvd.keras.callbacks import __all__ as __all__
