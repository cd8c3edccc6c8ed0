"""Training TensorFlow models with hvd beside training them with MultiWorkerMirroredStrategy: model.fit, and a loop of a
tf.function, in launches by turns. With one rank: beside the same without either.

    python tests/bench/tensorflow_training.py                    two ranks, five launches of each side
    python tests/bench/tensorflow_training.py --ranks 1
    python tests/bench/tensorflow_training.py --launches 3 --json FILE

The strategy knows tf_keras only, so the same model, optimizer and batches run in tf_keras on both sides; hvd with
Keras 3 is a side of its own ("hvd, Keras 3"; alone: "plain, Keras 3"). Rank r has the r-th CPU, and TensorFlow one
thread of each kind. A launch times several rounds of each case after warming up; its number is the best of them, in
steps a second of the slowest rank, and shown are the medians and the best of the launches. Afterwards the parameters of
all ranks are the same bits. Times depend on what else runs: compare only within a run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HVDRUN = Path(sys.executable).parent / "hvdrun"
BATCH = 32
STEPS = 60  # of a round
ROUNDS = 5
CASES = ["MLP, fit", "convolutional network, fit", "MLP, loop", "convolutional network, loop"]


def be_a_rank(side: str, results: str) -> None:
    rank = int(os.environ["HVD_RANK"])
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if not side.endswith("Keras 3"):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    measured = Sides[side.split(",")[0]](tf).measure()
    if rank == 0:
        Path(results).write_text(json.dumps(measured))


class Plain:
    """One process by itself: what the others are derived from."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.keras = tf.keras
        self.ranks, self.rank = 1, 0

    def model(self, title: str) -> Any:
        layers = self.keras.layers
        self.keras.utils.set_random_seed(1)
        if title.startswith("MLP"):
            hidden = [layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(128, "relu")]
        else:
            hidden = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D()]
            hidden += [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D()]
            hidden += [layers.Flatten(), layers.Dense(64, "relu")]
        model = self.keras.Sequential([self.keras.Input((28, 28, 1)), *hidden, layers.Dense(10)])
        return model

    def dataset(self, batch: int) -> Any:
        random = self.tf.random.Generator.from_seed(self.rank)
        inputs = random.normal((16 * batch, 28, 28, 1))
        targets = random.uniform((16 * batch,), maxval=10, dtype=self.tf.int32)
        return self.tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(batch, drop_remainder=True).repeat()

    def loss(self, **options: Any) -> Any:
        return self.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)

    def optimizer(self) -> Any:
        return self.keras.optimizers.SGD(0.01, momentum=0.9)

    # What a side does its own way: fit's optimizer and data, and a loop's.

    def fitting(self, title: str) -> tuple[Any, Callable[[], None]]:
        model = self.model(title)
        model.compile(optimizer=self.optimizer(), loss=self.loss())
        data = self.dataset(BATCH)
        return model, lambda: model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0)

    def tape(self, tape: Any) -> Any:
        return tape

    def looping(self, title: str) -> tuple[Any, Callable[[], None]]:
        tf, model, optimizer, loss = self.tf, self.model(title), self.optimizer(), self.loss()
        data = iter(self.dataset(BATCH))

        @tf.function
        def step(inputs: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(targets, model(inputs, training=True))
            gradients = self.tape(tape).gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return value

        def steps() -> None:
            for _ in range(STEPS):
                value = step(*next(data))
            value.numpy()

        return model, steps

    def slowest(self, seconds: float) -> float:
        return seconds

    def check(self, model: Any) -> None:
        pass

    def measure(self) -> dict[str, float]:
        best = {}
        for case in CASES:
            title, way = case.split(", ")
            model, steps = self.fitting(title) if way == "fit" else self.looping(title)
            steps()
            times = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                steps()
                times.append(self.slowest(time.perf_counter() - began))
            self.check(model)
            best[case] = STEPS / min(times)
        return best


class Hvd(Plain):
    def __init__(self, tf: Any) -> None:
        super().__init__(tf)
        import hvd.keras as hvd_keras
        import hvd.tensorflow as hvd

        self.hvd, self.hvd_keras = hvd, hvd_keras
        hvd.init()
        self.ranks, self.rank = hvd.size(), hvd.rank()

    def fitting(self, title: str) -> tuple[Any, Callable[[], None]]:
        model = self.model(title)
        model.compile(optimizer=self.hvd_keras.DistributedOptimizer(self.optimizer()), loss=self.loss())
        data = self.dataset(BATCH)
        return model, lambda: model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0)

    def tape(self, tape: Any) -> Any:
        return self.hvd.DistributedGradientTape(tape)

    def slowest(self, seconds: float) -> float:
        return float(self.hvd.allreduce(self.tf.constant(seconds, self.tf.float64), op=self.hvd.Max))

    def check(self, model: Any) -> None:
        own = self.tf.concat([self.tf.reshape(weight, [-1]) for weight in model.get_weights()], 0)
        everywhere = self.hvd.allgather(own[None])
        assert bool(self.tf.reduce_all(everywhere == own)), "ranks have come apart"


