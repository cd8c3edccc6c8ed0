"""Trains small models with hvd.keras on every rank, on the backend that the environment names, and checks what comes
out: the ranks' weights are the same, and those of one process that trains on all of the data."""

from __future__ import annotations

import argparse
import functools
import random
import tempfile
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import hvd.keras as hvd
from hvd import checkpoint, elastic
from hvd.keras.framework import backend, is_keras_3, keras, native
from hvd.keras.functions import state_of
from hvd.keras.optimizer import counting_passes
from hvd.keras.reduction import reduction_of

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
KERAS_3 = is_keras_3(keras.optimizers.Optimizer)
BACKEND = keras.backend.backend()
BATCH, BATCHES = 16, 4  # of all ranks together
if BACKEND == "tensorflow":
    import tensorflow as tf

    # Rewriting a step's graph takes longer than its few executions.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

generator = np.random.default_rng(0)
X = generator.normal(size=(BATCH * BATCHES, 8)).astype("float32")
Y = np.tanh(X @ generator.normal(size=(8, 3))).astype("float32")


def own(data: np.ndarray) -> np.ndarray:
    """This rank's part of each batch."""
    parts = data.reshape(BATCHES, SIZE, BATCH // SIZE, -1)
    return parts[:, RANK].reshape(-1, data.shape[-1])


def make_model(seed: int = 1, dropout: float = 0.0) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.layers.Dense(16, activation="tanh"),
        keras.layers.Dropout(dropout),
        keras.layers.Dense(3, name="head", dtype="float32"),
    ]
    return keras.Sequential([keras.Input((8,)), *layers])


def fit(model: Any, alone: bool = False, epochs: int = 2, split: int = 1, **options: Any) -> Any:
    """`split`: batches come in that many parts."""
    x, y = (X, Y) if alone else (own(X), own(Y))
    batch = (BATCH if alone else BATCH // SIZE) // split
    return model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, **options)


def weights_of(model: Any) -> list[np.ndarray]:
    return [np.asarray(weight, dtype="float64") for weight in model.get_weights()]


def require_alike(model: Any) -> None:
    for weights in hvd.allgather_object(weights_of(model)):
        for here, there in zip(weights_of(model), weights):
            np.testing.assert_array_equal(here, there)


def require_close(model: Any, expected: Any, tolerance: float = 2e-6) -> None:
    for weight, other in zip(weights_of(model), weights_of(expected)):
        np.testing.assert_allclose(weight, other, atol=tolerance, rtol=1e-4)


def require_raises(error: type[BaseException], part: str, call: Callable[[], object]) -> None:
    try:
        call()
    except error as raised:
        assert part in str(raised), raised
    else:
        raise AssertionError(f"{error.__name__} expected")


def optimizers() -> list[Callable[[], Any]]:
    of = keras.optimizers
    made = [
        lambda: of.SGD(0.1, momentum=0.9, nesterov=True),
        lambda: of.Adam(of.schedules.ExponentialDecay(0.01, 3, 0.7), global_clipnorm=0.5),
        lambda: of.AdamW(0.01, weight_decay=0.1),
        lambda: of.RMSprop(0.01, use_ema=True, ema_overwrite_frequency=3),
    ]
    if not KERAS_3:
        made.append(lambda: of.legacy.Adam(0.01))
    return made


def check_training_is_that_of_one_process() -> None:
    for make in optimizers():
        model, alone = make_model(), make_model()
        model.compile(optimizer=hvd.DistributedOptimizer(make()), loss="mse")
        alone.compile(optimizer=make(), loss="mse")
        fit(model)
        fit(alone, alone=True)
        require_close(model, alone)
        require_alike(model)


def check_eagerly() -> None:
    model, alone = make_model(), make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", run_eagerly=True)
    alone.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    fit(model)
    fit(alone, alone=True)
    require_close(model, alone)


