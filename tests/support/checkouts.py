"""Revisions of this repository, built and installed side by side, for tools that compare one with another.

build/versions/COMMIT/ holds a revision's sources and a virtual environment with its hvd. Both are kept: a revision is
built once. The environment sees the packages of the Python that runs the tool, after its own.
"""

from __future__ import annotations

import fcntl
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "build" / "versions"


@dataclass(frozen=True)
class Checkout:
    """An installed revision. The environment has bin/python, bin/hvdrun, include/hvd.h and lib/libhvd.so.0."""

    commit: str
    source: Path
    environment: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def hvdrun(self) -> Path:
        return self.environment / "bin" / "hvdrun"


def checkout(revision: str) -> Checkout:
    """The revision, built and installed; at most one process builds it. Exits if there is none; raises
    CalledProcessError if it cannot be built."""
    commit = commit_of(revision)
    folder = VERSIONS / commit
    folder.mkdir(parents=True, exist_ok=True)
    result = Checkout(commit, folder / "source", folder / "environment")
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            unpack(commit, result.source)
            make_environment(result.environment)
            install(result)
            (folder / "installed").touch()
    return result


def commit_of(revision: str) -> str:
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    named = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if named.returncode != 0:
        sys.exit(f"there is no revision {revision}")
    return named.stdout.strip()


def unpack(commit: str, source: Path) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    archive = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
    run("tar", "-x", cwd=source, stdin=archive.stdout)
    if archive.wait() != 0:
        raise subprocess.CalledProcessError(archive.returncode, archive.args)


def make_environment(environment: Path) -> None:
    venv.create(environment, clear=True, symlinks=True, with_pip=False)
    own = sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)})
    Path(own, "outer.pth").write_text("".join(f"{outer}\n" for outer in site.getsitepackages()))


def install(built: Checkout) -> None:
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    # With the options of setup.sh, so that ccache has what was compiled there.
    options += ("--config-settings", "cmake.define.HVD_WARNINGS_AS_ERRORS=ON")
    run(built.python, "-m", "pip", "install", *options, "--ignore-installed", ".", cwd=built.source)


def run(*command: str | Path, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], cwd=cwd, check=True, text=True, **options)
