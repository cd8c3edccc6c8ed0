"""hvd.keras.elastic, under the name that scripts use which train with tf.keras."""

from hvd.keras.elastic import *  # noqa: F403
from hvd.keras.elastic import __all__ as __all__
