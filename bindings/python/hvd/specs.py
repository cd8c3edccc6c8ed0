"""Specs of operations, made once of what scripts give: checking and converting names, shapes and factors takes as long
as a small operation does. Shared by the packages whose tensors go through `hvd._native`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Callable

from hvd import arguments
from hvd._native import OperationSpec
from hvd.reduce_op import Sum

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
    splits: Sequence[int] | None = None,
    device: int = -1,
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
    )


# Those used least recently are dropped. There is room for the gradients of large models, one by one.
_of_one_tensor = functools.lru_cache(maxsize=8192)(make_spec)
_of_groups = functools.lru_cache(maxsize=128)(make_spec)


def find_spec(
    collective: int,
    name: str | None,
    process_set: int,
    tensors: tuple[tuple[tuple[int, ...], int], ...],
    op: int,
    root_rank: int,
    prescale_factor: float,
    postscale_factor: float,
    device: int,
) -> OperationSpec:
    """The spec that was made of the same arguments before, if it is still remembered, else a new one."""
    make: Callable[..., OperationSpec] = make_spec
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
    return make(collective, name, process_set, tensors, op, root_rank, prescale_factor, postscale_factor, None, device)
