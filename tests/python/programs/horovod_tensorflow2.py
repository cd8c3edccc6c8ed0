"""A TensorFlow training script as written for Horovod, with a loop and a gradient tape of its own: nothing in it knows
of hvd. Prints a line per rank when all agree."""

import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
tf.random.set_seed(hvd.rank())

inputs = tf.random.stateless_normal([512, 8], seed=[1, 2])
labels = tf.cast(tf.reduce_sum(inputs, axis=1) > 0, tf.int64)
dataset = tf.data.Dataset.from_tensor_slices((inputs, labels))
dataset = dataset.shard(hvd.size(), hvd.rank()).repeat().shuffle(256).batch(32)

model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(2)])
model.build((None, 8))
loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.optimizers.Adam(0.005 * hvd.size())


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return hvd.allreduce(loss, name="loss")


losses = []
for batch, (images, labels_of_batch) in enumerate(dataset.take(100 // hvd.size())):
    losses.append(float(training_step(images, labels_of_batch, batch == 0)))
    if batch == 0:  # now the optimizer has its variables, too
        variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(variables, root_rank=0)

assert losses[-1] < losses[0] / 2, losses
accuracy = tf.reduce_mean(tf.cast(tf.argmax(model(inputs), axis=1) == labels, tf.float32))
assert hvd.allreduce(accuracy, average=True) > 0.9, accuracy
for weights in model.trainable_variables:
    everywhere = hvd.allgather(tf.expand_dims(tf.convert_to_tensor(weights), 0))
    assert bool(tf.reduce_all(everywhere == everywhere[0])), "ranks disagree"
assert hvd.allgather_object({"rank": hvd.rank()}) == [{"rank": rank} for rank in range(hvd.size())]
print(f"rank {hvd.rank()} of {hvd.size()} is fine", flush=True)
hvd.shutdown()
