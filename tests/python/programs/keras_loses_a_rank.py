"""Rank 1 is killed in the middle of `fit`. What the other ranks' `fit` raises says so, within seconds."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

import hvd.keras as hvd
from hvd.keras.framework import keras

hvd.init()
killed_at = 0.0


class Killing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        global killed_at
        killed_at = time.monotonic()
        if batch == 5 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
try:
    model.fit(np.ones((3200, 4)), np.ones((3200, 3)), batch_size=32, callbacks=[Killing()], verbose=0)
except hvd.HorovodInternalError as error:
    took = time.monotonic() - killed_at
    assert "rank 1" in str(error), error
    assert took < 5, took
    print(f"rank {hvd.rank()} noticed after {took:.2f} s: {error}", flush=True)
else:
    raise AssertionError("fit has ended")