def check_arguments() -> None:
    """That change what travels, and not what comes out, or by a known factor."""
    expected = make_model()
    expected.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    fit(expected, alone=True)
    for options, rate in [
        ({"op": hvd.Sum}, 0.1 / SIZE),
        ({"gradient_predivide_factor": 2.0}, 0.1),
        ({"num_groups": 2}, 0.1),
        ({"groups": 3, "name": "mine", "device_dense": "", "device_sparse": ""}, 0.1),
        ({"compression": hvd.Compression.fp16}, 0.1),
        ({"sparse_as_dense": True, "op": hvd.Average}, 0.1),
    ]:
        model = make_model()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(rate), **options), loss="mse")
        fit(model)
        require_close(model, expected, tolerance=1e-3 if "compression" in options else 2e-6)
        require_alike(model)
    model = make_model()
    groups = [model.layers[0].trainable_variables, model.layers[-1].trainable_variables]
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=groups), loss="mse")
    fit(model)
    require_close(model, expected)
    for wrong in ([3], [model.layers[0]]):
        try:
            hvd.broadcast_variables(wrong, 0)
        except ValueError as error:
            assert "a variable is needed, not" in str(error), error
        else:
            raise AssertionError(f"{wrong} was broadcast")


def check_passes() -> None:
    """Twice as many batches of half the size, added up."""
    for average, rate in [(True, 0.01), (False, 0.005)]:
        model, alone = make_model(), make_model()
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate, momentum=0.9), backward_passes_per_step=2, average_aggregated_gradients=average
        )
        model.compile(optimizer=optimizer, loss="mse")
        alone.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse")
        fit(model, split=2)
        fit(alone, alone=True)
        require_close(model, alone)
        require_alike(model)
        assert int(np.asarray(optimizer.iterations)) == 2 * BATCHES, optimizer.iterations
    if KERAS_3:
        model = make_model()
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9, gradient_accumulation_steps=2)
        model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse")
        fit(model, split=2)
        require_close(model, alone)


def check_passes_of_both() -> None:
    """Keras's accumulation and hvd's together: a step of all four batches."""
    if not KERAS_3:
        return
    rank, rng = hvd.rank(), np.random.default_rng(0)
    inputs = rng.random((32, 4), np.float32)
    outputs = inputs.sum(1, keepdims=True)

    def made(optimizer: Any) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer=optimizer, loss="mse")
        return model

    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    ours = made(hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, average_aggregated_gradients=True))
    alone = made(keras.optimizers.SGD(0.1, gradient_accumulation_steps=4))
    for number in range(4):
        own = slice(8 * number + 4 * rank, 8 * number + 4 * rank + 4)
        ours.train_on_batch(inputs[own], outputs[own])
        both = slice(8 * number, 8 * number + 8)
        alone.train_on_batch(inputs[both], outputs[both])
    assert np.allclose(ours.get_weights()[0], alone.get_weights()[0], atol=1e-6)


def own_step(optimizer: Any, x: Any) -> None:
    optimizer.apply_gradients(optimizer._compute_gradients(lambda: (RANK + 1.0) * tf.reduce_sum(x), [x]))


def check_gradients_that_an_optimizer_computes() -> None:
    if BACKEND != "tensorflow":
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        require_raises(NotImplementedError, "TensorFlow", lambda: optimizer._compute_gradients(None, []))
        return
    total = SIZE * (SIZE + 1) / 2
    for of in [keras.optimizers.SGD] + ([] if KERAS_3 else [keras.optimizers.legacy.SGD]):
        for op, each in ((hvd.Average, total / SIZE), (hvd.Sum, total)):
            optimizer = hvd.DistributedOptimizer(of(1.0), op=op)
            x = keras.Variable([8.0, 9.0]) if KERAS_3 else tf.Variable([8.0, 9.0])
            pairs = optimizer._compute_gradients(lambda x=x: (RANK + 1.0) * tf.reduce_sum(x), [x])
            np.testing.assert_allclose(pairs[0][0], [each, each])
            optimizer.apply_gradients(pairs)  # reduced once
            np.testing.assert_allclose(np.asarray(x), [8 - each, 9 - each])
            optimizer.apply_gradients([(tf.constant([RANK + 1.0, 0.0]), x)])  # of a tape: reduced here
            np.testing.assert_allclose(np.asarray(x), [8 - 2 * each, 9 - each])
            assert optimizer._agg_helper is None

        optimizer = counting_passes(hvd.DistributedOptimizer(of(1.0), op=hvd.Sum, backward_passes_per_step=2))
        x = keras.Variable([0.0]) if KERAS_3 else tf.Variable([0.0])

        train = tf.function(functools.partial(own_step, optimizer, x))
        for passes in (1, 2, 3):
            train()
            assert int(optimizer.iterations) == passes, optimizer.iterations
            assert int(optimizer._agg_helper.counter) == passes % 2
            np.testing.assert_allclose(np.asarray(x), [0.0 if passes == 1 else -2 * total])


