"""Data-parallel training with optax: an optimizer that reduces gradients over the ranks first."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hvd.arguments import compressor as require_compressor
from hvd.arguments import positive, reduce_op
from hvd.jax.collectives import grouped_allreduce
from hvd.jax.compression import Compression, reduce_compressed
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Adasum, Average, Sum


def DistributedGradientTransformation(
    optimizer: Any,
    compression: Any = Compression.none,
    op: int = Average,
    backward_passes_per_step: int = 1,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes an optimizer of optax reduce its gradients over all ranks before it uses them.

    Gradients are reduced in parts of 8 MB or more, the last leaves of the pytree first: within `jit`, those of the last
    layers travel while XLA computes the others.

    Every rank of the set must call `update` equally often. Parameters must be the same on all ranks at first:
    `broadcast_tree`.

    Args:
        optimizer: any optax.GradientTransformation, chains included.
        compression: `Compression.fp16` or `Compression.bf16`: the type in which gradients are sent.
        op: Average, Sum or Adasum.
        backward_passes_per_step: so many calls of `update` add up their gradients on each rank before they are reduced
            and a step is made; the others return updates of zeros.
        process_set: the ranks that take part.

    Returns:
        An optax.GradientTransformationExtraArgs.

    Raises:
        TypeError, ValueError: compression is no compressor, op another operation, or backward_passes_per_step below 1.
    """
    import optax

    require_compressor(compression)
    if reduce_op(op) not in (Average, Sum, Adasum):
        raise ValueError(f"op is {op}: expected hvd.Average, hvd.Sum or hvd.Adasum")
    inner = optax.with_extra_args_support(optimizer)
    reduce = functools.partial(grouped_allreduce, op=op, process_set=process_set)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(gradients)
        # Those of integers (jax.grad with allow_int) are of type float0, which has no values.
        real = [i for i, leaf in enumerate(leaves) if jnp.result_type(leaf) != jax.dtypes.float0]
        arrays = [jnp.asarray(leaves[i]) for i in real]  # a leaf may be a Python number
        for i, array in zip(real, reduce_compressed(arrays, "gradients", compression, reduce)):
            leaves[i] = array
        return inner.update(jax.tree.unflatten(structure, leaves), state, params, **extra)

    distributed = optax.GradientTransformationExtraArgs(inner.init, update)
    passes = positive(backward_passes_per_step, "backward_passes_per_step")
    return distributed if passes == 1 else _after_passes(distributed, passes)


class _Passes(NamedTuple):
    count: Any  # since the last step
    gradients: Any  # their sum
    inner: Any


def _after_passes(distributed: Any, passes: int) -> Any:
    """A step for so many calls. Not optax.MultiSteps, which updates in each call and drops the result."""
    import optax

    def init(params: Any) -> _Passes:
        return _Passes(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params), distributed.init(params))

    def update(gradients: Any, state: _Passes, params: Any = None, **extra: Any) -> tuple[Any, _Passes]:
        total = jax.tree.map(jnp.add, state.gradients, gradients)
        zeros = jax.tree.map(jnp.zeros_like, total)

        def step() -> tuple[Any, _Passes]:
            updates, inner = distributed.update(total, state.inner, params, **extra)
            return updates, _Passes(jnp.zeros_like(state.count), zeros, inner)

        def wait() -> tuple[Any, _Passes]:
            # Of the types of a step's updates, which an optimizer may make wider than the gradients.
            none = jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda: step()[0]))
            return none, _Passes(state.count + 1, total, state.inner)

        return jax.lax.cond(state.count == passes - 1, step, wait)

    return optax.GradientTransformationExtraArgs(init, update)
