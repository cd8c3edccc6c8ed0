"""The primitive of all collectives: calls of libhvd_jax.so's handler. They are performed in the order of the script
(ordering.py)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax._src import config
from jax.experimental.compilation_cache import compilation_cache
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from hvd.jax.library import TARGET
from hvd.jax.ordering import IN_ORDER, has_one_device, jit


class Operation(Protocol):
    """All of an operation but its arrays; hashable. Equal ones are compiled once."""

    @property
    def rows(self) -> tuple[int, ...] | None:
        """First dimensions of the results, or None if results are shaped as the arrays."""

    @property
    def is_elementwise(self) -> bool:
        """Whether a batch of operations is an operation on the batch."""

    def attributes(self) -> dict[str, Any]:
        """What the handler is to know."""


def run(operation: Operation, arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Performs an operation on arrays, compiled or not. As many results as arrays, of the same dtypes."""
    return tuple(_collective.bind(*arrays, operation=operation))


_collective = Primitive("hvd_collective")
_collective.multiple_results = True


def _results(*avals: Any, operation: Operation) -> tuple[list[Any], set[Any]]:
    shapes = [aval.shape for aval in avals]
    if operation.rows is not None:
        shapes = [(number, *shape[1:]) for number, shape in zip(operation.rows, shapes)]
    return [aval.update(shape=shape) for aval, shape in zip(avals, shapes)], {IN_ORDER}


def _leave_compilation_cache() -> None:
    """JAX crashes where it writes a program for several devices into its persistent cache that returns a token: XLA
    serializes the token's layout, and there is none (JAX 0.10)."""
    if config.compilation_cache_dir.value is None or not config.enable_compilation_cache.value:
        return
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    warnings.warn(
        "hvd turns JAX's compilation cache off in this process, which has several devices: JAX cannot keep programs "
        "for several devices with ordered effects",
        stacklevel=2,
    )


def _lower(context: Any, *operands: Any, operation: Operation) -> Sequence[Any]:
    """A call with the token as its first argument and result."""
    if not has_one_device():
        _leave_compilation_cache()
    token = jax.core.abstract_token
    with_tokens = context.replace(avals_in=[token, *context.avals_in], avals_out=[token, *context.avals_out])
    aliases = {i + 1: i + 1 for i in range(len(operands))} if operation.rows is None else {}
    rule = jax.ffi.ffi_lowering(TARGET, has_side_effect=True, operand_output_aliases=aliases)
    new_token, *results = rule(with_tokens, context.tokens_in.get(IN_ORDER), *operands, **operation.attributes())
    context.set_tokens_out(mlir.TokenSet({IN_ORDER: new_token}))
    return results


def _batch(
    arrays: Sequence[Any], dimensions: Sequence[Any], *, operation: Operation
) -> tuple[Sequence[Any], list[int]]:
    size = next(a.shape[d] for a, d in zip(arrays, dimensions) if d is not None)
    batches = [
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(arrays, dimensions)
    ]
    if operation.is_elementwise:
        results = _collective.bind(*batches, operation=operation)
    else:
        results = jax.lax.map(lambda each: _collective.bind(*each, operation=operation), batches)
    return results, [0] * len(arrays)


def _bind(*arrays: jax.Array, operation: Operation) -> Sequence[Any]:
    return _collective.bind(*arrays, operation=operation)


_bind.__qualname__ = _collective.name
_bind._apply_primitive = True  # type: ignore[attr-defined]  # where JAX looks for a NaN: there is nothing within to repeat
_compiled = jit(_bind, static_argnames="operation")


def _perform(*arrays: jax.Array, operation: Operation) -> Sequence[Any]:
    if not config.disable_jit.value:
        return _compiled(*arrays, operation=operation)
    with jax.disable_jit(False):  # XLA alone can call the handler
        return _compiled(*arrays, operation=operation)


_collective.def_effectful_abstract_eval(_results)
_collective.def_impl(_perform)
batching.primitive_batchers[_collective] = _batch
mlir.register_lowering(_collective, _lower)
