"""libhvd_mxnet.so, connected with the C API of the MXNet that is imported."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import mxnet
from mxnet.base import _LIB, check_call
from mxnet.error import register

from hvd import _native
from hvd.exceptions import HorovodInternalError

VERSION = "1.9"  # tried: the operations rely on what the engine's interface does not promise

_ERROR = HorovodInternalError.__name__  # messages that begin with it are raised as such

# CApi of bindings/mxnet/c_api.h.
_FUNCTIONS = ("MXEnginePushAsyncND", "MXNDArrayDetach", "MXNDArrayFree", "MXNDArrayToDLPack", "MXGetLastError")


def _check_version() -> None:
    if not mxnet.__version__.startswith(f"{VERSION}."):
        raise ImportError(f"hvd works with MXNet {VERSION}, but {mxnet.__version__} is installed", name="mxnet")


_check_version()
_library = ctypes.CDLL(str(Path(_native.__file__).with_name("libhvd_mxnet.so")))


def connect(stand_ins: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Gives the library MXNet's functions, or those that stand in for them in a test."""
    functions = [stand_ins.get(name) or getattr(_LIB, name) for name in _FUNCTIONS]
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    _library.hvd_mxnet_connect((ctypes.c_void_p * len(addresses))(*addresses))


def _load() -> Any:
    connect()
    push = _library.hvd_mxnet_push
    integer, factor = ctypes.c_int32, ctypes.c_double
    operation = (integer, integer, ctypes.c_char_p, integer, integer, factor, factor, integer)
    push.argtypes = (*operation, ctypes.c_void_p, integer)
    register(_ERROR, lambda message: HorovodInternalError(message[len(_ERROR) + 2 :]))
    return push


_push = _load()


def push(
    collective: int,
    process_set: int,
    name: str,
    arrays: Sequence[Any],
    op: int = 1,
    root_rank: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> None:
    """Pushes an operation that changes these arrays into MXNet's engine, and returns at once. `name`: on the wire."""
    handles = (ctypes.c_void_p * len(arrays))(*(array.handle.value for array in arrays))
    place = collective, process_set, name.encode()
    check_call(_push(*place, op, root_rank, prescale_factor, postscale_factor, priority, handles, len(arrays)))