def check_gradients_that_do_not_fit_the_variables() -> None:
    if not KERAS_3:
        return
    gradient = backend().tensor(np.ones([1], "float32"))
    for is_built, count, part in (
        (True, 1, "1 gradients"),
        (True, 3, "3 gradients"),
        (False, 1, "must already be built"),
    ):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        variables = [keras.Variable(np.ones([1], "float32")) for _ in range(2)]
        if is_built:
            optimizer.build(variables)
        require_raises(ValueError, part, lambda optimizer=optimizer, count=count: optimizer.apply([gradient] * count))
        assert all(float(np.asarray(backend().to_numpy(native(variable)))[0]) == 1.0 for variable in variables)


def check_legacy_optimizers() -> None:
    """They do not say whether they have their variables, and have no build()."""
    if KERAS_3:
        return
    make = functools.partial(keras.optimizers.legacy.SGD, 0.1, momentum=0.9)
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(make()), loss="mse")
    state = hvd.elastic.KerasState(model, epoch=0)
    state.sync()
    fit(model)
    state.save()
    saved = [np.array(variable) for variable in state_of(model)]
    fit(model)
    state.restore()
    for variable, value in zip(state_of(model), saved):
        np.testing.assert_array_equal(variable, value)

    slot = model.optimizer.get_slot(model.trainable_variables[0], "momentum")
    before = slot.numpy()
    callback = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda _: 0.5)
    callback.set_model(model)
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    assert before.any()
    np.testing.assert_allclose(slot, 0.5 * before, rtol=1e-5)

    trained, x = make(), tf.Variable([1.0])
    trained.apply_gradients([(tf.constant([1.0]), x)])
    assert hvd.DistributedOptimizer(trained) is trained


def check_loss_scaling() -> None:
    """An overflow on one rank is one on all of them: nobody waits, and nothing is changed."""
    mixed_precision = keras.config if KERAS_3 else keras.mixed_precision
    set_policy = mixed_precision.set_dtype_policy if KERAS_3 else mixed_precision.set_global_policy
    scaling = keras.optimizers.LossScaleOptimizer if KERAS_3 else keras.mixed_precision.LossScaleOptimizer
    ways: list[Callable[[Any], Any]] = [
        lambda inner: scaling(hvd.DistributedOptimizer(inner)),
        lambda inner: hvd.DistributedOptimizer(scaling(inner)),
        lambda inner: hvd.DistributedOptimizer(inner),  # compile() puts the other one around it
    ]
    for way in ways:
        set_policy("mixed_float16")
        mixed = make_model()
        set_policy("float32")
        optimizer = way(keras.optimizers.SGD(0.1))
        mixed.compile(optimizer=optimizer, loss="mse")
        assert type(mixed.optimizer).__name__.startswith("LossScaleOptimizer")
        x, y = own(X), own(Y)
        mixed.train_on_batch(x, y)
        before = weights_of(mixed)
        scale = scale_of(mixed.optimizer)
        x = x.copy()
        x[0, 0] = np.inf if RANK == SIZE - 1 else 1.0
        mixed.train_on_batch(x, y)
        for weight, previous in zip(weights_of(mixed), before):
            np.testing.assert_array_equal(weight, previous)
        assert scale_of(mixed.optimizer) == scale / 2
        fit(mixed)
        require_alike(mixed)
        assert any((weight != previous).any() for weight, previous in zip(weights_of(mixed), before))


def check_passes_under_loss_scaling() -> None:
    if not KERAS_3:
        for of in (keras.optimizers, keras.optimizers.legacy):
            inner = hvd.DistributedOptimizer(of.SGD(1.0), op=hvd.Sum, backward_passes_per_step=2)
            optimizer = keras.mixed_precision.LossScaleOptimizer(inner, dynamic=False, initial_scale=1.0)
            x = tf.Variable([0.0])
            for _ in range(2):
                optimizer.apply_gradients([(tf.constant([RANK + 1.0]), x)])
            np.testing.assert_allclose(x, [-SIZE * (SIZE + 1.0)])  # each gradient was reduced once
        return
    if BACKEND != "jax":
        return
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    optimizer, variable = keras.optimizers.LossScaleOptimizer(inner), keras.Variable(1.0)
    optimizer.build([variable])
    require_raises(ValueError, "gradient_accumulation_steps", lambda: optimizer.apply([np.float32(1)], [variable]))
    values = [[v.value for v in optimizer.variables], [np.float32(1)], [variable.value]]
    require_raises(ValueError, "gradient_accumulation_steps", lambda: optimizer.stateless_apply(*values))


