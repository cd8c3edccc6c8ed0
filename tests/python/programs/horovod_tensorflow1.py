"""A training script as written for Horovod and TensorFlow 1, with a graph and a monitored session: nothing in it knows
of hvd. Prints a line per rank when all agree."""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

tf.disable_v2_behavior()
hvd.init()
tf.set_random_seed(hvd.rank())
generator = np.random.default_rng(hvd.rank())

inputs = tf.placeholder(tf.float32, [None, 8])
labels = tf.placeholder(tf.int64, [None])
hidden_weights = tf.get_variable("hidden", [8, 16])
weights = tf.get_variable("weights", [16, 2])
logits = tf.matmul(tf.nn.relu(tf.matmul(inputs, hidden_weights)), weights)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

optimizer = tf.train.AdamOptimizer(0.005 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Average)
global_step = tf.train.get_or_create_global_step()
train_op = optimizer.minimize(loss, global_step=global_step)
mean_loss = hvd.allreduce(loss, name="mean_loss")
with tf.control_dependencies([train_op]):
    everywhere = hvd.allgather(tf.expand_dims(weights.read_value(), 0))

with tempfile.TemporaryDirectory() as directory:
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=100 // hvd.size()),
        tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=25),
    ]
    checkpoints = directory if hvd.rank() == 0 else None
    losses = []
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoints, hooks=hooks) as session:
        while not session.should_stop():
            batch = generator.standard_normal([32, 8], dtype="float32")
            feed = {inputs: batch, labels: (batch.sum(axis=1) > 0).astype("int64")}
            _, mean, rows = session.run([train_op, mean_loss, everywhere], feed_dict=feed)
            losses.append(mean)
    if hvd.rank() == 0:
        assert tf.train.latest_checkpoint(directory) is not None

assert losses[-1] < losses[0] / 2, losses
assert len(rows) == hvd.size() and (rows == rows[0]).all(), "ranks disagree"
print(f"rank {hvd.rank()} of {hvd.size()} is fine", flush=True)
