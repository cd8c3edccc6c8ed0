"""Whether gradients travel while XLA computes the rest of a step: an MLP of equal layers on two ranks, with its
gradients as one operation, as one for each layer, in the parts that DistributedGradientTransformation makes of them,
and without communication.

    hvdrun -np 2 python tests/bench/jax_overlap.py [--layers 8] [--width 1024] [--batch 1024] [--threads 1]
    tests/support/netlab.sh 2 1gbit bash -c 'hvdrun --rsh "$NETLAB_RSH" -H h1:1,h2:1 python tests/bench/jax_overlap.py'

The kinds take turns in one job. Shown are rank 0's median and shortest step of each, and by hvd.metrics() the time of a
step in which operations were in progress.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

KINDS = ("alone", "one operation", "each layer", "in parts")


def make_steps(options: argparse.Namespace) -> tuple[dict[str, Callable[..., Any]], tuple[Any, Any]]:
    import jax
    import jax.numpy as jnp
    import optax

    import hvd.jax as hvd

    def loss_of(layers: list[Any], images: Any) -> Any:
        for layer in layers:
            images = jnp.tanh(images @ layer)
        return (images**2).mean()

    def each_layer(gradients: list[Any]) -> list[Any]:
        return [hvd.allreduce(gradient) for gradient in reversed(gradients)][::-1]

    def in_parts(gradients: list[Any]) -> list[Any]:
        optimizer = hvd.DistributedGradientTransformation(optax.identity())
        return optimizer.update(gradients, optimizer.init(gradients))[0]

    def step(reduce: Callable[[Any], Any]) -> Callable[..., Any]:
        def run(layers: list[Any], images: Any) -> list[Any]:
            gradients = reduce(jax.grad(loss_of)(layers, images))
            return [layer - 0.1 * gradient for layer, gradient in zip(layers, gradients)]

        return hvd.jit(run, donate_argnums=0)

    keys = jax.random.split(jax.random.key(0), options.layers)
    layers = [jax.random.normal(key, (options.width, options.width)) / options.width**0.5 for key in keys]
    images = jax.random.normal(jax.random.key(hvd.rank()), (options.batch, options.width))
    reductions = (lambda gradients: gradients, hvd.allreduce_tree, each_layer, in_parts)
    return {kind: step(reduce) for kind, reduce in zip(KINDS, reductions)}, (layers, images)


def main() -> None:
    parser = argparse.ArgumentParser(description="whether gradients travel while XLA computes")
    for name, default in {"layers": 8, "width": 1024, "batch": 1024, "rounds": 12, "threads": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    options = parser.parse_args()
    if options.threads:
        os.environ["XLA_FLAGS"] = (
            f"--xla_cpu_multi_thread_eigen={str(options.threads > 1).lower()} "
            f"intra_op_parallelism_threads={options.threads}"
        )
    import jax
    import numpy as np

    import hvd.jax as hvd

    hvd.init()
    steps, (layers, images) = make_steps(options)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    busy: dict[str, list[float]] = {kind: [] for kind in KINDS}
    results = {}
    for number in range(options.rounds + 2):
        for kind, step in steps.items():
            given = jax.block_until_ready([layer + 0 for layer in layers])
            hvd.barrier()
            before, began = hvd.metrics(), time.perf_counter()
            results[kind] = jax.block_until_ready(step(given, images))
            if number >= 2:
                seconds[kind].append(time.perf_counter() - began)
                busy[kind].append(hvd.metrics(before)["communication_seconds"])
    for kind in KINDS[2:]:
        for one, other in zip(results["one operation"], results[kind]):
            np.testing.assert_array_equal(one, other)
    if hvd.rank() == 0:
        for kind in KINDS:
            median, least = statistics.median(seconds[kind]) * 1e3, min(seconds[kind]) * 1e3
            moving = statistics.median(busy[kind]) * 1e3
            print(f"{kind:14} median {median:8.1f} ms  min {least:8.1f} ms  in progress {moving:8.1f} ms")


if __name__ == "__main__":
    main()
