"""hvd for tf.keras under Horovod's name: everything of `hvd.keras`."""

from horovod.common import basics as _basics
from hvd.keras import *  # noqa: F403
from hvd.keras import __all__ as __all__

init = _basics.init
