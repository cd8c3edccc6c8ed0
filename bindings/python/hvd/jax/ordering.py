"""Keeps the operations of all programs in the order of the script.

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
import numpy as np
from jax._src import config, core, dispatch, effects  # the only place where an effect can be made and be ordered
from jax._src.array import ArrayImpl
from jax._src.state.types import AbstractRef
from jax.extend.core import Primitive
from jax.interpreters import mlir

from hvd.exceptions import HorovodInternalError

# As libhvd_jax.so begins its texts: of an error between ranks and, behind JAX's own word, of a wrong call.
ERROR_MARK = f"{HorovodInternalError.__name__}: "
_WRONG_CALL = "INVALID_ARGUMENT: hvd: "


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
    """The token by which the last program of `jit` orders what comes next. It is also JAX's token of the effect, unless
    a program of `jax.jit` came later."""

    token: core.Token | None = None


_last = _Last()
_FIRST = np.zeros(0, np.bool_)  # as JAX's own first token


def forget_error() -> None:
    """Forgets the token of a failed program, whose error this thread's later programs would raise again."""
    dispatch.runtime_tokens.current_tokens.pop(IN_ORDER, None)
    dispatch.runtime_tokens.output_runtime_tokens.clear()


def wait() -> None:
    """Until this thread's programs with operations have ended. Raises the error of one that has failed."""
    token = dispatch.runtime_tokens.current_tokens.get(IN_ORDER)
    if token is not None:
        token.block_until_ready()


def is_within_transformation() -> bool:
    """Whether the current call is being traced: compiled, differentiated or batched."""
    return not core.trace_state_clean()


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
    """Like `jax.jit`, with about a tenth of the overhead for each call of a program with hvd's operations.

    >>> @hvd.jit
    ... def step(params, state, batch):
    ...     loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    ...     updates, state = optimizer.update(gradients, state, params)
    ...     return optax.apply_updates(params, updates), state, hvd.allreduce(loss)

    `jax.jit` spends most of a millisecond in Python on each call of such a program. Within another transformation
    (`jax.grad`, `jax.vmap`, another compiled function) and in jobs whose ranks see several devices, it is `jax.jit`.
    Programs that have other effects as well, `jax.debug.print` for instance, keep the overhead.

    If the function has operations of hvd's, every rank must call it equally often, in the same order among them.

    Args:
        function: as for `jax.jit`; left out, the result is a decorator.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as for `jax.jit`.
    """
    options: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    if function is None:
        return functools.partial(jit, **options)
    compiled = functools.partial(jax.jit, **options)
    ordinary = compiled(function)

    @compiled
    @functools.wraps(function)
    def program(*args: Any, hvd_order: jax.Array, **kwargs: Any) -> tuple[Any, jax.Array]:
        return _within_program(function, args, kwargs, hvd_order)

    # Both are sent by value to other processes if the function is, so they name nothing but functions of this module.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _call(ordinary, program, args, kwargs)

    for name in ("lower", "trace", "eval_shape"):
        setattr(call, name, getattr(ordinary, name))
    return call


def _call(ordinary: Any, program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if is_within_transformation() or config.disable_jit.value or not has_one_device():
        return ordinary(*args, **kwargs)
    try:
        results, order = program(*args, hvd_order=_order_after_last(), **kwargs)
    except ValueError as error:  # of JAX where it calls without Python: from a program's second call on
        if ERROR_MARK not in str(error) and not str(error).startswith(_WRONG_CALL):
            raise
        raise jax.errors.JaxRuntimeError(str(error)) from None
    # Which devices the next program uses is not for this one to say.
    if order.committed:
        order = ArrayImpl(order.aval, order.sharding, order._arrays, committed=False, _skip_checks=True)
    dispatch.runtime_tokens.current_tokens[IN_ORDER] = _last.token = core.Token(order)
    return results


@functools.cache
def has_one_device() -> bool:
    """Whether there is one device in all processes that JAX knows of."""
    return jax.device_count() == 1


def _order_after_last() -> Any:
    token = dispatch.runtime_tokens.current_tokens.get(IN_ORDER)
    if token is None:
        return jax.device_put(_FIRST)  # explicitly, which jax.transfer_guard() may require
    if token is _last.token:
        return token._buf
    token.block_until_ready()  # of a program with an effect, which has another layout
    return jax.device_put(_FIRST)


def _within_program(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], order: jax.Array
) -> tuple[Any, jax.Array]:
    """The function's results, and the order of what comes after it."""
    if not isinstance(order, jax.core.Tracer):  # JAX repeats a program uncompiled, to find where a NaN is from
        return function(*args, **kwargs), order
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_array = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
    arrays = [leaf for leaf, chosen in zip(leaves, is_array) if chosen]

    def of_arrays(order: jax.Array, *arrays: jax.Array) -> tuple[Any, jax.Array]:
        given = iter(arrays)
        all_leaves = [next(given) if chosen else leaf for leaf, chosen in zip(leaves, is_array)]
        args, kwargs = jax.tree.unflatten(structure, all_leaves)
        return function(*args, **kwargs), ~order  # computed from the argument, so that JAX keeps it and waits for it

    closed, results = jax.make_jaxpr(of_arrays, return_shape=True)(order, *arrays)
    has_refs = any(isinstance(variable.aval, AbstractRef) for variable in closed.jaxpr.invars)
    if closed.effects - {IN_ORDER} or has_refs:
        outputs = core.eval_jaxpr(closed.jaxpr, closed.consts, order, *arrays)
    else:
        outputs = _program.bind(*closed.consts, order, *arrays, jaxpr=closed.jaxpr)
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
