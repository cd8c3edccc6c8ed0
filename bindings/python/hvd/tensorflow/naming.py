"""The names by which operations of different ranks are matched."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from hvd.arguments import operation_name


def wire_name(collective: str, name: str | None, ignore_name_scope: bool = False) -> str:
    """Empty: hvd numbers the operation when it runs.

    In a graph, also without a name, it is one that the same program makes on every rank, whichever traces more often
    than the others: made of the names of the function and of the scope, and of how many there have been in them. The
    kernel adds by which calls the function was called in others (kernels.cc).
    """
    if tf.executing_eagerly():
        return "" if name is None else operation_name(f"{collective}.{name}")
    graph = tf.compat.v1.get_default_graph()
    wanted = collective if name is None else _normalised(name)
    if ignore_name_scope:
        with graph.name_scope(None):
            unique = graph.unique_name(wanted)
    else:
        unique = graph.unique_name(wanted)
    return f"{collective}.{unique}" if name is not None else f"{collective}.{_function_of(graph)}.{unique}"


def in_loop() -> bool:
    """Whether what is being traced is the body of a loop, or part of one."""
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        if any(kind.__name__ == "WhileBodyFuncGraph" for kind in type(graph).__mro__):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _normalised(name: str) -> str:
    """As TensorFlow's scopes allow it."""
    return re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", name)


def _function_of(graph: Any) -> str:
    """Without the numbers that TensorFlow puts into the names of loops' bodies, branches and backward passes, which
    depend on what else this rank has traced."""
    name: str = getattr(graph, "name", "graph")
    is_made_by_user = type(graph).__name__ == "FuncGraph" and not name.startswith("__")
    return name if is_made_by_user else re.sub(r"_\d+(?=_|$)", "", name)
