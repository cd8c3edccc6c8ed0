"""A version of hvd that is measured: a revision, built and installed apart from all others.

What measures it is compiled against that installation, from the sources of the checkout that this file belongs to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from comparison.preparation import ROOT, run

sys.path.insert(0, str(ROOT / "tests/support"))

from checkouts import Checkout, checkout

PROGRAMS = Path(__file__).parent  # CMakeLists.txt


@dataclass(frozen=True)
class Version:
    name: str  # of the contender: old, new
    checkout: Checkout

    @property
    def programs(self) -> Path:
        return self.checkout.environment.parent / "programs"

    def installed(self, program: str) -> str:
        """python, hvdrun, hvd"""
        return str(self.checkout.environment / "bin" / program)

    def measuring(self, program: str) -> str:
        return str(self.programs / program)


def build(name: str, revision: str) -> Version:
    """Installs what is not installed yet. Measuring programs are always brought up to date."""
    print(f"==> building {name}: {revision}", flush=True)
    version = Version(name, checkout(revision))
    prefix = f"-DCMAKE_PREFIX_PATH={version.checkout.environment}"
    run("cmake", "-S", str(PROGRAMS), "-B", str(version.programs), "-G", "Ninja", prefix, quiet=True)
    run("cmake", "--build", str(version.programs), quiet=True)
    return version
