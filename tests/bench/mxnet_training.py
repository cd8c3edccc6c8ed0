"""Training steps a second with MXNet's gluon: two processes with hvd.mxnet, beside one process alone, and beside two
that do not communicate.

    .venv/mxnet/bin/python tests/bench/mxnet_training.py [--trials 5] [--steps 300]

The kinds take turns, each as a job of its own; the best and the median of their steps a second are printed. All have
one thread for each process, and a step of a process has the same number of images, so that two processes see twice as
many in a step as one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

KINDS = ("hvd", "one process", "two alone")
WIDTHS = (512, 512, 10)
FEATURES, IMAGES = 784, 64  # images of a process and step
WARM = 20
THREADS = {"OMP_NUM_THREADS": "1", "MXNET_CPU_WORKER_NTHREADS": "1"}


def be_a_rank(kind, steps):
    import mxnet as mx
    import numpy as np
    from mxnet import autograd, gluon

    mx.random.seed(0)
    network = gluon.nn.HybridSequential()
    for width, before in zip(WIDTHS, (FEATURES, *WIDTHS)):
        network.add(gluon.nn.Dense(width, activation="relu" if width > 10 else None, in_units=before))
    network.initialize(mx.init.Xavier())
    network.hybridize()
    settings = {"learning_rate": 0.01, "momentum": 0.9}
    if kind == "hvd":
        import hvd.mxnet as hvd

        hvd.init()
        hvd.broadcast_parameters(network.collect_params())
        trainer = hvd.DistributedTrainer(network.collect_params(), "sgd", settings)
    else:
        trainer = gluon.Trainer(network.collect_params(), "sgd", settings, kvstore=None)
    random = np.random.RandomState(int(os.environ.get("HVD_RANK", "0")))
    images = mx.nd.array(random.normal(size=(IMAGES, FEATURES)))
    labels = mx.nd.array(random.randint(0, 10, size=IMAGES))
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for number in range(WARM + steps):
        if number == WARM:
            mx.nd.waitall()
            began = time.perf_counter()
        with autograd.record():
            loss = loss_of(network(images), labels)
        loss.backward()
        trainer.step(IMAGES)
    mx.nd.waitall()
    took = time.perf_counter() - began
    print(f"RESULT {steps / took} {float(loss.mean().asscalar())}", flush=True)


def once(kind, steps):
    """Steps a second of the slower process."""
    program = [sys.executable, os.path.abspath(__file__), "--rank", kind, str(steps)]
    commands = [program] * (2 if kind == "two alone" else 1)
    if kind == "hvd":
        commands = [["hvdrun", "-np", "2", *program]]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": {**os.environ, **THREADS}}
    started = [subprocess.Popen(command, **options) for command in commands]
    output = "".join(process.communicate(timeout=600)[0] for process in started)
    assert all(process.returncode == 0 for process in started), kind
    results = [line.split() for line in output.splitlines() if line.startswith("RESULT")]
    assert len(results) == (1 if kind == "one process" else 2), output
    assert all(float(loss) < 1.0 for _, _, loss in results), "the loss does not become smaller"
    return min(float(rate) for _, rate, _ in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    print(f"steps a second on {os.cpu_count()} CPUs, {options.steps} steps, {options.trials} trials")
    rates = {kind: [] for kind in KINDS}
    for trial in range(options.trials):
        for kind in KINDS[trial % 3 :] + KINDS[: trial % 3]:
            rates[kind].append(once(kind, options.steps))
    for kind in KINDS:
        print(f"{kind:14} best {max(rates[kind]):8.1f}  median {statistics.median(rates[kind]):8.1f}")
    for other in KINDS[1:]:
        ratios = [one / two for one, two in zip(rates["hvd"], rates[other])]
        print(
            f"hvd / {other:12} best/best {max(rates['hvd']) / max(rates[other]):.2f}  "
            f"median of ratios {statistics.median(ratios):.2f}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], int(sys.argv[3]))
    else:
        main()
