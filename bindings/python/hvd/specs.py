"""Specs of operations, made once of what scripts give: checking and converting names, shapes and factors takes as long
as a small operation does. Shared by the packages whose tensors go through `hvd._native`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

from hvd import arguments
from hvd._native import OperationSpec
from hvd.reduce_op import Sum


def wire_name(function: str, name: str | None) -> str | None:
    """The name of an operation on the wire: functions do not share names. Scripts name operations by numbers, too."""
    return None if name is None else f"{function}.{name}"


Tensors = Sequence[tuple[Sequence[int], int]]  # shapes and type codes


def make_spec(
    collective: int,
    name: str | None,
    process_set: int,
    tensors: Tensors,
    op: int = Sum,
    root_rank: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    device: int = -1,
    splits: Sequence[int] | None = None,
    output_rows: Sequence[int] | None = None,
) -> OperationSpec:
    """A new spec. `name`: that on the wire, the same on every rank; None: operations are numbered.

    Raises:
        TypeError, ValueError: on what cannot be an argument, with a text that names it.
    """
    return OperationSpec(
        collective,
        None if name is None else arguments.operation_name(name),
        process_set,
        tensors,
        arguments.reduce_op(op),
        arguments.rank(root_rank, "root_rank"),
        arguments.factor(prescale_factor, "prescale_factor"),
        arguments.factor(postscale_factor, "postscale_factor"),
        splits,
        device,
        output_rows,
    )


def _make_named(collective: int, function: str, name: str | None, *others: Any) -> OperationSpec:
    return make_spec(collective, wire_name(function, name), *others)


# Those used least recently are dropped. There is room for the gradients of large models, one by one.
_of_one_tensor = functools.lru_cache(maxsize=8192)(_make_named)
_of_groups = functools.lru_cache(maxsize=128)(_make_named)


def find_spec(
    collective: int,
    function: str,
    name: str | None,
    process_set: int,
    tensors: tuple[tuple[tuple[int, ...], int], ...],
    op: int,
    root_rank: int,
    prescale_factor: float,
    postscale_factor: float,
    device: int,
    output_rows: tuple[int, ...] | None = None,
) -> OperationSpec:
    """The spec that was made of the same arguments before, if it is still remembered, else a new one. `name`: as the
    user of `function` gave it, a str whose hash is known already."""
    make: Callable[..., OperationSpec] = _make_named
    # Equal keys must mean equal operations: 1, 1.0 and True are one key, as 0.0 and -0.0 are, and a factor may be an
    # object that changes. So only what is exactly of its type is looked up, and no factor of 0.
    if (
        type(op) is type(root_rank) is int
        and type(prescale_factor) is type(postscale_factor) is float
        and (name is None or type(name) is str)
        and prescale_factor
        and postscale_factor
    ):
        make = _of_one_tensor if len(tensors) == 1 else _of_groups
    factors = prescale_factor, postscale_factor
    if output_rows is None:
        return make(collective, function, name, process_set, tensors, op, root_rank, *factors, device)
    return make(collective, function, name, process_set, tensors, op, root_rank, *factors, device, None, output_rows)
