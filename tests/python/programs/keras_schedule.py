"""A model of one weight whose gradient is 1, trained with the schedule of `hvd.keras.schedules`: its steps are the
rates. Keras's backend is the one that the environment names."""

import math
import os
import sys
import tempfile

import keras
import numpy

import hvd
from hvd import learning_rate
from hvd.keras.schedules import LinearScaling


def weight_of(model):
    return float(keras.ops.convert_to_numpy(model.trainable_variables[0]).item())


def train(model, steps):
    """The differences that `steps` steps make to the weight."""
    inputs = numpy.ones((1, 1), "float32")
    weights = [weight_of(model)]
    for _ in range(steps):
        model.train_on_batch(inputs, inputs)
        weights.append(weight_of(model))
    return [before - after for before, after in zip(weights, weights[1:])]


def check(got, wanted):
    assert len(got) == len(wanted) and all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(got, wanted)), (got, wanted)


@keras.saving.register_keras_serializable()
def the_output(labels, outputs):
    return keras.ops.mean(outputs)


def main():
    hvd.init()
    decay = keras.optimizers.schedules.PiecewiseConstantDecay([5], [0.1, 0.01])  # after step 5
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(optimizer=keras.optimizers.SGD(LinearScaling(decay, warmup_steps=4, factor=3)), loss=the_output)
    check(train(model, 3), [0.1, 0.15, 0.2])

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
    check(train(loaded, 5), [0.25, 0.3, 0.3, 0.03, 0.03])

    schedule = LinearScaling(0.1)  # of this job
    check([float(schedule(0)), float(schedule(7))], [0.1 * hvd.size()] * 2)
    assert LinearScaling.from_config(schedule.get_config()).get_config() == schedule.get_config()

    if keras.backend.backend() == "tensorflow":
        import tensorflow

        compiled = tensorflow.function(learning_rate.LinearScaling(0.1, 4, 3))  # without Keras
        check([float(compiled(tensorflow.constant(step, "int64"))) for step in (0, 2, 9)], [0.1, 0.2, 0.3])
    print("every rate is as it should be")


if __name__ == "__main__":
    sys.exit(main())