def scale_of(optimizer: Any) -> float:
    return float(np.asarray(optimizer.dynamic_scale if KERAS_3 else optimizer.loss_scale))


def check_saving(directory: Path) -> None:
    def compiled(seed: int = 1) -> Any:
        model = make_model(seed)
        loss = keras.losses.MeanSquaredError()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss=loss)
        return model

    model, went_on = compiled(), compiled()
    fit(model)
    fit(went_on, epochs=3)
    # The optimizer of Keras 3 does not survive HDF5, whoever has saved it.
    for suffix in ["keras", "h5"]:
        path = str(directory / f"model{RANK}.{suffix}")
        model.save(path)
        plain, loaded = keras.models.load_model(path), hvd.load_model(path)
        assert reduction_of(plain.optimizer) is None and reduction_of(loaded.optimizer) is not None
        assert type(loaded.optimizer).__name__ == "Adam" and isinstance(loaded.optimizer, type(plain.optimizer))
        require_raises(ValueError, "already", lambda loaded=loaded: hvd.DistributedOptimizer(loaded.optimizer))
        if suffix == "h5" and KERAS_3:
            continue
        # With the state of Adam, and reduced; also where the optimizer was loaded by Keras alone.
        plain.compile(optimizer=hvd.DistributedOptimizer(plain.optimizer), loss="mse")
        for other in (loaded, plain):
            assert int(np.asarray(other.optimizer.iterations)) == 2 * BATCHES
            fit(other, epochs=1)
            require_close(other, went_on)
            require_alike(other)
    # What one rank loads for itself, to look at, is no other rank's business.
    path = str(directory / f"model{RANK}.keras")
    if RANK == 0:
        hvd.load_model(path)
    later = compiled()
    fit(later)
    require_alike(later)
    loaded = hvd.load_model(path)
    fit(loaded, epochs=1)
    require_alike(loaded)


class Doubling(keras.optimizers.SGD):
    """A class that Keras does not know."""


def check_custom_optimizers(directory: Path) -> None:
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(Doubling(0.01)), loss="mse")
    fit(model, epochs=1)
    path = str(directory / f"custom{RANK}.keras")
    model.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[Doubling], compression=hvd.Compression.fp16)
    assert isinstance(loaded.optimizer, Doubling) and type(loaded.optimizer) is not Doubling
    assert isinstance(keras.models.load_model(path, custom_objects={"Doubling": Doubling}).optimizer, Doubling)
    if BACKEND != "torch" and not KERAS_3:  # Keras 3 takes classes only
        made = {"Doubling": lambda **options: hvd.DistributedOptimizer(Doubling(**options))}
        model.save(path := str(directory / f"custom{RANK}.h5"))
        assert reduction_of(hvd.load_model(path, custom_objects=made).optimizer) is not None


def check_broadcast() -> None:
    model = make_model(seed=RANK, dropout=0.5)
    if KERAS_3:
        model.add(keras.layers.Dense(3, dtype="bfloat16"))
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(SIZE - 1)
    fit(model, epochs=1, callbacks=[callback])
    assert callback.broadcast_done
    require_alike(model)
    if KERAS_3:
        states = [np.asarray(v) for v in model.non_trainable_variables if "seed" in v.path]
        assert states and all((other[0] == states[0]).all() for other in hvd.allgather_object(states))
    # The optimizer's state of a rank that has trained alone.
    if RANK == 0:
        optimizer = keras.optimizers.Adam(0.01)
        model.compile(optimizer=optimizer, loss="mse")
        fit(model, epochs=1)
    trained = model.optimizer if RANK == 0 else keras.optimizers.Adam(0.01)
    model.compile(optimizer=hvd.DistributedOptimizer(trained), loss="mse")
    fit(model, epochs=1, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    require_alike(model)
    iterations = hvd.allgather_object(int(np.asarray(model.optimizer.iterations)))
    assert iterations == [2 * BATCHES] * SIZE, iterations

    local = make_model(seed=RANK)
    local.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    fit(
        local,
        epochs=1,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local.layers[-1].trainable_variables)
        ],
    )
    everywhere = hvd.allgather_object(weights_of(local))
    for weights in everywhere[1:]:
        assert (weights[0] == everywhere[0][0]).all() and (weights[2] != everywhere[0][2]).any()


