"""The last rank kills itself in the middle of a training loop; the others' error must name it, at once."""

import os
import signal
import time

import tensorflow as tf

import hvd.tensorflow as hvd
from timeouts import at_most

hvd.init()
last = hvd.size() - 1
variable = tf.Variable(tf.ones([1000]))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    gradient = hvd.DistributedGradientTape(tape).gradient(loss, variable)
    variable.assign_sub(0.1 * gradient)
    return hvd.allreduce(loss)


for number in range(1_000_000):
    if hvd.rank() == last and number == 100:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        step()
    except tf.errors.UnknownError as error:
        assert time.monotonic() - start < at_most(1)
        assert "hvd: " in error.message and f"rank {last}" in error.message, error
        break
# What comes later fails too, and says the same.
try:
    hvd.allreduce(variable, name="later")
except hvd.HorovodInternalError as error:
    assert isinstance(error, tf.errors.UnknownError) and f"rank {last}" in str(error), error
    print(f"rank {hvd.rank()} heard of it")
hvd.shutdown()
