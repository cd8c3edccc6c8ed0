"""Random programs for so many seconds, with so many threads that run operations: 0 means the default. The ranks draw
alike, but for the order in which they make what has none."""

import random
import sys
import time

import numpy as np
import tensorflow as tf

import hvd.tensorflow as hvd

threads, seconds = int(sys.argv[1]), float(sys.argv[2])
tf.config.threading.set_inter_op_parallelism_threads(threads)
hvd.init()
rank, size = hvd.rank(), hvd.size()
alike, alone = random.Random(threads), random.Random(rank)
total, every = float(sum(range(1, size + 1))), range(1, size + 1)

# Of tensors filled with rank + 1: what is called, and how the result must be filled.
CALLS = {
    "sum": (lambda t: hvd.allreduce(t, op=hvd.Sum), lambda n: np.full(n, total)),
    "largest": (lambda t: hvd.allreduce(t, op=hvd.Max), lambda n: np.full(n, size)),
    "group": (lambda t: tf.add_n(hvd.grouped_allreduce([t, t], op=hvd.Sum)), lambda n: np.full(n, 2 * total)),
    "gather": (hvd.allgather, lambda n: np.repeat(every, n)),
    "broadcast": (lambda t: hvd.broadcast(t, size - 1), lambda n: np.full(n, size)),
    "alltoall": (hvd.alltoall, lambda n: np.repeat(every, n // size)),
    "scatter": (lambda t: hvd.reducescatter(t, op=hvd.Sum), lambda n: np.full(n // size, total)),
}


def user_calls(lengths, names):
    def function():
        return [CALLS[name][0](tf.fill([length], rank + 1.0)) for length, name in zip(lengths, names)]

    return function, [CALLS[name][1](length) for length, name in zip(lengths, names)]


def training(lengths, _):
    variables = [tf.Variable(tf.fill([length], 1.0)) for length in lengths]

    def function():
        with tf.GradientTape() as tape:
            losses = [tf.reduce_sum(each * each) for each in alone.sample(variables, len(variables))]
            loss = tf.add_n(losses) * (rank + 1.0)
        return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, variables)

    return function, [np.full(length, 2 * total) for length in lengths]


end, programs = time.monotonic() + seconds, 0
while hvd.broadcast_object(time.monotonic() < end):
    lengths = [size * alike.choice([1, 7, 100, 3000, 50_000]) for _ in range(alike.randint(1, 30))]
    names = [alike.choice(list(CALLS)) for _ in lengths]
    function, expected = alike.choice([user_calls, training])(lengths, names)
    call = tf.function(function, autograph=False) if alike.random() < 0.7 else function
    for _ in range(alike.randint(1, 20)):
        for result, right in zip(call(), expected):
            np.testing.assert_array_equal(result.numpy(), right)
    programs += 1
print(f"rank {rank} is fine after {programs} programs")