def check_broadcast_of_no_variables() -> None:
    """A mistake of one rank, which all hear of."""
    if BACKEND == "jax":
        given = [np.zeros(2)] if RANK == SIZE - 1 else [keras.Variable(np.zeros(2))]
        require_raises(ValueError, f"rank {SIZE - 1}: JAX has no", lambda: hvd.broadcast_variables(given, 0))


def check_broadcast_of_other_shapes() -> None:
    if SIZE > 1:
        variables = [keras.Variable(np.zeros(2 + RANK))] if KERAS_3 else make_model().trainable_variables[RANK:]
        require_raises(ValueError, "variable", lambda: hvd.broadcast_variables(variables, 0))


def check_local_layers() -> None:
    for late in (False, True):
        model = make_model()
        layer = model.layers[-1]
        optimizer = keras.optimizers.SGD(0.1)
        if late:
            optimizer = hvd.DistributedOptimizer(optimizer, scale_local_gradients=False)
            for variable in layer.trainable_variables:
                optimizer.register_local_var(variable)
        else:
            optimizer = hvd.PartialDistributedOptimizer(optimizer, local_layers=layer)
        model.compile(optimizer=optimizer, loss="mse")
        fit(model, epochs=1)
        everywhere = hvd.allgather_object(weights_of(model))
        for weights in everywhere[1:]:
            assert (weights[0] == everywhere[0][0]).all() and (weights[2] != everywhere[0][2]).any()


def check_local_layers_of_other_shapes() -> None:
    """As those of a table that is divided among the ranks."""
    keras.utils.set_random_seed(RANK)
    own_layer = keras.layers.Dense(4 + RANK, name="own")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6), own_layer, keras.layers.Lambda(first_columns)])
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.Adam(0.01), local_layers=[own_layer])
    model.compile(optimizer=optimizer, loss="mse")
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=own_layer.trainable_variables)
    fit(model, callbacks=[broadcast])
    everywhere = hvd.allgather_object(weights_of(model))
    for rank, weights in enumerate(everywhere):
        assert (weights[0] == everywhere[0][0]).all() and weights[2].shape == (6, 4 + rank)


def first_columns(x: Any) -> Any:
    return x[:, :3]


class Recorder(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.momenta: list[np.ndarray] = []

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self.rates.append(float(np.asarray(self.model.optimizer.learning_rate)))


def check_metric_average() -> None:
    class OwnMetric(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["mine"] = float(RANK)
            if RANK == 0:
                logs["of_root"] = 5.0

    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", metrics=["mae"])
    stopping = keras.callbacks.EarlyStopping(monitor="mine", mode="min")
    history = fit(
        model,
        epochs=5,
        validation_data=(X, Y),
        callbacks=[OwnMetric(), hvd.callbacks.MetricAverageCallback(), stopping],
    ).history
    assert history["mine"] == [(SIZE - 1) / 2] * 2 and history["of_root"] == [5.0] * 2, history
    assert all(other == history for other in hvd.allgather_object(history))


def check_learning_rates() -> None:
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
    recorder = Recorder()
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1 * SIZE, warmup_epochs=2, verbose=1)
    later = hvd.callbacks.LearningRateScheduleCallback(0.1 * SIZE, 0.5, start_epoch=2, end_epoch=3)
    end = hvd.callbacks.LearningRateScheduleCallback(0.1 * SIZE, lambda epoch: 1.0 / epoch, start_epoch=3)
    history = fit(model, epochs=5, callbacks=[warmup, later, end, recorder]).history
    steps = 2 * BATCHES
    expected = [0.1 * (1 + (SIZE - 1) * (step + 1) / steps) for step in range(steps)]
    expected += [0.05 * SIZE] * BATCHES + [0.1 * SIZE / 3] * BATCHES + [0.1 * SIZE / 4] * BATCHES
    np.testing.assert_allclose(recorder.rates, expected, rtol=1e-5)
    np.testing.assert_allclose(history["lr"][-1], 0.1 * SIZE / 4, rtol=1e-5)
    # Momentum that was gathered at one rate, at another one.
    slots = [np.asarray(slot).copy() for slot in model.optimizer.momentums]
    correcting = hvd.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.1 * SIZE / 8)
    correcting.set_model(model)
    correcting.on_epoch_begin(0)
    correcting.on_train_batch_begin(0)
    for slot, before in zip(model.optimizer.momentums, slots):
        np.testing.assert_allclose(np.asarray(slot), before / 2, rtol=1e-5)
    model.compile(optimizer=keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)), loss="mse")
    require_raises(ValueError, "schedule", lambda: fit(model, callbacks=[warmup]))


