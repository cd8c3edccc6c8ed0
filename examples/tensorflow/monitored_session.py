"""Handwritten digits in a monitored session of TensorFlow 1, by several processes.

    hvdrun -np 2 python examples/tensorflow/monitored_session.py --checkpoints /tmp/digits

Scripts from before TensorFlow 2 go on with `tensorflow.compat.v1`: they build a graph and run it in a session. What one
of them needs for several processes are the seven lines with numbers. The digits come with scikit-learn.
"""

import argparse

import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd.tensorflow as hvd

BATCH = 32  # images per process and step
LEARNING_RATE = 0.002  # for one process


def load_images():
    digits = load_digits()
    return train_test_split(digits.data.astype("float32") / 16, digits.target, test_size=0.2, random_state=0)


def dense(inputs, units, name):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [inputs.shape[1], units], initializer=tf.glorot_uniform_initializer())
        return inputs @ weights + tf.get_variable("bias", [units], initializer=tf.zeros_initializer())


def classify(images):
    with tf.variable_scope("digits", reuse=tf.AUTO_REUSE):
        return dense(tf.nn.relu(dense(images, 128, "hidden")), 10, "output")


def next_batch(images, labels, rank, size):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shard(size, rank)
    dataset = dataset.shuffle(len(images)).repeat().batch(BATCH)
    return tf.data.make_one_shot_iterator(dataset).get_next()


def train(options):
    # 1. Join the job.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    # 2. Use one GPU, if there are any.
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    tf.set_random_seed(rank)
    train_images, test_images, train_labels, test_labels = load_images()
    images, labels = next_batch(train_images, train_labels, rank, size)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, classify(images))

    # 3. A learning rate for batches that are `size` times as large.
    optimizer = tf.train.AdamOptimizer(LEARNING_RATE * size)

    # 4. Average the gradients over the ranks.
    optimizer = hvd.DistributedOptimizer(optimizer)
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([optimizer.minimize(loss, global_step=step)]):
        train_step = step.read_value()  # the number of steps done, this one included

    mean_loss = hvd.allreduce(loss)
    guesses = tf.argmax(classify(tf.constant(test_images)), axis=1)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(guesses, test_labels), tf.float32))
    weights = tf.concat([tf.reshape(variable, [-1]) for variable in tf.trainable_variables()], axis=0)
    distance = tf.reduce_max(hvd.allreduce(weights, op=hvd.Max) - hvd.allreduce(weights, op=hvd.Min))
    at_the_end = tf.train.FinalOpsHook([accuracy, distance])

    hooks = [
        # 5. Begin with the same weights everywhere: those that rank 0 has made, or found in a checkpoint.
        hvd.BroadcastGlobalVariablesHook(0),
        # 6. Fewer steps, since each counts for `size` times as many images.
        tf.train.StopAtStepHook(last_step=options.steps // size),
        at_the_end,
    ]

    # 7. Checkpoints on one rank only, lest the others overwrite them.
    checkpoints = options.checkpoints if rank == 0 else None

    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoints, hooks=hooks, config=config) as session:
        while not session.should_stop():
            steps_done, loss_now = session.run([train_step, mean_loss])
            if rank == 0 and steps_done % 100 == 0:
                print(f"step {steps_done}: loss {loss_now:.4f}", flush=True)
    final_accuracy, final_distance = at_the_end.final_ops_values
    assert final_distance == 0, "the ranks' models have come apart"
    if rank == 0:
        print(f"test accuracy {final_accuracy:.1%} after {steps_done} steps, {size} ranks", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--steps", type=int, default=1000, help="for one process (default: %(default)s)")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="training goes on from the newest checkpoint there")
    options = parser.parse_args()
    with tf.Graph().as_default():
        train(options)


if __name__ == "__main__":
    main()
