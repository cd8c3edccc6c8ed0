"""hvd's handlers for JAX's foreign function interface, out of libhvd_jax.so."""

from __future__ import annotations

import ctypes
from pathlib import Path

import jax

from hvd import _native

OLDEST = (0, 6, 2)  # older ones do not differentiate a compiled function with collectives
TARGET = "hvd_collective"


def _check_version() -> None:
    if jax.__version_info__ < OLDEST:
        raise ImportError(
            f"hvd works with JAX {'.'.join(map(str, OLDEST))} and later, but {jax.__version__} is installed", name="jax"
        )


def _register() -> None:
    _check_version()
    library = ctypes.CDLL(str(Path(_native.__file__).with_name("libhvd_jax.so")))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.hvd_jax_collective), platform="cpu")
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.hvd_jax_collective_on_gpu), platform="CUDA")


_register()