def check_best_model(directory: Path) -> None:
    path = directory / f"best{RANK}.{'keras' if KERAS_3 else 'h5'}"
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    require_raises(ValueError, "filepath", lambda: fit(model, callbacks=[best]))
    best.filepath = str(path)
    fit(model, callbacks=[hvd.callbacks.MetricAverageCallback(), best])
    assert path.exists() == (RANK == 0)


def check_values() -> None:
    import hvd as core

    ones = np.ones(2 * SIZE, dtype="float32") * (RANK + 1)
    total = SIZE * (SIZE + 1) / 2
    assert np.allclose(hvd.allreduce(ones, average=False), total) and isinstance(hvd.allreduce(ones), np.ndarray)
    assert np.allclose(hvd.allreduce(ones, average=True), total / SIZE)
    assert np.allclose(hvd.allreduce(ones, "named", True, op=hvd.Max, prescale_factor=2.0), 2 * SIZE)
    assert float(hvd.allreduce(float(RANK), op=hvd.Sum)) == total - SIZE
    assert hvd.allgather(np.array([RANK])).tolist() == list(range(SIZE))
    assert hvd.broadcast(np.array([RANK], dtype="int64"), SIZE - 1).tolist() == [SIZE - 1]
    assert np.allclose(hvd.reducescatter(ones, op=hvd.Sum), [total, total])
    if KERAS_3:
        tensor = hvd.allreduce(keras.ops.convert_to_tensor(ones), op=hvd.Sum)
        assert keras.ops.is_tensor(tensor) and np.allclose(keras.ops.convert_to_numpy(tensor), total)
    large = np.array([2**40 + RANK, 1])
    for compression in (None, hvd.Compression.none, hvd.Compression.fp16):
        total_of_large = hvd.allreduce(large, op=hvd.Sum, compression=compression)
        assert total_of_large.dtype == large.dtype and total_of_large[1] == SIZE and total_of_large[0] > 2**40
    assert hvd.allreduce(np.ones(2) / 3, compression=hvd.Compression.fp16).dtype == np.float64
    if BACKEND == "jax":
        values_in_a_program()
    assert hvd.broadcast_object({"rank": RANK}, 0) == {"rank": 0}
    assert core.size() == SIZE and hvd.ProcessSet is core.ProcessSet
    require_raises(RuntimeError, "BroadcastGlobalVariablesCallback", lambda: hvd.broadcast_global_variables(0))


def values_in_a_program() -> None:
    import jax

    from hvd.jax import collectives, ordering

    collectives._compiled_for = None
    rows = jax.numpy.ones((SIZE, 2)) * (RANK + 1)
    total = SIZE * (SIZE + 1) / 2
    assert np.allclose(jax.jit(lambda x: hvd.allreduce(x, average=False))(rows), total)
    assert np.allclose(jax.jit(lambda x: hvd.broadcast(x, 0))(rows), 1)
    assert collectives._compiled_for is None
    variable, optimizer = keras.Variable(1.0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build([variable])
    values = [[v.value for v in optimizer.variables], [jax.numpy.ones(())], [variable.value]]
    jax.jit(optimizer.stateless_apply)(*values)
    assert collectives._compiled_for is not None  # a job of one rank would have nothing to reduce
    ordering._last.token = None
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    model.train_on_batch(rows, rows[:, :1])
    assert ordering._last.token is not None  # its step is a program of hvd.jax.jit


def check_errors() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    other = optimizer.from_config(optimizer.get_config())
    assert type(other) is optimizer.__class__ and reduction_of(hvd.DistributedOptimizer(other)) is not None
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, keras.optimizers.SGD)
    require_raises(ValueError, "already", lambda: hvd.DistributedOptimizer(optimizer))
    require_raises(ValueError, "optimizer of Keras", lambda: hvd.DistributedOptimizer("sgd"))
    for options, part in [
        ({"op": 17}, "op is"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "op=Average"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
        ({"process_set": hvd.ProcessSet([0])}, "not registered"),
    ]:
        make = lambda options=options: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)  # noqa: E731
        require_raises(ValueError, part, make)


