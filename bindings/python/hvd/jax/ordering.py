"""What has the operations of all programs performed in the order of the script.

XLA's CPU runtime starts what is ready in an order that differs from run to run, and runs it on several threads. Without
more, two ranks could pair one's first operation with the other's second. So operations have an ordered effect: JAX
connects them by tokens, within a program, through its loops, branches and compiled functions, and between programs.

JAX calls programs that have an effect from Python, which takes most of a millisecond on the CPU that trains. `jit`
hides the effect from JAX: the tokens begin and end within the program, and an empty array, an argument and a result of
each program, orders it among the others. For a program begins when its arguments are complete, and its results are
complete when all of it has ended.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import config, core, dispatch, effects  # the only place where an effect can be made and be ordered
from jax.extend.core import Primitive
from jax.interpreters import mlir


class _InOrder(effects.Effect):
    def __str__(self) -> str:
        return "hvd"


IN_ORDER = _InOrder()
for _registered in (
    effects.lowerable_effects,
    effects.ordered_effects,
    effects.shardable_ordered_effects,  # several devices in a process: in order on each
    effects.control_flow_allowed_effects,
    effects.remat_allowed_effects,
    effects.custom_derivatives_allowed_effects,
):
    _registered.add_type(_InOrder)


class _Last(threading.local):
    """The token by which the last program of `jit` orders what comes next. JAX has it as the one of the effect."""

    token: core.Token | None = None


_last = _Last()
_FIRST = np.zeros(0, np.bool_)  # as JAX's own first token


def forget_error() -> None:
    """After an error, which programs of this thread would raise again since they come after it."""
    dispatch.runtime_tokens.current_tokens.pop(IN_ORDER, None)
    dispatch.runtime_tokens.output_runtime_tokens.clear()


def is_within_transformation() -> bool:
    """Whether what is called now is traced: compiled, differentiated, batched."""
    return not core.trace_state_clean()


def jit(
    function: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
    """Compiles a function as `jax.jit` does, so that a call of it takes JAX a tenth of the time.

    >>> @hvd.jit
    ... def step(params, state, batch):
    ...     loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    ...     updates, state = optimizer.update(gradients, state, params)
    ...     return optax.apply_updates(params, updates), state, hvd.allreduce(loss)

    A call of a program with hvd's operations takes `jax.jit` most of a millisecond of Python. What is called within
    another transformation (`jax.grad`, `jax.vmap`, another compiled function) is compiled by `jax.jit`, and so are
    programs of processes with several devices, and those with other effects, `jax.debug.print` for instance.

    Every rank must call the function equally often, in the same order among hvd's operations.

    Args:
        function: as for `jax.jit`.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as for `jax.jit`.
    """
    compiled = functools.partial(
        jax.jit,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
    )
    ordinary = compiled(function)

    @compiled
    @functools.wraps(function)
    def program(*args: Any, hvd_order: jax.Array, **kwargs: Any) -> tuple[Any, jax.Array]:
        return _within_program(function, args, kwargs, hvd_order)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_within_transformation() or config.disable_jit.value or not _has_one_device():
            return ordinary(*args, **kwargs)
        results, order = program(*args, hvd_order=_order_after_last(), **kwargs)
        dispatch.runtime_tokens.current_tokens[IN_ORDER] = _last.token = core.Token(order)
        return results

    return call


@functools.cache
def _has_one_device() -> bool:
    return jax.local_device_count() == 1


def _order_after_last() -> Any:
    token = dispatch.runtime_tokens.current_tokens.get(IN_ORDER)
    if token is None:
        return _FIRST
    if token is _last.token:
        return token._buf
    token.block_until_ready()  # of a program with an effect, which has another layout
    return _FIRST


def _within_program(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], order: jax.Array
) -> tuple[Any, jax.Array]:
    """The function's results, and the order of what comes after it; traced once for each program."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_array = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
    arrays = [leaf for leaf, chosen in zip(leaves, is_array) if chosen]

    def of_arrays(_: jax.Array, *arrays: jax.Array) -> tuple[Any, jax.Array]:
        given = iter(arrays)
        all_leaves = [next(given) if chosen else leaf for leaf, chosen in zip(leaves, is_array)]
        args, kwargs = jax.tree.unflatten(structure, all_leaves)
        return function(*args, **kwargs), jnp.zeros(_FIRST.shape, _FIRST.dtype)

    closed, results = jax.make_jaxpr(of_arrays, return_shape=True)(order, *arrays)
    if closed.effects - {IN_ORDER}:
        return of_arrays(order, *arrays)
    jaxpr = closed.jaxpr
    inputs = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, order, *arrays]))
    outputs = _program.bind(*inputs.values(), jaxpr=jaxpr)
    for i, variable in enumerate(jaxpr.outvars):
        if isinstance(variable, core.Var):
            outputs[i] = inputs.get(variable, outputs[i])  # which JAX returns without a copy
    return jax.tree.unflatten(jax.tree.structure(results), outputs)


_program = Primitive("hvd_program")
_program.multiple_results = True


def _lower_program(context: Any, *operands: Any, jaxpr: Any) -> Sequence[Any]:
    def evaluate(*operands: Any) -> Sequence[Any]:
        number = len(jaxpr.constvars)
        return core.eval_jaxpr(jaxpr, operands[:number], *operands[number:])

    return mlir.lower_fun(evaluate)(context.replace(tokens_in=mlir.TokenSet.create([IN_ORDER])), *operands)


_program.def_abstract_eval(lambda *_, jaxpr: [variable.aval for variable in jaxpr.outvars])
mlir.register_lowering(_program, _lower_program)
