"""hvd for MXNet under Horovod's name. Everything of `hvd.mxnet`, which says what each function does; and where Horovod
refuses what hvd can do, and scripts may count on it, the same error (`horovod.mxnet.mpi_ops`).
"""

from horovod.common.util import check_extension as check_extension
from horovod.mxnet import compression as compression
from horovod.mxnet import functions as functions
from horovod.mxnet import mpi_ops as mpi_ops
from horovod.mxnet.mpi_ops import *  # noqa: F403
