"""The exceptions that training scripts catch. They are hvd's own classes."""

from hvd.exceptions import *  # noqa: F403
