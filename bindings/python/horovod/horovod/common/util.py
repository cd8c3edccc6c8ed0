"""What scripts and test suites ask of an installation, and some of Horovod's small tools."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from hvd import basics
from hvd.exceptions import *  # noqa: F403

T = TypeVar("T")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a framework ("torch", "tensorflow", "mxnet") and hvd's package for it are installed."""
    available = all(_is_installed(name) for name in (ext_base_name, f"hvd.{ext_base_name}"))
    if verbose:
        print(f"{ext_base_name}: {'available' if available else 'not available'}")
    return available


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """ImportError unless hvd has a package for the framework at the end of the name, "horovod.torch" for instance."""
    framework = ext_name.split(".")[1] if "." in ext_name else ext_name
    if not extension_available(framework):
        raise ImportError(f"{ext_name} cannot be used: {framework} is not installed, or hvd has no package for it")


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Nothing to check: hvd is compiled against no framework."""


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework sees a GPU."""
    if not extension_available(ext_base_name, verbose):
        return False
    if ext_base_name == "torch":
        return bool(importlib.import_module("torch").cuda.is_available())
    if ext_base_name == "mxnet":
        return bool(importlib.import_module("mxnet").context.num_gpus())
    return bool(importlib.import_module(ext_base_name).config.list_physical_devices("GPU"))


def mpi_built(verbose: bool = False) -> bool:
    """See `hvd.mpi_built`."""
    return basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """See `hvd.gloo_built`."""
    return basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """Whether NCCL is found. PyTorch is imported first, since it may bring a copy of NCCL along."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
    return basics.nccl_built() > 0


def ddl_built(verbose: bool = False) -> bool:
    """See `hvd.ddl_built`."""
    return basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """See `hvd.ccl_built`."""
    return basics.ccl_built()


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets environment variables for the time of a `with` block; None takes one away."""
    before = dict(os.environ)
    for name, value in kwargs.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def split_list(values: Sequence[T], num_parts: int) -> list[Sequence[T]]:
    """A sequence in so many parts, each with as many items as the next or one more."""
    size, longer = divmod(len(values), num_parts)
    starts = [part * size + min(part, longer) for part in range(num_parts + 1)]
    return [values[first:end] for first, end in zip(starts, starts[1:])]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether a version such as "2.13.0+cpu" is at least a target such as "2.1.0".

    Raises:
        ValueError: the target is not three numbers.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", target):
        raise ValueError(f"the version to compare with, {target!r}, must be three numbers: 1.2.3")
    return _numbers(ver) >= _numbers(target)


def _numbers(version: str) -> list[int]:
    """The first three; letters end them, as in 1.2rc1."""
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    return [int(number or 0) for number in found.groups()] if found else [0, 0, 0]


def _cache(function: Callable[[], Any]) -> Callable[[], Any]:
    """Has a function without arguments called once."""
    return functools.lru_cache(maxsize=None)(function)
