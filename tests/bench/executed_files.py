"""How many files a reader has to open: the product's files whose code one gradient executes, by a coverage build.

    python3 tests/bench/executed_files.py main HEAD          two revisions, or any number of them
    python3 tests/bench/executed_files.py HEAD --list        and which files these are

A revision is compiled with --coverage and without optimisation in build/versions/COMMIT/coverage, and kept there; the
program (regression/one_gradient.cc) is this checkout's for all. Two jobs run, each with four ranks on two hosts:

    steady    from hvd_submit to the reduced tensor, while every step is negotiated (HVD_SCHEDULE_LOCK=0); init and
              shutdown are left out
    start     hvdrun -np 4 -H h1:2,h2:2, its agents, and the ranks' init and first operation

A file counts if one of its lines was executed by any process. The hosts are those of tests/support/netlab.sh, which
needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import checkouts  # noqa: E402

PRODUCT = ("include", "core", "ops", "parameters", "bindings", "launcher")
JOBS = {"steady": {"HVD_SCHEDULE_LOCK": "0"}, "start": {}}
PROGRAM = ROOT / "tests/bench/regression/one_gradient.cc"
LAB = ROOT / "tests/support/netlab.sh"


def build(commit: str) -> tuple[Path, Path]:
    """The revision's sources, and the folder with its coverage build."""
    folder = checkouts.VERSIONS / commit
    source, built = folder / "source", folder / "coverage"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        checkouts.unpack(commit, source)
    flags = ["-DCMAKE_CXX_FLAGS=--coverage -O0", "-DCMAKE_BUILD_TYPE=Debug", "-DHVD_UNITY_BUILD=OFF"]
    quietly("cmake", "-G", "Ninja", "-S", source, "-B", built, "-DHVD_BUILD_TESTS=OFF", *flags)
    quietly("cmake", "--build", built, "--target", "hvd", "hvdrun")
    # With the objects themselves instead of libhvd.so, whose counters only the library could reset.
    objects = sorted((built / "bindings/c").rglob("*.o"))
    archives = ["-Wl,--start-group", *sorted(built.rglob("*.a")), "-Wl,--end-group"]
    libraries = ["-lsodium", "-ldl", "-lpthread"]
    include = ["-I", source / "include"]
    quietly(
        "g++", "-std=c++20", "--coverage", *include, PROGRAM, *objects, *archives, *libraries, "-o", built / "program"
    )
    return source, built


def quietly(*command: object, environment: dict[str, str] | None = None) -> None:
    command = tuple(str(word) for word in command)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])}...\n{done.stdout[-4000:]}")


def executed(source: Path, built: Path, job: str) -> set[str]:
    """The product's files with executed lines in this job."""
    for counters in built.rglob("*.gcda"):
        counters.unlink()
    settings = [word for name, value in JOBS[job].items() for word in ("-x", f"{name}={value}")]
    environment = dict(os.environ)
    if job == "steady":  # the ranks' counters alone: libgcov writes all others elsewhere
        environment["GCOV_PREFIX"] = str(built / "launchers")
        settings += ["-x", "GCOV_PREFIX="]
    hvdrun = [built / "launcher/hvdrun", "--rsh", f"{LAB} on", "-np", 4, "-H", "h1:2,h2:2", *settings]
    quietly(LAB, 2, "none", *hvdrun, built / "program", job, environment=environment)
    files: set[str] = set()
    for counters in sorted(set(built.rglob("*.gcda")) - set((built / "launchers").rglob("*.gcda"))):
        report = subprocess.run(["gcov", "--json-format", "--stdout", counters], capture_output=True, check=True)
        for line in report.stdout.splitlines():
            for file in json.loads(line)["files"]:
                path = os.path.relpath(Path(built, file["file"]), source)
                if path.split("/")[0] in PRODUCT and any(line["count"] > 0 for line in file["lines"]):
                    files.add(path)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", metavar="REVISION", nargs="+")
    parser.add_argument("--list", action="store_true", help="name the files, too")
    options = parser.parse_args()
    first: dict[str, int] = {}
    for revision in options.revisions:
        source, built = build(checkouts.commit_of(revision))
        for job in JOBS:
            files = executed(source, built, job)
            share = f" ({100 * len(files) / first[job]:.0f} % of the first)" if job in first else ""
            first.setdefault(job, len(files))
            print(f"{revision}: {job}: {len(files)} files{share}", flush=True)
            if options.list:
                print("\n".join(f"  {path}" for path in sorted(files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
