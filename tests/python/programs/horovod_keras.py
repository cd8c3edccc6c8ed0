"""A Keras training script as written for Horovod, with model.fit() and callbacks: nothing in it knows of hvd. Prints a
line per rank when all agree."""

import os
import tempfile

import tensorflow as tf

import horovod.tensorflow.keras as hvd

hvd.init()
tf.keras.utils.set_random_seed(hvd.rank())

inputs = tf.random.stateless_normal([512, 8], seed=[1, 2]).numpy()
labels = (inputs.sum(axis=1) > 0).astype("int64")
own = slice(hvd.rank(), None, hvd.size())

model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(2)])
optimizer = tf.keras.optimizers.SGD(0.1 * hvd.size(), momentum=0.9)
model.compile(
    optimizer=hvd.DistributedOptimizer(optimizer, backward_passes_per_step=1, average_aggregated_gradients=True),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

with tempfile.TemporaryDirectory() as directory:
    checkpoint = os.path.join(directory, "best.keras")
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * hvd.size(), warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.1 * hvd.size(), multiplier=0.1, start_epoch=4),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(checkpoint, monitor="loss", save_best_only=True))
    history = model.fit(
        inputs[own], labels[own], batch_size=32, epochs=5, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0
    ).history
    if hvd.rank() == 0:
        restored = hvd.load_model(checkpoint)
        assert restored.evaluate(inputs, labels, verbose=0)[1] > 0.9

assert history["accuracy"][-1] > 0.9, history
assert hvd.broadcast_object(history, root_rank=0) == history, "metrics are not averages"
for weights in model.get_weights():
    assert (hvd.broadcast(weights, root_rank=0).numpy() == weights).all(), "ranks disagree"
print(f"rank {hvd.rank()} of {hvd.size()} is fine", flush=True)
