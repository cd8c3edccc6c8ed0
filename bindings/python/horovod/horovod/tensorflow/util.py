"""Small tools that scripts take from Horovod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Any:
    """The function as a graph."""
    return tf.function(function)


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function called once for the same arguments, in eager mode, and once in graphs."""
    results: dict[tuple[Any, ...], Any] = {}

    def remembering(*args: Any) -> Any:
        key = (_executing_eagerly(), *args)
        if key not in results:
            results[key] = function(*args)
        return results[key]

    return remembering


class _Reference:
    """Stands for a variable in sets and as a key, which variables, equal by value, cannot be."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    def deref(self) -> Any:
        return self._variable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reference) and other._variable is self._variable

    def __hash__(self) -> int:
        return id(self._variable)


def vars_to_refs(vars: Any) -> Any:
    """A variable's reference, which can be hashed; of a list of variables, or of lists, a tuple of references."""
    return tuple(vars_to_refs(each) for each in vars) if isinstance(vars, list) else _Reference(vars)


def refs_to_vars(refs: Any) -> Any:
    """What vars_to_refs() was given."""
    return [refs_to_vars(each) for each in refs] if isinstance(refs, tuple) else refs.deref()
