"""See `hvd.tensorflow.data.compute_worker`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hvd.tensorflow.data import compute_worker as _hvd

__all__ = ["main"]


def main(dispatchers: int, dispatcher_side: str, configfile: str | os.PathLike[str], timeout: float = 60) -> None:
    """As `hvd.tensorflow.data.compute_worker.run`, with Horovod's arguments.

    Raises:
        ValueError: the number of processes is no multiple of that of the dispatchers.
    """
    _hvd.run(Path(configfile), dispatchers, dispatcher_side, timeout)


if __name__ == "__main__":
    sys.exit(_hvd.main())
