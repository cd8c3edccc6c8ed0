"""A version of hvd: a revision of this repository, cloned, built and installed apart from all others.

What measures it is compiled against that installation, from the sources of the checkout that this file belongs to.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from comparison.preparation import ROOT, run

VERSIONS = ROOT / "build/versions"
PROGRAMS = Path(__file__).parent  # CMakeLists.txt


@dataclass(frozen=True)
class Version:
    """build/versions/COMMIT has its sources, its environment, and the programs that measure it."""

    name: str  # of the contender: old, new
    commit: str

    @property
    def folder(self) -> Path:
        return VERSIONS / self.commit

    def installed(self, program: str) -> str:
        """python, hvdrun, hvd"""
        return str(self.folder / "environment/bin" / program)

    def measuring(self, program: str) -> str:
        return str(self.folder / "programs" / program)


def find_version(name: str, revision: str) -> Version:
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        sys.exit(f"versions: there is no revision {revision}")
    return Version(name, found.stdout.strip())


def build(version: Version) -> None:
    """Installs what is not installed yet. Measuring programs are always brought up to date."""
    finished = version.folder / "installed"
    if not finished.exists():
        clone(version)
        install(version)
        finished.touch()
    programs = str(version.folder / "programs")
    environment = str(version.folder / "environment")
    run("cmake", "-S", str(PROGRAMS), "-B", programs, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={environment}", quiet=True)
    run("cmake", "--build", programs, quiet=True)


def clone(version: Version) -> None:
    sources = version.folder / "sources"
    if not sources.exists():
        run("git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(sources))
    run("git", "-C", str(sources), "checkout", "--quiet", "--detach", version.commit)


def install(version: Version) -> None:
    """Into an environment that has the packages of this one as well, behind its own."""
    environment = version.folder / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    outer = sysconfig.get_path("purelib")
    inner = sysconfig.get_path("purelib", "posix_prefix", vars={"base": str(environment)})
    Path(inner, "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--disable-pip-version-check"]
    # With the options of setup.sh, so that ccache has what was compiled there.
    options += ["--config-settings", "cmake.define.HVD_WARNINGS_AS_ERRORS=ON"]
    python = version.installed("python")
    run(python, "-m", "pip", "install", *options, str(version.folder / "sources"), quiet=True)
    run(python, "-c", f"import hvd.torch; assert hvd.__file__.startswith({str(environment)!r}), hvd.__file__")
