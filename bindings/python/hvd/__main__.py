"""`python -m hvd`: where the C++ package lies, which environment variables there are, which version this is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import hvd
from hvd import _native


def cmake_dir() -> Path:
    """The directory for CMAKE_PREFIX_PATH or hvd_DIR that holds hvdConfig.cmake."""
    package = Path(hvd.__file__).resolve().parent
    # <prefix>/lib/python3.x/site-packages/hvd; pip install --target; a prefix that Python does not live in.
    for lib in (package.parents[2], package.parent / "lib", Path(sys.prefix) / "lib"):
        if (lib / "cmake" / "hvd" / "hvdConfig.cmake").exists():
            return lib / "cmake" / "hvd"
    raise FileNotFoundError(f"hvdConfig.cmake is not installed beside {package}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hvd", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--cmake-dir", action="store_true", help="print the directory of the CMake package")
    which.add_argument("--environment", action="store_true", help="print all HVD_* variables, as Markdown")
    which.add_argument("--version", action="version", version=hvd.__version__)
    options = parser.parse_args()
    if options.environment:
        print(_native.environment_documentation(), end="")
        return 0
    try:
        print(cmake_dir())
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
