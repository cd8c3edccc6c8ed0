"""What a script sends around before its training: parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet
from mxnet.gluon.parameter import DeferredInitializationError, Parameter

from hvd import basics
from hvd.mxnet.collectives import broadcast_


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites parameters with the root's. All ranks must call it, with the same names.

    Args:
        params: `Block.collect_params()`, or a dictionary of parameters or arrays by name, as `Module.get_params()`
            returns two. A parameter whose shape is not known yet is broadcast once it is, when all ranks use it for the
            first time.
        root_rank: the rank whose values everybody gets.
        prefix: comes before the names, for parameters of several models that are called the same.

    Raises:
        ValueError: `params` is no dictionary, or hvd is not initialised.
        HorovodInternalError: the ranks disagree, or one was lost. MXNet raises it where the arrays are read.
    """
    if not hasattr(params, "items"):
        raise ValueError(
            f"params is a {type(params).__name__}: expected a dictionary, such as collect_params() returns"
        )
    if basics.size() == 1:
        return
    for name, parameter in sorted(params.items()):
        full_name = f"{prefix or ''}{name}"
        if not isinstance(parameter, Parameter):
            broadcast_(parameter, root_rank, full_name)
            continue
        try:
            arrays = parameter.list_data()
        except DeferredInitializationError:
            parameter._init_impl = _broadcast_after(parameter._init_impl, parameter, root_rank, full_name)
            continue
        _broadcast_all(arrays, root_rank, full_name)


def _broadcast_all(arrays: list[Any], root_rank: int, name: str) -> None:
    """A parameter has an array for each device of the process."""
    first, *others = arrays
    broadcast_(first, root_rank, name)
    for other in others:
        first.copyto(other)


def _broadcast_after(initialize: Callable[..., None], parameter: Any, root_rank: int, name: str) -> Callable[..., None]:
    """Once: a parameter that is initialised again later keeps the new values."""

    def initialize_and_broadcast(*args: Any, **kwargs: Any) -> None:
        parameter._init_impl = initialize
        initialize(*args, **kwargs)
        with mxnet.autograd.pause():
            _broadcast_all(parameter.list_data(), root_rank, name)

    return initialize_and_broadcast
