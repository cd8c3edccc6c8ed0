"""All names of `hvd.torch`, and what of it differs from Horovod's:

- `reducescatter` and its kin know Average and Sum only. hvd has the other operations, too.
- While ranks have joined, other collectives than allreduce fail (HVD_JOIN_SCOPE); in hvd those go on that can.
- `join` may be told a device, which hvd has no use for.
- `broadcast_optimizer_state` leaves gradients of zeros where it has made state (`horovod.torch.functions`).
"""

from __future__ import annotations

from typing import NoReturn, cast

import hvd.torch as _hvd
from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.refusals import averages_and_sums_only as _averages_and_sums_only
from horovod.torch import functions as _functions
from hvd import _native
from hvd.exceptions import HorovodInternalError as _HorovodInternalError
from hvd.handles import register as _register
from hvd.torch import *  # noqa: F403

__all__ = list(_hvd.__all__)

_basics = _HorovodBasics()
init = _basics.init
broadcast_optimizer_state = _functions.broadcast_optimizer_state


class _Refused:
    """Stands for an operation that was not started. Waiting for it fails."""

    def __init__(self, text: str) -> None:
        self.text = text

    def poll(self) -> bool:
        return True

    def wait(self) -> NoReturn:
        raise _HorovodInternalError(self.text)


def _refuse(text: str) -> NoReturn:
    _Refused(text).wait()


def _refuse_later(text: str) -> int:
    return _register(cast(_native.Work, _Refused(text)), lambda work: work.wait(), lambda _: None)


reducescatter = _averages_and_sums_only(_hvd.reducescatter, _refuse)
reducescatter_async = _averages_and_sums_only(_hvd.reducescatter_async, _refuse_later)
grouped_reducescatter = _averages_and_sums_only(_hvd.grouped_reducescatter, _refuse)
grouped_reducescatter_async = _averages_and_sums_only(_hvd.grouped_reducescatter_async, _refuse_later)


def join(device: int = -1) -> int:  # type: ignore[no-redef]
    """As `hvd.torch.join`: a rank takes part in what GPUs do with the GPU of its own tensors, whatever `device` is."""
    return _hvd.join()
