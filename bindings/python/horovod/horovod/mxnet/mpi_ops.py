"""All names of `hvd.mxnet`, and what of it differs from Horovod's:

- `reducescatter` and its kin know Average and Sum only. hvd has the other operations, too.
- Splits that `alltoall` cannot use raise an error that is MXNet's as well.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from mxnet.base import MXNetError as _MXNetError

import hvd.mxnet as _hvd
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.refusals import averages_and_sums_only as _averages_and_sums_only
from hvd.exceptions import HorovodInternalError as _HorovodInternalError
from hvd.mxnet import *  # noqa: F403
from hvd.reduce_op import resolve_op as handle_average_backwards_compatibility

__all__ = [*_hvd.__all__, "handle_average_backwards_compatibility"]

_basics = _HorovodBasics()
init = _basics.init


class ArgumentError(_MXNetError, ValueError):  # type: ignore[misc]
    """A wrong argument: a ValueError with hvd, an MXNetError with Horovod."""


def _refuse(text: str) -> NoReturn:
    raise _HorovodInternalError(text)


reducescatter = _averages_and_sums_only(_hvd.reducescatter, _refuse)
grouped_reducescatter = _averages_and_sums_only(_hvd.grouped_reducescatter, _refuse)


@functools.wraps(_hvd.alltoall)  # type: ignore[no-redef]
def alltoall(*args: Any, **kwargs: Any) -> Any:
    try:
        return _hvd.alltoall(*args, **kwargs)
    except _HorovodInternalError:
        raise
    except ValueError as error:
        raise ArgumentError(str(error)) from None
