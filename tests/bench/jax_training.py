"""Training steps a second of two processes with JAX: hvd.jax, compiled by hvd.jit and by jax.jit, beside
jax.distributed's collectives (gloo), and beside two processes that do not communicate, or only wait for each other in
each step.

    python tests/bench/jax_training.py [--trials 5] [--steps 300]

The kinds take turns, each as a job of its own; the best and the median of their steps a second are printed. All have
one thread for each process, begin with the same parameters and see the same data, so that their losses must agree.
"""

from __future__ import annotations

import argparse
import functools
import os
import socket
import statistics
import subprocess
import sys
import time

RANKS = 2
KINDS = ("hvd", "hvd, jax.jit", "jax.distributed", "barrier", "alone")
MODELS = {"mlp": 64, "convolutions": 32}  # images of a rank and step
WARM = 20
FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def is_hvd(kind):
    return kind not in ("jax.distributed", "alone")


def make_model(model):
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 3)
    if model == "mlp":
        widths = [784, 512, 512, 10]
        params = [jax.random.normal(key, (m, n)) / m**0.5 for key, m, n in zip(keys, widths, widths[1:])]

        def predict(params, images):
            hidden = jax.nn.relu(images.reshape(len(images), -1) @ params[0])
            return jax.nn.relu(hidden @ params[1]) @ params[2]

        return params, predict
    shapes = [(3, 3, 1, 16), (3, 3, 16, 32), (7 * 7 * 32, 10)]
    params = [jax.random.normal(key, shape) * 0.05 for key, shape in zip(keys, shapes)]

    def predict(params, images):
        for kernel in params[:2]:
            images = jax.lax.conv_general_dilated(
                images, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            images = jax.nn.relu(images)
        return jnp.reshape(images, (len(images), -1)) @ params[2]

    return params, predict


def be_a_rank(kind, model, steps, address):
    import jax
    import numpy as np
    import optax

    rank = int(os.environ["BENCH_RANK"]) if "BENCH_RANK" in os.environ else int(os.environ["HVD_RANK"])
    params, predict = make_model(model)
    optimizer = optax.sgd(0.01, momentum=0.9)
    random = np.random.default_rng(rank)
    images = random.normal(size=(MODELS[model], 28, 28, 1)).astype(np.float32)
    labels = random.integers(0, 10, size=MODELS[model])

    def loss_of(params, images, labels):
        return optax.softmax_cross_entropy_with_integer_labels(predict(params, images), labels).mean()

    def step(params, state, images, labels, average):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        loss, gradients = average((loss, gradients))
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    compiled = jax.jit
    if is_hvd(kind):
        import hvd.jax as hvd

        def of_loss(tree):
            return hvd.allreduce(tree[0]), tree[1]

        hvd.init()
        compiled = jax.jit if kind == "hvd, jax.jit" else hvd.jit
        run = functools.partial(step, average=of_loss if kind == "barrier" else hvd.allreduce_tree)
    elif kind == "alone":
        run = functools.partial(step, average=lambda tree: tree)
    else:
        run, images, labels = with_jax_distributed(step, rank, address, images, labels)
    run = compiled(run, donate_argnums=(0, 1))
    state = optimizer.init(params)
    for number in range(WARM + steps):
        if number == WARM:
            jax.block_until_ready(params)
            began = time.perf_counter()
        params, state, loss = run(params, state, images, labels)
    jax.block_until_ready(params)
    took = time.perf_counter() - began
    if rank == 0:
        print(f"RESULT {steps / took} {float(loss)}", flush=True)


def with_jax_distributed(step, rank, address, images, labels):
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices(), ("ranks",))
    whole, rows = PartitionSpec(), PartitionSpec("ranks")
    images, labels = (
        jax.make_array_from_process_local_data(NamedSharding(mesh, rows), each) for each in (images, labels)
    )
    average = functools.partial(jax.lax.pmean, axis_name="ranks")
    run = jax.shard_map(
        functools.partial(step, average=average),
        mesh=mesh,
        in_specs=(whole, whole, rows, rows),
        out_specs=whole,
        check_vma=False,
    )
    return run, images, labels


def join_jax_distributed(rank, address):
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, RANKS, rank)


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def once(kind, model, steps):
    """Steps a second, and the last loss."""
    program = [sys.executable, os.path.abspath(__file__), "--rank", kind, model, str(steps), free_address()]
    environment = {**os.environ, "XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    if is_hvd(kind):
        done = subprocess.run(
            ["hvdrun", "-np", str(RANKS), *program], env=environment, capture_output=True, text=True, check=True
        )
        output = done.stdout
    else:
        started = [
            subprocess.Popen(
                program,
                env={**environment, "BENCH_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(RANKS)
        ]
        output = "".join(process.communicate(timeout=600)[0] for process in started)
        assert all(process.returncode == 0 for process in started), kind
    words = next(line for line in output.splitlines() if line.startswith("RESULT")).split()
    return float(words[1]), float(words[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    print(f"steps a second, {RANKS} processes on {os.cpu_count()} CPUs, {options.steps} steps, {options.trials} trials")
    for model in MODELS:
        rates, losses = {kind: [] for kind in KINDS}, {}
        for trial in range(options.trials):
            for kind in KINDS[trial % len(KINDS) :] + KINDS[: trial % len(KINDS)]:
                rate, losses[kind] = once(kind, model, options.steps)
                rates[kind].append(rate)
        assert abs(losses["hvd"] - losses["jax.distributed"]) < 1e-3, losses
        for kind in KINDS:
            print(f"{model:14}{kind:18} best {max(rates[kind]):8.1f}  median {statistics.median(rates[kind]):8.1f}")
        for other in KINDS[1:]:
            ratios = [one / two for one, two in zip(rates["hvd"], rates[other])]
            print(
                f"{model:14}hvd / {other:12} best/best {max(rates['hvd']) / max(rates[other]):.2f}  "
                f"median of ratios {statistics.median(ratios):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        if sys.argv[2] == "jax.distributed":
            join_jax_distributed(int(os.environ["BENCH_RANK"]), sys.argv[5])
        be_a_rank(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main()
