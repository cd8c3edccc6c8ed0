"""A model of tf_keras where hvd.keras stands on Keras 3, and TensorFlow's own checkpoints of an optimizer."""

from __future__ import annotations

import tempfile

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import hvd.tensorflow as core
import hvd.tensorflow.keras as hvd
from hvd.tensorflow.keras.callbacks import LearningRateWarmupCallback, MetricAverageCallback

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
y = x[:, :3]
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    MetricAverageCallback(),
    LearningRateWarmupCallback(0.2, warmup_epochs=1),
]
model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
model.compile(optimizer=hvd.DistributedOptimizer(tf_keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
history = model.fit(x, y, epochs=2, verbose=0, callbacks=callbacks).history
assert all(other == history for other in hvd.allgather_object(history))
for weights in hvd.allgather_object(model.get_weights()):
    assert all((here == there).all() for here, there in zip(weights, model.get_weights()))

# hvd.tensorflow's takes optimizers of Keras, too. A checkpoint of one restores a plain one.
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
optimizer = core.DistributedOptimizer(keras.optimizers.Adam(0.1))
model.compile(optimizer=optimizer, loss="mse", steps_per_execution=2)
model.fit(x, y, batch_size=16, verbose=0)
with tempfile.TemporaryDirectory() as directory:
    path = tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{directory}/checkpoint")
    other, plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]), keras.optimizers.Adam(0.1)
    plain.build(other.trainable_variables)
    tf.train.Checkpoint(model=other, optimizer=plain).restore(path).assert_existing_objects_matched()
assert int(plain.iterations.numpy()) == 4
np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
print("both work", flush=True)
