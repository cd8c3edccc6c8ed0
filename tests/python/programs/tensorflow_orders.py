"""Forty gradients that the ranks make in opposite orders, with so many threads that run operations (0: the default).
What is not ordered must meet nevertheless, and fast."""

import sys

import tensorflow as tf

import hvd.tensorflow as hvd

threads = int(sys.argv[1])
tf.config.threading.set_inter_op_parallelism_threads(threads)
tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
variables = [tf.Variable(tf.fill([100 * (i + 1)], float(i))) for i in range(40)]
order = list(range(40)) if hvd.rank() % 2 == 0 else list(reversed(range(40)))


@tf.function
def step():
    gradients = [None] * 40
    for i in order:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[i] * variables[i]) * (hvd.rank() + 1.0)
        # All lists differ in shape, and are therefore called differently, whatever the order.
        gradients[i] = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, variables[i])
    return gradients


total = sum(range(hvd.size() + 1))
for _ in range(20):
    for i, gradient in enumerate(step()):
        assert (gradient.numpy() == 2 * i * total).all(), i
print(f"rank {hvd.rank()} is fine")
