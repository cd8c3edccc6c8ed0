"""Where the parts of hvd lie that are not Python: programs, headers, the CMake package."""

from __future__ import annotations

import sys
from pathlib import Path

import hvd

# In lib/hvd, by the binary interface of the MPI that it serves.
MPI_PLUGINS = {
    "Open MPI": "libhvd_mpi_openmpi.so",
    "MPICH": "libhvd_mpi_mpich.so",
    "the MPI 5 standard": "libhvd_mpi_standard.so",
}


def find(path: str) -> Path:
    """A file of the installation, by its path below the prefix: bin/hvdrun, lib/cmake/hvd/hvdConfig.cmake."""
    package = Path(hvd.__file__).resolve().parent
    # pip install --target; <prefix>/lib/python3.x/site-packages/hvd; a prefix that Python does not live in.
    for prefix in (package.parent, (package / "../../../..").resolve(), Path(sys.prefix)):
        if (prefix / path).exists():
            return prefix / path
    raise FileNotFoundError(f"{Path(path).name} is not installed beside {package}")