def check_process_set() -> None:
    if SIZE == 1:
        return
    members = [0, 1] if SIZE > 2 else [0]
    process_set = hvd.add_process_set(members)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=process_set)
    model.compile(optimizer=optimizer, loss="mse")
    fit(model, epochs=1)
    everywhere = hvd.allgather_object(weights_of(model))
    for rank, weights in enumerate(everywhere):
        assert (weights[0] == everywhere[0][0]).all() == (rank in members)
    hvd.remove_process_set(process_set)


def check_elastic() -> None:
    model = make_model(seed=RANK)
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    broken = []

    class Breaking(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            if state.epoch == 1 and batch == 2 and not broken:
                broken.append(weights_of(self.model))
                raise hvd.HorovodInternalError("as if a rank was lost")

    @hvd.elastic.run
    def train(state: Any) -> None:
        require_alike(model)
        if broken:
            assert state.epoch == 1 and int(np.asarray(model.optimizer.iterations)) == BATCHES
        fit(
            model,
            epochs=3 - state.epoch,
            callbacks=[
                Breaking(),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=BATCHES),
            ],
        )

    train(state)
    assert broken and state.epoch == 3 and state.batch == 0
    assert int(np.asarray(model.optimizer.iterations)) == 3 * BATCHES
    require_alike(model)
    for lacking, expected in ((), RANK), ((SIZE - 1,), 0):  # ranks that have the newest step keep their values
        bias = model.trainable_variables[-1]
        bias.assign(np.full(bias.shape, RANK, "float32"))
        state._is_at_step = RANK not in lacking
        elastic._synchronize(state, is_needed=True)
        assert np.all(np.asarray(values_of([bias])) == (expected if RANK in (0, *lacking) else RANK))


def values_of(variables: Iterable[Any]) -> list[Any]:
    return [np.asarray(backend().snapshot(native(variable))).tolist() for variable in variables]


def check_checkpoints(directory: Path) -> None:
    model = make_model(dropout=0.5)
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])
    state = hvd.elastic.KerasState(model, epoch=0)
    drawn = random.getstate()
    checkpoints = checkpoint.keep(state, directory / "checkpoints", seconds=0)
    assert checkpoints is not None and random.getstate() == drawn
    fit(model, epochs=1)
    state.epoch = 1
    state.commit()
    committed = values_of(state_of(model))
    weights = weights_of(model)
    fit(model, epochs=1)  # meanwhile
    checkpoints.wait()
    assert checkpoints.last_error is None
    hvd.allreduce(0.0)

    file = checkpoints.folder(1) / "state.keras"
    assert file.exists() == KERAS_3  # with Keras 2 everything is pickled
    if KERAS_3:
        loaded = keras.saving.load_model(file)
        assert all(map(np.array_equal, weights_of(loaded), weights))
        assert values_of(loaded.optimizer.variables) == committed[-len(loaded.optimizer.variables) :]

    other = make_model(seed=5, dropout=0.5)
    other.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.5)), loss="mse")
    state = hvd.elastic.KerasState(other, epoch=0)
    checkpoint.keep(state, directory / "checkpoints")
    assert state.epoch == 1 and values_of(state_of(other)) == committed
    fit(other, epochs=1)
    state.restore()
    assert values_of(state_of(other)) == committed
    hvd.allreduce(0.0)


def check_a_model_that_cannot_be_copied(directory: Path) -> None:
    class Scaled(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return 2.0 * x

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3), Scaled()])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    state = hvd.elastic.KerasState(model, epoch=3)
    checkpoints = checkpoint.keep(state, directory / "pickled", seconds=0)
    assert checkpoints is not None
    state.commit()
    checkpoints.wait()
    hvd.allreduce(0.0)
    assert sorted(path.name for path in checkpoints.folder(1).iterdir()) == ["manifest.json", "state.pkl"]
    state.epoch, weights = 0, weights_of(model)
    fit(model, epochs=1)
    assert checkpoints.restore(state) == 1
    assert state.epoch == 3 and all(map(np.array_equal, weights_of(model), weights))
    hvd.allreduce(0.0)


