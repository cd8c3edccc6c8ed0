"""All names of `hvd.mxnet`, and what of it differs from Horovod's: `reducescatter` and its kin know Average and Sum
only. hvd has the other operations, too.
"""

from __future__ import annotations

from typing import NoReturn

import hvd.mxnet as _hvd
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.refusals import averages_and_sums_only as _averages_and_sums_only
from hvd.exceptions import HorovodInternalError as _HorovodInternalError
from hvd.mxnet import *  # noqa: F403
from hvd.reduce_op import resolve_op as handle_average_backwards_compatibility

__all__ = [*_hvd.__all__, "handle_average_backwards_compatibility"]

_basics = _HorovodBasics()
init = _basics.init


def _refuse(text: str) -> NoReturn:
    raise _HorovodInternalError(text)


reducescatter = _averages_and_sums_only(_hvd.reducescatter, _refuse)
grouped_reducescatter = _averages_and_sums_only(_hvd.grouped_reducescatter, _refuse)
