"""See `hvd.tensorflow.data.compute_worker`."""

import sys

from hvd.tensorflow.data.compute_worker import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
