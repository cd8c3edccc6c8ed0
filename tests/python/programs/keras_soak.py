"""model.fit over and over with so many inter-op threads (0: as TensorFlow likes), for so many seconds. All ranks must
end with the same weights. Models change, so that functions are traced anew and schedules are broken."""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import keras
import numpy as np
import tensorflow as tf

import hvd.keras as hvd

threads, seconds = int(sys.argv[1]), float(sys.argv[2])
tf.config.threading.set_inter_op_parallelism_threads(threads)
hvd.init()
end, rounds = time.monotonic() + seconds, 0
while hvd.broadcast(np.array([time.monotonic() < end]), root_rank=0)[0]:
    keras.utils.set_random_seed(rounds)
    layers = [keras.layers.Dense(16 + rounds % 3, "relu") for _ in range(1 + rounds % 5)]
    model = keras.Sequential([keras.Input((20,)), *layers, keras.layers.Dense(3)])
    optimizer = keras.optimizers.Adam(0.01) if rounds % 2 else keras.optimizers.SGD(0.01, momentum=0.9)
    passes = 1 + rounds % 4 // 3
    model.compile(hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes), "mse", metrics=["mae"])
    random = np.random.default_rng(hvd.rank())
    inputs, targets = random.random((512, 20), np.float32), random.random((512, 3), np.float32)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(inputs, targets, batch_size=16, epochs=3, verbose=0, callbacks=callbacks)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    assert (np.asarray(hvd.allgather(weights[None])) == weights).all(), "ranks have come apart"
    rounds += 1
    keras.backend.clear_session()
print(f"rank {hvd.rank()}: {rounds} rounds with {threads} threads")
