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


Description = tuple[Sequence[int], int]  # of a tensor: its shape and type code


def make_spec(
    collective: int,
    name: str | None,
    process_set: int,
    tensors: Sequence[Description],
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


def _make_of_one(
    collective: int, function: str, name: str | None, process_set: int, tensor: Description, *others: Any
) -> OperationSpec:
    return make_spec(collective, wire_name(function, name), process_set, (tensor,), *others)


def _make_of_group(collective: int, function: str, name: str | None, *others: Any) -> OperationSpec:
    return make_spec(collective, wire_name(function, name), *others)


# Those used least recently are dropped. There is room for the gradients of large models, one by one.
_remembered_of_one = functools.lru_cache(maxsize=8192)(_make_of_one)
_remembered_of_group = functools.lru_cache(maxsize=128)(_make_of_group)

# Equal keys must mean equal operations: 1, 1.0 and True are one key, as 0.0 and -0.0 are, and a factor may be an object
# that changes. So only what is exactly of its type is looked up, and no factor of 0. That is asked in both functions
# below, since a call of another one would be a thirtieth of a small operation.


def find_spec(
    collective: int,
    function: str,
    name: str | None,
    process_set: int,
    tensor: Description,
    op: int,
    root_rank: int,
    prescale_factor: float,
    postscale_factor: float,
    device: int,
) -> OperationSpec:
    """The spec that was made of the same arguments before, if it is still remembered, else a new one. `name`: as the
    user of `function` gave it, a str whose hash is known already. The shape must be hashable."""
    make: Callable[..., OperationSpec] = _make_of_one
    if (
        type(op) is type(root_rank) is int
        and type(prescale_factor) is type(postscale_factor) is float
        and (name is None or type(name) is str)
        and prescale_factor
        and postscale_factor
    ):
        make = _remembered_of_one
    pre, post = prescale_factor, postscale_factor
    return make(collective, function, name, process_set, tensor, op, root_rank, pre, post, device)


def find_group_spec(
    collective: int,
    function: str,
    name: str | None,
    process_set: int,
    tensors: tuple[Description, ...],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    device: int,
    output_rows: tuple[int, ...] | None = None,
) -> OperationSpec:
    """As find_spec, of a group of tensors."""
    make: Callable[..., OperationSpec] = _make_of_group
    if (
        type(op) is int
        and type(prescale_factor) is type(postscale_factor) is float
        and (name is None or type(name) is str)
        and prescale_factor
        and postscale_factor
    ):
        make = _remembered_of_group
    factors = prescale_factor, postscale_factor
    return make(collective, function, name, process_set, tensors, op, 0, *factors, device, None, output_rows)
