"""hvd's TensorFlow ops, out of libhvd_tensorflow.so, which finds the C API of the TensorFlow that is imported."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from hvd import _native

OLDEST, NEWEST = (2, 13), (2, 21)  # tried: the ops rely on what no interface of TensorFlow promises


def _check_version() -> None:
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if OLDEST <= version <= NEWEST or (version > NEWEST and os.environ.get("HVD_TENSORFLOW_UNTESTED") == "1"):
        return
    advice = "" if version < OLDEST else "; HVD_TENSORFLOW_UNTESTED=1 tries it, at your own risk"
    raise ImportError(
        f"hvd works with TensorFlow {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, but {tf.__version__} is "
        f"installed{advice}",
        name="tensorflow",
    )


def _load() -> Any:
    _check_version()
    path = str(Path(_native.__file__).with_name("libhvd_tensorflow.so"))
    loaded = tf.load_op_library(path)
    library = ctypes.CDLL(path)
    library.hvd_tensorflow_problem.restype = ctypes.c_char_p
    problem = library.hvd_tensorflow_problem().decode()
    if problem:
        raise ImportError(f"hvd's TensorFlow ops cannot be loaded: {problem}", name="tensorflow")
    return loaded


ops = _load()
