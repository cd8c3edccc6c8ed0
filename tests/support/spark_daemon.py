"""pyspark.daemon with PyTorch imported: the workers that it forks need not import it (spark.python.daemon.module)."""

import torch  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
