"""See `hvd.keras.callbacks`; and `horovod.keras.callbacks` for what differs in LearningRateScheduleCallback."""

from horovod.keras import callbacks as _of_keras
from hvd.keras.callbacks import *  # noqa: F403
from hvd.keras.callbacks import __all__ as __all__

LearningRateScheduleCallback = _of_keras.LearningRateScheduleCallback  # type: ignore[misc]
