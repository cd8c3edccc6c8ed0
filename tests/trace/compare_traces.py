#!/usr/bin/env python3
"""Compares what two revisions make of the same random programs: outcomes, the bits of results, and decisions.

    tests/trace/compare_traces.py OLD [NEW] [--seeds 50]

Builds both revisions (tests/support/checkouts.py), compiles NEW's random_program against each, and runs every seed with
2, 3 and 4 ranks, over shared memory, over TCP, on two hosts of two ranks, with and without schedule locks. For each job
whose traces differ, the first lines that do are printed. Exit code 1: there were such jobs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from checkouts import Checkout, checkout
from traces import PLACES, TWO_HOSTS, Job, Traces, difference, run

LINES = 3  # of unexpected outcomes


def compile_program(built: Checkout, origin: Checkout) -> Path:
    """random_program of one revision for the hvd of another one, or the same."""
    program = built.environment.parent / f"random_program-{origin.commit[:12]}"
    library = built.environment / "lib"
    files = sorted((origin.source / "tests" / "trace").glob("*.cc"))
    options = ["-std=c++20", "-O1", "-ffp-contract=off", f"-I{origin.source}", f"-I{built.environment / 'include'}"]
    linked = [library / "libhvd.so.0", f"-Wl,-rpath,{library}"]
    subprocess.run(["g++", *options, *files, *linked, "-o", program], check=True)
    return program


def all_jobs(seeds: range, steps: int) -> Iterator[Job]:
    for seed in seeds:
        for ranks in (2, 3, 4):
            for place in PLACES:
                if place == TWO_HOSTS and ranks != 4:
                    continue
                for lock in (True, False):
                    yield Job(seed, ranks, place, lock, steps)


def report(job: Job, old: Traces, new: Traces) -> bool:
    """Prints where the traces differ, and outcomes that the program did not expect. False if there is neither."""
    problems = [difference(old, new), *old.unexpected[:LINES], *new.unexpected[:LINES]]
    found = [problem for problem in problems if problem]
    if found:
        print(f"{job}:", *found, sep="\n", flush=True)
    return bool(found)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares two revisions by the traces of random programs.")
    parser.add_argument("old", metavar="OLD", help="a revision of this repository")
    parser.add_argument("new", metavar="NEW", nargs="?", default="HEAD", help="another one; HEAD unless told")
    parser.add_argument("--seeds", type=int, default=50, help="how many programs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200, help="operations of a program")
    parser.add_argument("--jobs", type=int, default=2, help="run at a time")
    arguments = parser.parse_args()

    old, new = checkout(arguments.old), checkout(arguments.new)
    versions = [(built.hvdrun, compile_program(built, new)) for built in (old, new)]
    jobs = list(all_jobs(range(arguments.first_seed, arguments.first_seed + arguments.seeds), arguments.steps))
    differing = late = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for job, traces in zip(jobs, pool.map(lambda job: [run(job, *version) for version in versions], jobs)):
            differing += report(job, *traces)
            late += any(each.late for each in traces)
    print(f"{len(jobs)} jobs, {differing} differ; decisions of {late} were not compared: a rank was late")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
