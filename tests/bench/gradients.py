"""The gradients of a ResNet-50 (161 tensors, 102 MB), reduced from Python beside the same from C++ (hvd bench), in
launches by turns; and the memory that doing so takes.

    python tests/bench/gradients.py                 two ranks, five launches of each
    python tests/bench/gradients.py --framework tensorflow, or jax
    python tests/bench/gradients.py --launches 3 --json FILE

With PyTorch: allreduce_async_ of each tensor, then synchronize of each handle. A time is that of the slowest rank;
tensors are rewritten before a round and checked after it, outside of the time. Memory is what a rank has more of after
the rounds than before init(), in shares of the gradients' size; of memory that ranks share it has its part (PSS).

With TensorFlow: a tf.function that makes the gradients anew and reduces them, less the time of the same without the
reduction, by turns.

With JAX: a compiled program that reduces the gradients as one grouped operation, in the memory of its arguments.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from resnet50 import shapes

HVDRUN = Path(sys.executable).parent / "hvdrun"
HVD_BENCH = Path(sys.executable).parent / "hvd-bench"
ROUNDS = 25
WARM_UP = 3


def own_memory() -> int:
    """Bytes of this process; shared ones by its part."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def be_a_rank_of_torch(results: str) -> None:
    import torch

    import hvd.torch as hvd

    torch.set_num_threads(1)
    gradients = [torch.ones(shape) for shape in reversed(shapes())]
    before = own_memory()
    hvd.init()
    seconds = []
    for round_number in range(WARM_UP + ROUNDS):
        for gradient in gradients:
            gradient.fill_(hvd.rank() + round_number)
        hvd.barrier()
        began = time.perf_counter()
        handles = [hvd.allreduce_async_(g, name=str(i), op=hvd.Sum) for i, g in enumerate(gradients)]
        for handle in handles:
            hvd.synchronize(handle)
        own = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
        seconds.append(hvd.allreduce(own, op=hvd.Max).item())
        expected = sum(range(hvd.size())) + hvd.size() * round_number
        assert all(gradient.eq(expected).all() for gradient in gradients), "a sum is wrong"
    memory = torch.tensor((own_memory() - before) / sum(gradient.nbytes for gradient in gradients))
    memory = hvd.allreduce(memory, op=hvd.Max).item()
    if hvd.rank() == 0:
        median_us = statistics.median(seconds[WARM_UP:]) * 1e6
        Path(results).write_text(json.dumps({"median_us": median_us, "memory": memory}))


def be_a_rank_of_tensorflow(results: str) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import hvd.tensorflow as hvd
    from hvd.tensorflow.gradients import GradientReducer

    hvd.init()
    variables = [tf.Variable(tf.ones(shape)) for shape in reversed(shapes())]
    reducer = GradientReducer(name="gradients", op=hvd.Sum)

    def make(reduce: Callable[[list], list]) -> Callable[[object], object]:
        @tf.function
        def step(factor: object) -> object:
            gradients = reduce([variable * factor for variable in variables])
            with tf.control_dependencies(gradients):  # all of them stay in memory, as for an optimizer
                return tf.stack([tf.reshape(gradient, [-1])[-1] for gradient in gradients])

        return step

    with_reduction, without = make(reducer), make(lambda gradients: gradients)
    seconds: dict[object, list[float]] = {with_reduction: [], without: []}
    for round_number in range(WARM_UP + ROUNDS):
        factor = tf.constant(float(hvd.rank() + round_number))
        for step, times in seconds.items():
            hvd.barrier()
            began = time.perf_counter()
            last = step(factor).numpy()
            own = tf.constant(time.perf_counter() - began, tf.float64)
            times.append(float(hvd.allreduce(own, op=hvd.Max)))
            if step is with_reduction:
                expected = sum(range(hvd.size())) + hvd.size() * round_number
                assert (last == expected).all(), "a sum is wrong"
    if hvd.rank() == 0:
        whole, rest = (statistics.median(times[WARM_UP:]) for times in seconds.values())
        Path(results).write_text(json.dumps({"median_us": (whole - rest) * 1e6}))


def be_a_rank_of_jax(results: str) -> None:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax
    import jax.numpy as jnp
    import numpy as np

    import hvd.jax as hvd

    @jax.jit
    def make(value: object) -> list:
        return [jnp.full(shape, value) for shape in reversed(shapes())]

    @functools.partial(hvd.jit, donate_argnums=0)
    def reduce(gradients: list) -> list:
        return hvd.grouped_allreduce(gradients, op=hvd.Sum)

    gradients = jax.block_until_ready(make(0.0))
    size = sum(gradient.nbytes for gradient in gradients)
    before = own_memory()
    hvd.init()
    seconds = []
    for round_number in range(WARM_UP + ROUNDS):
        gradients = views = None  # the next ones may have their memory
        gradients = jax.block_until_ready(make(float(hvd.rank() + round_number)))
        hvd.barrier()
        began = time.perf_counter()
        gradients = jax.block_until_ready(reduce(gradients))
        own = jnp.float32(time.perf_counter() - began)
        seconds.append(float(hvd.allreduce(own, op=hvd.Max)))
        expected = sum(range(hvd.size())) + hvd.size() * round_number
        views = [np.asarray(gradient) for gradient in gradients]
        assert all(view.min() == expected == view.max() for view in views), "a sum is wrong"
    memory = float(hvd.allreduce(jnp.float32((own_memory() - before) / size), op=hvd.Max))
    if hvd.rank() == 0:
        median_us = statistics.median(seconds[WARM_UP:]) * 1e6
        Path(results).write_text(json.dumps({"median_us": median_us, "memory": memory}))


RANKS = {"torch": be_a_rank_of_torch, "tensorflow": be_a_rank_of_tensorflow, "jax": be_a_rank_of_jax}


def launch(program: list[str], results: Path) -> dict:
    done = subprocess.run([str(HVDRUN), "-np", "2", *program], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"gradients: {' '.join(program)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(results.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description="a ResNet-50's gradients from Python, beside the same from C++")
    parser.add_argument("--launches", type=int, default=5, help="of each (default: %(default)s)")
    parser.add_argument("--framework", choices=sorted(RANKS), default="torch", help="default: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write the results into this file too")
    parser.add_argument("--rank", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return RANKS[options.framework](options.rank)
    python, cpp, memory = [], [], []
    with tempfile.TemporaryDirectory(prefix="gradients-") as folder:
        results = Path(folder, "results.json")
        for _ in range(options.launches):
            found = launch(
                [sys.executable, __file__, "--framework", options.framework, "--rank", str(results)], results
            )
            python.append(found["median_us"])
            memory.append(found.get("memory"))
            bench = [str(HVD_BENCH), "allreduce", "--tensors", "resnet50", "--in-place", "--json", str(results)]
            cpp.append(launch(bench, results)["results"][0]["median_us"])
    row = {
        "python_us": statistics.median(python),
        "cpp_us": statistics.median(cpp),
        "ratio": statistics.median(python) / statistics.median(cpp),
        "ratio_of_best": min(python) / min(cpp),
        "memory": None if None in memory else max(memory),
    }
    line = "from Python {python_us:.0f} us, from C++ {cpp_us:.0f} us: {ratio:.3f}x ({ratio_of_best:.3f}x by the best)"
    print(line.format(**row) + (f"; memory: {row['memory']:.1%} of the gradients" if row["memory"] else ""))
    if options.json:
        Path(options.json).write_text(json.dumps(row))


if __name__ == "__main__":
    main()
