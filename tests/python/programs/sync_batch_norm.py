"""Compares hvd's batch normalisation over the ranks' batches with Keras's over the batch that these make together."""

import tempfile

import numpy as np
import tensorflow as tf

import hvd.tensorflow as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
GENERATOR = np.random.default_rng(0)
ROWS = 12
BOUNDS = [0, *(ROWS * (rank + 1) // SIZE + (rank % 2 == 0) for rank in range(SIZE - 1)), ROWS]
OWN = slice(BOUNDS[RANK], BOUNDS[RANK + 1])  # batches of different sizes
KERAS = tf.keras.layers.BatchNormalization.__module__.split(".")[0]


def Keras(**arguments):
    """Fused, that of Keras 2 follows the unbiased variance."""
    return tf.keras.layers.BatchNormalization(**arguments, **({} if hasattr(tf.keras, "ops") else {"fused": False}))


def normal(*shape):
    return GENERATOR.normal(size=shape).astype("float32")


def require_close(given, wanted, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(given), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def both(shape, **arguments):
    """hvd's layer and Keras's, with the same parameters, none of them neutral."""
    layers = hvd.SyncBatchNormalization(momentum=0.9, **arguments), Keras(momentum=0.9, **arguments)
    for layer in layers:
        layer.build(shape)
    gamma, beta = normal(*layers[0].gamma.shape), normal(*layers[0].beta.shape)
    for layer in layers:
        layer.gamma.assign(gamma)
        layer.beta.assign(beta)
    return layers


def results(layer, inputs, weights, way, **arguments):
    """Outputs and gradients, of two steps."""

    @way
    def step(inputs, weights):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True, **arguments)
            loss = tf.reduce_sum((outputs + tf.square(outputs)) * weights)
        return [outputs, *tape.gradient(loss, [inputs, *layer.trainable_weights])]

    step(tf.constant(inputs), tf.constant(weights))
    return step(tf.constant(inputs), tf.constant(weights))


def check_outputs_gradients_and_moving_averages():
    for way in (tf.function, lambda step: step):
        for shape, axis in (((ROWS, 3), -1), ((ROWS, 4, 5, 3), -1), ((ROWS, 3, 4), 1)):
            inputs, weights = 3 * normal(*shape) + 2, normal(*shape)
            ours, keras = both(shape, axis=axis)
            of_ours, of_keras = results(ours, inputs[OWN], weights[OWN], way), results(keras, inputs, weights, way)
            require_close(of_ours[0], of_keras[0][OWN])
            require_close(of_ours[1], of_keras[1][OWN], 1e-4)
            # Those of gamma and beta are this rank's own: together they are Keras's.
            for own, whole in zip(of_ours[2:], of_keras[2:]):
                require_close(hvd.allreduce(own, op=hvd.Sum), whole, 1e-3)
            require_close(ours.moving_mean, keras.moving_mean)
            require_close(ours.moving_variance, keras.moving_variance)
            everywhere = hvd.allgather_object([np.asarray(ours.moving_mean), np.asarray(ours.moving_variance)])
            assert all(np.array_equal(other, everywhere[0]) for other in everywhere)
            require_close(ours(inputs[: RANK + 1], training=False), keras(inputs[: RANK + 1], training=False))


def check_far_from_zero():
    """Where the mean square minus the squared mean has no digit left."""
    inputs = (normal(ROWS, 3) + 10_000).astype("float32")
    ours, keras = both(inputs.shape)
    ours(inputs[OWN], training=True), keras(inputs, training=True)
    variance = inputs.astype("float64").var(axis=0)
    require_close(ours.moving_variance, 0.9 + 0.1 * variance, 1e-4)


def check_masks():
    inputs, weights, mask = normal(ROWS, 4, 3), normal(ROWS, 4, 3), GENERATOR.random((ROWS, 4)) < 0.6
    mask[OWN.start] = False
    mask = hvd.broadcast(mask, 0).numpy()
    ours, keras = both(inputs.shape)
    of_ours = results(ours, inputs[OWN], weights[OWN], tf.function, mask=tf.constant(mask[OWN]))
    of_keras = results(keras, inputs, weights, tf.function, mask=tf.constant(mask))
    require_close(of_ours[0], of_keras[0][OWN], 1e-4)
    require_close(of_ours[1], of_keras[1][OWN], 1e-3)


def check_a_rank_without_rows():
    inputs = normal(ROWS, 3)
    ours, keras = both(inputs.shape)
    step = tf.function(lambda inputs: ours(inputs, training=True))
    outputs, whole = step(inputs if RANK == 0 else inputs[:0]), keras(inputs, training=True)
    require_close(outputs, whole if RANK == 0 else whole[:0])
    require_close(ours.moving_variance, keras.moving_variance)


def check_model():
    """Several layers, with numbers in their names that differ between ranks, in fit(); and models from files."""
    for _ in range(RANK):
        hvd.SyncBatchNormalization()
    tf.keras.utils.set_random_seed(1)

    def make_model(kind):
        return tf.keras.Sequential(
            [tf.keras.layers.Dense(4, activation="tanh"), kind(momentum=0.5), tf.keras.layers.Dense(2), kind()]
        )

    inputs, targets = normal(4 * ROWS, 3), normal(4 * ROWS, 2)
    own = np.concatenate([np.arange(first, first + ROWS)[OWN] for first in range(0, 4 * ROWS, ROWS)])
    ours, keras = make_model(hvd.SyncBatchNormalization), make_model(Keras)
    for model in (ours, keras):
        model.build((None, 3))
        model.compile(optimizer=tf.keras.optimizers.SGD(0.0), loss="mse")
    ours.set_weights(keras.get_weights())
    share = OWN.stop - OWN.start
    ours.fit(inputs[own], targets[own], batch_size=share, epochs=2, shuffle=False, verbose=0)
    keras.fit(inputs, targets, batch_size=ROWS, epochs=2, shuffle=False, verbose=0)
    for given, wanted in zip(ours.get_weights(), keras.get_weights()):
        require_close(given, wanted, 1e-4)

    with tempfile.TemporaryDirectory() as directory:
        ours.save(f"{directory}/model.keras")
        loaded = tf.keras.models.load_model(f"{directory}/model.keras")
    assert isinstance(loaded.layers[1], hvd.SyncBatchNormalization) and loaded.layers[1].momentum == 0.5
    require_close(loaded(inputs), ours(inputs), 1e-6)


def check_refusals():
    for arguments in ({"fused": True}, {"fused": None}, {"virtual_batch_size": 4}):
        try:
            hvd.SyncBatchNormalization(**arguments)
        except ValueError:
            continue
        raise AssertionError(arguments)
    if SIZE == 1:
        return  # where it is Keras's
    layer, _ = both((ROWS, 3))
    inputs = tf.constant(normal(ROWS, 3))
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            loss = tf.reduce_sum(layer(inputs, training=True) ** 3)
        penalty = tf.reduce_sum(tf.square(inner.gradient(loss, inputs)))
    try:
        outer.gradient(penalty, inputs)
    except NotImplementedError as error:
        assert "gradients of gradients" in str(error)
    else:
        raise AssertionError("a second derivative")


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(f"rank {RANK} of {SIZE} passed: {name}", flush=True)
print(f"rank {RANK} of {SIZE} is fine with {KERAS}", flush=True)
hvd.shutdown()
