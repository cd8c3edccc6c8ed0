"""Data-parallel training by a loss over the ranks' data: its value and its gradients are those of all batches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Callable

import jax
import jax.numpy as jnp

from hvd.arguments import compressor as require_compressor
from hvd.jax.collectives import grouped_allreduce
from hvd.jax.compression import Compression, reduce_compressed
from hvd.process_set import ProcessSet, global_process_set
from hvd.reduce_op import Average, Sum


def data_parallel(
    loss: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """Makes a loss of this rank's batch the loss of all ranks' batches, and its gradients theirs.

    >>> loss, gradients = jax.value_and_grad(hvd.data_parallel(loss_of))(params, images, labels)

    Every rank of the set must call and differentiate it equally often, with the same values of the chosen arguments:
    `broadcast_tree`. Value and gradients are then the same on all ranks, so that the rest of a step needs no change:
    use the plain optimizer, not a DistributedGradientTransformation. A call is an operation for the value, and if it
    is differentiated one more for each 8 MB or more of gradients, the last leaves first: within `jit`, those of the
    last layers travel while XLA computes the others. Derivatives are in reverse mode, of any order.

    What it does not do:

    - Gradients with respect to other arguments, inputs for instance, are those of this rank's own loss.
    - An average over the ranks is that over all examples only if the batches are equally large. If they are not, divide
      by the number of all ranks' examples in the loss, with `op=hvd.Sum`.
    - Each differentiated call reduces: for gradients of several microbatches, let the loss scan over these.
    - The loss is given copies of the chosen pytrees: what it changes in them, as it may in Flax's nnx modules, is lost.

    Args:
        loss: a function of positional and keyword arguments that returns a floating-point array, usually a scalar.
        argnums: which positional arguments, pytrees for instance, are the parameters; see `jax.grad`.
        has_aux: whether the function returns (loss, aux). aux is not reduced: it stays this rank's.
        compression: `Compression.fp16` or `Compression.bf16`: the type in which gradients are sent.
        op: Average or Sum: what the loss of all ranks is, and so its gradients.
        process_set: the ranks that take part.

    Returns:
        A function with the arguments of `loss` and its kind of result.
    """
    require_compressor(compression)
    if op not in (Average, Sum):
        raise ValueError(
            "data_parallel: op must be hvd.Average or hvd.Sum, of the ranks' losses; for Adasum of gradients use "
            "DistributedGradientTransformation"
        )
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    of_gradients = _Reduction("gradients", op, process_set, compression)
    of_value = _Reduction("loss", op, process_set)

    @functools.wraps(loss)
    def over_ranks(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for number in numbers:
            if not -len(given) <= number < len(given):
                raise ValueError(
                    f"data_parallel: argnums has {number}, but there are {len(given)} positional arguments"
                )
        for number, argument in zip(numbers, _replicated([args[number] for number in numbers], of_gradients)):
            given[number] = argument
        result = loss(*given, **kwargs)
        if isinstance(result, tuple) != has_aux:
            expected = "a tuple (loss, aux), as has_aux says" if has_aux else "the loss alone, or give has_aux=True"
            raise TypeError(f"data_parallel: the function returned a {type(result).__name__}: expected {expected}")
        own, aux = result if has_aux else (result, None)
        (value,) = _reduced(of_value, jnp.asarray(own))
        return (value, aux) if has_aux else value

    return over_ranks


@dataclasses.dataclass(frozen=True)
class _Reduction:
    name: str
    op: int
    process_set: ProcessSet
    compression: Any = Compression.none

    def __call__(self, arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        reduce = functools.partial(grouped_allreduce, op=self.op, process_set=self.process_set)
        return tuple(reduce_compressed(arrays, self.name, self.compression, reduce))


def _replicated(tree: Any, reduction: _Reduction) -> Any:
    """The same pytree, as values that all ranks have alike."""
    leaves, structure = jax.tree.flatten(tree)
    chosen = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(getattr(leaf, "dtype", int), jnp.inexact)]
    for i, leaf in zip(chosen, _shared(reduction, *(leaves[i] for i in chosen))):
        leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


# Two functions that are each other's derivatives, where ranks hold the same value (a parameter, the loss of all ranks,
# their derivatives) and values of their own (what they compute for their batches). The rules for differentiation call
# the functions themselves, so that they apply to derivatives of derivatives, too.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _shared(reduction: _Reduction, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """From values that are the same on all ranks to ranks' own."""
    return arrays


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reduced(reduction: _Reduction, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """From ranks' own values to one that is the same on all."""
    return reduction(arrays)


def _with_nothing_kept(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda reduction, *arrays: (function(reduction, *arrays), None)


_shared.defvjp(_with_nothing_kept(_shared), lambda reduction, _, cotangents: _reduced(reduction, *cotangents))
_reduced.defvjp(_with_nothing_kept(_reduced), lambda reduction, _, cotangents: _shared(reduction, *cotangents))
