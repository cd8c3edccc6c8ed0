"""Elastic training with JAX: a state of pytrees and Python objects.

@hvd.elastic.run
def train(state):
    while state.step < steps:
        state.params, state.opt_state = step(state.params, state.opt_state, next(batches))
        state.step += 1
        state.finish_step()

train(hvd.elastic.JaxState(params=params, opt_state=optimizer.init(params), step=0))
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any, Callable

import jax
import jax.numpy as jnp

from hvd import basics
from hvd.elastic import ObjectState, State, from_source, join_anew, run_fn, sync_root, sync_set
from hvd.jax import collectives, ordering
from hvd.jax.errors import translated
from hvd.objects import broadcast_object

__all__ = ["JaxState", "ObjectState", "State", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic: see `hvd.elastic.run_fn`. Its first argument is a State, as JaxState is."""

    @functools.wraps(func)
    def translating(*args: Any, **kwargs: Any) -> Any:
        with translated():
            return func(*args, **kwargs)

    return run_fn(translating, join_anew)


class JaxState(ObjectState):
    """A training state with JAX: each keyword is an attribute, a pytree or any other object. Arrays within them travel
    as such, everything else is pickled.

    Args:
        kwargs: for instance params=params, opt_state=optimizer.init(params), step=0.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(from_source(broadcast_object), basics.rank, **kwargs)

    def _attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}

    def _wait(self) -> None:
        """Programs run in the background. A step whose operations fail must do so before it counts as finished, and no
        other operation may overtake them."""
        with translated():
            jax.block_until_ready(list(_arrays_in(self._attributes())))

    def save(self) -> None:
        self._wait()
        super().save()

    def check_host_updates(self) -> None:
        self._wait()
        super().check_host_updates()

    def save_step(self) -> None:
        """Without copies: arrays do not change. They may be deleted, if a step donates them to the next."""
        self._wait()
        self._saved_step = _map(_kept, self._attributes())

    def restore_step(self) -> bool:
        if any(array.is_deleted() for array in _arrays_in(self._saved_step)):
            return False
        self._set_attributes(_map(_kept, self._saved_step))
        return True

    def sync(self) -> None:
        arrays: list[Any] = []

        def taken_out(leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array):
                return leaf
            arrays.append(leaf)
            return _Sent(leaf)

        skeleton = self._bcast_object(_map(taken_out, self._attributes()))
        if among := sync_set():
            if basics.rank() != sync_root():
                arrays = [leaf.blank() for leaf in _leaves(skeleton) if isinstance(leaf, _Sent)]
            with translated():
                arrays = jax.block_until_ready(collectives.broadcast_tree(arrays, sync_root(), among))
        received = iter(arrays)
        self._set_attributes(_map(lambda leaf: next(received) if isinstance(leaf, _Sent) else leaf, skeleton))
        if not self._is_saved:
            self.save()

    def reset(self) -> None:
        """Programs that have been compiled for another place in the job are compiled again, and begin anew."""
        ordering.forget_error()
        collectives.forget_place()


class _Sent:
    """Stands for an array within the pytrees while the array itself travels as such."""

    def __init__(self, array: jax.Array) -> None:
        self.is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        data = jax.random.key_data(array) if self.is_key else array
        self.shape, self.dtype = data.shape, data.dtype
        self.implementation = str(jax.random.key_impl(array)) if self.is_key else None

    def blank(self) -> jax.Array:
        """An array to receive it."""
        zeros = jnp.zeros(self.shape, self.dtype)
        return jax.random.wrap_key_data(zeros, impl=self.implementation) if self.is_key else zeros


def _is_opaque(node: Any) -> bool:
    """A dictionary whose keys JAX cannot sort: no pytree, but one of the other objects, with all that is in it."""
    if not isinstance(node, dict):
        return False
    try:
        sorted(node)
    except TypeError:
        return True
    return False


_map = functools.partial(jax.tree.map, is_leaf=_is_opaque)
_leaves = functools.partial(jax.tree.leaves, is_leaf=_is_opaque)


def _arrays_in(tree: Any) -> Iterator[jax.Array]:
    """Also those in dictionaries that are no pytrees: a step may have failed that was to compute them."""
    for leaf in _leaves(tree):
        if isinstance(leaf, jax.Array):
            yield leaf
        elif _is_opaque(leaf):
            yield from _arrays_in(list(leaf.values()))


def _kept(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) else copy.deepcopy(leaf)
