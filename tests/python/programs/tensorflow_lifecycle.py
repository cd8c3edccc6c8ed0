"""Joining and leaving again with traced functions, forked processes, PyTorch in the same process, and an end without
shutdown while an operation is under way."""

import contextlib
import multiprocessing
import sys
import threading
import time

import numpy as np
import tensorflow as tf

import hvd.tensorflow as hvd

assert "hvd.tensorflow.data" not in sys.modules  # imported when it is used
assert hvd.data is sys.modules["hvd.tensorflow.data"]


@tf.function
def step(tensor):
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        loss = tf.reduce_sum(tensor * tensor)
    return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, tensor), hvd.size_op()


def child(connection):
    answers = [hvd.rank(), hvd.size()]
    for call in (lambda: hvd.allgather_object(1), hvd.init, lambda: hvd.broadcast_object(1)):
        try:
            call()
        except ValueError as error:
            answers.append("forked" in str(error))
    connection.send(answers)


for _ in range(5):
    hvd.init()
    gradient, size = step(tf.ones(3))
    assert gradient.numpy().tolist() == [2 * hvd.size()] * 3 and int(size) == hvd.size()
    hvd.barrier()
    hvd.shutdown()
hvd.init()

fork = multiprocessing.get_context("fork")
mine, theirs = fork.Pipe()
process = fork.Process(target=child, args=(theirs,))
process.start()
assert mine.poll(30), "a forked process hangs"
assert mine.recv() == [hvd.rank(), hvd.size(), True, True, True]
process.join(10)
assert process.exitcode == 0
assert step(tf.ones(3))[0].numpy().tolist() == [2 * hvd.size()] * 3

if "torch" in sys.argv:
    import torch

    import hvd.torch as hvd_torch

    handle = hvd_torch.allreduce_async(torch.ones(2), op=hvd.Sum, name="both")
    assert hvd.allreduce(tf.ones(2), op=hvd.Sum, name="tensorflow").numpy().tolist() == [hvd.size()] * 2
    assert hvd_torch.synchronize(handle).tolist() == [hvd.size()] * 2
    assert (np.asarray(hvd_torch.allreduce(torch.ones(2))) == 1).all()


def left_alone():
    with contextlib.suppress(hvd.HorovodInternalError):
        hvd.allreduce(tf.ones(7), name="left")


hvd.barrier()
if hvd.rank() == 0:
    threading.Thread(target=left_alone, daemon=True).start()  # nobody answers
    time.sleep(0.3)
print(f"rank {hvd.rank()} is fine", flush=True)
