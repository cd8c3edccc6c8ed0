"""The last rank kills itself in the middle of a loop; the others' error must name it, at once."""

import os
import signal
import time

import numpy as np

import hvd
from timeouts import at_most

hvd.init()
tensor = np.ones(1000, np.float32)
last = hvd.size() - 1
for step in range(1_000_000):
    if hvd.rank() == last and step == 200:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        hvd.allreduce(tensor, name="step")
    except hvd.HorovodInternalError as error:
        assert time.monotonic() - start < at_most(1)
        assert f"rank {last}" in str(error), error
        break
# What comes later fails too, and says the same.
try:
    hvd.allreduce(tensor, name="later")
except hvd.HorovodInternalError as error:
    assert f"rank {last}" in str(error), error
    print(f"rank {hvd.rank()} heard of it")
hvd.shutdown()