class Strategy(Plain):
    """MultiWorkerMirroredStrategy. It wants to be made before anything else of TensorFlow is used."""

    def __init__(self, tf: Any) -> None:
        super().__init__(tf)
        workers = os.environ["WORKERS"].split(",")
        self.ranks, self.rank = len(workers), int(os.environ["HVD_RANK"])
        task = {"type": "worker", "index": self.rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def fitting(self, title: str) -> tuple[Any, Callable[[], None]]:
        with self.strategy.scope():
            model = self.model(title)
            model.compile(optimizer=self.optimizer(), loss=self.loss())
        options = self.tf.data.Options()
        options.experimental_distribute.auto_shard_policy = self.tf.data.experimental.AutoShardPolicy.OFF
        data = self.dataset(BATCH * self.ranks).with_options(options)
        return model, lambda: model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0)

    def looping(self, title: str) -> tuple[Any, Callable[[], None]]:
        tf, strategy = self.tf, self.strategy
        with strategy.scope():
            model, optimizer = self.model(title), self.optimizer()
            loss = self.loss(reduction="none")
        data = iter(strategy.distribute_datasets_from_function(lambda _: self.dataset(BATCH)))

        def of_one(inputs: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = loss(targets, model(inputs, training=True))
                value = tf.nn.compute_average_loss(losses, global_batch_size=BATCH * self.ranks)
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return value

        @tf.function
        def step(inputs: Any, targets: Any) -> Any:
            return strategy.run(of_one, args=(inputs, targets))

        def steps() -> None:
            for _ in range(STEPS):
                value = step(*next(data))
            strategy.experimental_local_results(value)[0].numpy()

        return model, steps


Sides: dict[str, type[Plain]] = {"hvd": Hvd, "strategy": Strategy, "plain": Plain}


def launch(side: str, ranks: int, directory: str) -> dict[str, float]:
    results = Path(directory) / "results.json"
    results.unlink(missing_ok=True)
    environment = dict(os.environ, WORKERS=",".join(f"127.0.0.1:{port}" for port in free_ports(ranks)))
    command = [str(HVDRUN), "-np", str(ranks), sys.executable, __file__, "--side", side, "--results", str(results)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if ended.returncode != 0:
        raise SystemExit(f"{side} ended with {ended.returncode}:\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}")
    measured: dict[str, float] = json.loads(results.read_text())
    return measured


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description="training TensorFlow models with hvd and with tf.distribute")
    parser.add_argument("--ranks", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--launches", type=int, default=5, help="of each side; default: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write the results into this file too")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return be_a_rank(options.side, options.results)
    alone = options.ranks == 1
    sides = ["hvd", "plain", "hvd, Keras 3", "plain, Keras 3"] if alone else ["hvd", "strategy", "hvd, Keras 3"]
    measured: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(options.launches):
            for side in sides if number % 2 == 0 else reversed(sides):
                measured[side].append(launch(side, options.ranks, directory))
    print(table(options.ranks, sides, measured), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"ranks": options.ranks, "results": measured}))


def table(ranks: int, sides: list[str], measured: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{ranks} ranks, one CPU each; Linux {platform.release()}; steps a second: median of launches (best)"]
    lines.append(f"{'':28}" + "".join(f"{side:>22}" for side in sides) + f"{'ratio':>9}{'best':>8}")
    for case in CASES:
        numbers = {side: [launch[case] for launch in measured[side]] for side in sides}
        line = f"{case:28}"
        for side in sides:
            line += f"{statistics.median(numbers[side]):12.1f} ({max(numbers[side]):7.1f})"
        for of in (statistics.median, max):
            line += f"{of(numbers[sides[0]]) / of(numbers[sides[1]]):7.2f}x"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
