"""The variables by which PyTorch's launcher tells a process its place (RANK, WORLD_SIZE, MASTER_ADDR, ...), which
PyTorch and what is built on it read. hvdrun sets them for its ranks; under MPI's launchers and srun, which do not, and
in elastic jobs, where they change with each epoch, `init()` does.

HVD_TORCH_VARIABLES holds what hvd has set, so that nobody takes it for torchrun's.
"""

from __future__ import annotations

import ctypes
import os
import socket

from hvd import _native

IDENTITY = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
MASTER = ("MASTER_ADDR", "MASTER_PORT")
_OURS = "HVD_TORCH_VARIABLES"
_LAUNCHERS = ("open_mpi", "mpich", "slurm")
_SIZES_OF_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LONGEST_MASTER = 512  # bytes: a host's name and a port

_set_here = False  # by this process, not by hvdrun
_reserved: socket.socket | None = None  # rank 0's


def ours() -> dict[str, str]:
    """Those that hvdrun or `set_absent` has set, and nobody has changed since."""
    entries = (entry.partition("=") for entry in os.environ.get(_OURS, "").split())
    return {name: value for name, _, value in entries if os.environ.get(name) == value}


def is_for(launcher: str) -> bool:
    """Whether `init()` is to set them in a job that this launcher has started ("none": a job of one, whoever has)."""
    is_elastic = launcher == "hvdrun" and "HVD_PROCESS" in os.environ
    return (
        launcher in _LAUNCHERS
        or is_elastic
        or (launcher == "none" and any(name in os.environ for name in _SIZES_OF_LAUNCHERS))
    )


def set_place() -> None:
    """Sets those that are not set, of this process's own place: that which a newcomer expects that stands by."""
    _set({})


def set_absent() -> None:
    """Sets those that are not set, in a job that has been joined. All ranks call: they agree on rank 0's port, which is
    reserved until rank 0 has a server listen there, or `unset()`."""
    address, port = _agree_on_master()
    _set({"MASTER_ADDR": address, "MASTER_PORT": port})


def _set(master: dict[str, str]) -> None:
    global _set_here
    place = (_native.rank(), _native.size(), _native.local_rank(), _native.local_size(), _native.cross_rank())
    values = dict(zip(IDENTITY, map(str, place))) | master
    absent = {name: value for name, value in values.items() if not os.environ.get(name)}
    os.environ.update(absent)
    os.environ[_OURS] = " ".join(f"{name}={value}" for name, value in absent.items())
    _set_here = True


def unset() -> None:
    """Takes back what `set_absent` has set."""
    global _set_here, _reserved
    if _set_here:
        for name in ours():
            del os.environ[name]
        os.environ.pop(_OURS, None)
        _set_here = False
    if _reserved is not None:
        _reserved.close()
        _reserved = None


def _agree_on_master() -> tuple[str, str]:
    word = ctypes.create_string_buffer(_LONGEST_MASTER)
    if _native.rank() == 0:
        word.value = " ".join(_own_master()).encode()
    addresses = (ctypes.addressof(word),)
    tensors = [((_LONGEST_MASTER,), _native.UINT8)]
    spec = _native.OperationSpec(_native.BROADCAST, "hvd.torch_variables", 0, tensors)
    _native.submit(spec, addresses, addresses, word).wait()
    address, _, port = word.value.decode().partition(" ")
    return address, port


def _own_master() -> tuple[str, str]:
    """What is set, on rank 0; else where other ranks reach it, and a port of this host that nobody is given by chance:
    bound, and not listened at, it is passed over by the kernel, and goes to whoever asks for it with SO_REUSEADDR."""
    global _reserved
    address = os.environ.get("MASTER_ADDR") or local_address()
    port = os.environ.get("MASTER_PORT")
    if not port:
        _reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        _reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.bind(("", 0))
        port = str(_reserved.getsockname()[1])
    return address, port


def local_address() -> str:
    """Where other ranks reach this one."""
    if _native.local_size() == _native.size():
        return "127.0.0.1"
    if os.environ.get("HVD_ADDRESS"):
        return os.environ["HVD_ADDRESS"]
    return socket.getfqdn()