def check_embedding() -> None:
    """Gradients of some rows only."""
    for dense in (False, True):
        models = []
        for alone in (False, True):
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.Input((8,)), keras.layers.Embedding(20, 3), keras.layers.Flatten()])
            model.add(keras.layers.Dense(3))
            optimizer = keras.optimizers.SGD(0.1)
            if not alone:
                optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=dense)
            model.compile(optimizer=optimizer, loss="mse")
            x, y = np.abs(X * 5).astype("int32"), Y
            if not alone:
                x, y = own(x), own(y)
            model.fit(x, y, batch_size=BATCH if alone else BATCH // SIZE, epochs=2, shuffle=False, verbose=0)
            models.append(model)
        require_close(*models)
        require_alike(models[0])


def check_loop_of_ones_own() -> None:
    if BACKEND != "tensorflow":
        return
    for passes in (1, 2):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), backward_passes_per_step=passes)

        @tf.function
        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

        for _ in range(2 * passes):
            step(own(X), own(Y))
        assert int(np.asarray(optimizer.iterations)) == 2
        require_alike(model)


def check_alone() -> None:
    """Who is alone reduces nothing."""
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    before = hvd.metrics()
    fit(model, epochs=1)
    assert (hvd.metrics(since=before)["operations"] == 0) == (SIZE == 1)


def check_jit_compile() -> None:
    """As on a machine with a GPU, where Keras 3 has XLA compile whatever a model's layers allow."""
    if BACKEND == "jax":
        model = make_model()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        assert model.jit_compile  # collectives are part of the program
        return
    if BACKEND == "torch":
        compile_for_torch()
        return
    devices = tf.config.list_physical_devices
    if KERAS_3:
        tf.config.list_physical_devices = lambda *_: [types.SimpleNamespace(device_type="GPU")]
        before = make_model()
        before.compile(optimizer="sgd", loss="mse")
        assert before.jit_compile
    for options, warns in [({}, False), ({"jit_compile": True}, True), ({"jit_compile": True}, False)]:
        model = make_model()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", **options)
            fit(model, epochs=1)
        assert not model.jit_compile
        assert any("hvd" in str(each.message) for each in caught) == warns, (options, warns, *map(str, caught))
    plain = make_model()
    plain.compile(optimizer="sgd", loss="mse", jit_compile=True)
    assert plain.jit_compile

    if SIZE > 1 and KERAS_3:
        variable, optimizer = keras.Variable(1.0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        optimizer.build([variable])
        compiled = tf.function(lambda: optimizer.apply([tf.constant(1.0)], [variable]), jit_compile=True)
        require_raises(ValueError, "jit_compile", compiled)

    class OfTwo(keras.Model):
        """Keeps its optimizer to itself."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def compile(self, its_optimizer: Any) -> None:
            super().compile(jit_compile=True)
            self.its_optimizer = its_optimizer

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.inner(x) - y) ** 2)
            variables = self.inner.trainable_variables
            self.its_optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return {"loss": loss}

    model = OfTwo(make_model())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    fit(model, epochs=1)
    require_alike(model.inner)
    tf.config.list_physical_devices = devices


def compile_for_torch() -> None:
    """The training step is compiled, up to the reduction and from there on. Without a compiler for C++."""
    import torch

    compiling = torch.compile
    torch.compile = functools.partial(compiling, backend="eager")
    for optimizer in (keras.optimizers.SGD, keras.optimizers.Adam):
        model, alone = make_model(), make_model()
        model.compile(optimizer=hvd.DistributedOptimizer(optimizer(0.1)), loss="mse", jit_compile=True)
        alone.compile(optimizer=optimizer(0.1), loss="mse")
        fit(model, epochs=1)
        fit(alone, alone=True, epochs=1)
        assert model.jit_compile
        require_close(model, alone)
    torch.compile = compiling


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checks", nargs="*", help="those to run; all if none is named")
    parser.add_argument("--without", action="append", default=[], metavar="CHECK")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for check, function in list(globals().items()):
            wanted = check not in arguments.without and check in (arguments.checks or [check])
            if check.startswith("check_") and wanted:
                takes_directory = function.__code__.co_argcount
                function(Path(hvd.broadcast_object(name))) if takes_directory else function()
                if RANK == 0:
                    print("passed:", check, flush=True)
        hvd.allreduce(0.0)  # the directory is rank 0's
