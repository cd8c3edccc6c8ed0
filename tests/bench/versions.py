"""Two versions of hvd, built and measured by turns: whether the new one is as fast as the old one.

    python3 tests/bench/versions.py main             the revision main beside HEAD: an hour
    python3 tests/bench/versions.py HEAD~3 HEAD~1    any two of them
    python3 tests/bench/versions.py HEAD~1 --only 'np=2*from C++*'
    python3 tests/bench/versions.py HEAD~1 --quick   whether it works

Each version is cloned, built and installed in build/versions/COMMIT, and kept there. The programs that measure are this
checkout's for both, compiled against each, and use the public interfaces only, so internals may differ. Other Python
packages come from .venv, which .ci/setup.sh makes, or else from the Python that runs this. Cases between hosts run in
tests/support/netlab.sh, which needs root, as counting system calls does; counting instructions needs valgrind.
Everything runs on two cores.

Every case is launched several times: old, new, old, new, and so on; each launch checks every result. The new version
must be within the limit of each row: times and system calls by medians within 3 %, instructions within 2 %. The exit
code is 1 if a row is not, or if a launch failed. What the machine cannot measure is named, and is no failure.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import sys

from comparison import preparation
from regression.cases import CASES, NEW, OLD


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", nargs="?", help="a revision of this repository")
    parser.add_argument("new", metavar="NEW", nargs="?", default="HEAD", help="another one (default: %(default)s)")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="cases whose name matches, as a shell would")
    parser.add_argument("--launches", type=int, metavar="N", help="of each version (default: 5, with --quick 2)")
    parser.add_argument("--quick", action="store_true", help="short launches: numbers that mean little")
    parser.add_argument("--list", action="store_true", help="print the cases, and measure nothing")
    parser.add_argument("--json", metavar="FILE", help="write all samples, rows and conditions")
    options = parser.parse_args()
    if options.old is None and not options.list:
        parser.error("OLD: which revision to compare with")
    return options


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without ending what was launched
    options = parse()
    cases = [case for case in CASES if fnmatch.fnmatchcase(case.name, options.only)]
    if not cases:
        sys.exit(f"versions: no case matches {options.only}; --list shows them all")
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    if preparation.PYTHON.exists():
        preparation.continue_in_environment()

    from comparison import launching, machine, report
    from regression import launches, verdict, versions

    found = {name: versions.build(name, revision) for name, revision in ((OLD, options.old), (NEW, options.new))}
    os.sched_setaffinity(0, machine.two_cores())
    count = options.launches or (2 if options.quick else 5)
    seconds = 0.05 if options.quick else 0.3
    conditions = {**machine.conditions(), "launches": count}
    conditions["versions"]["hvd"] = ", ".join(
        f"{name} {version.checkout.commit[:10]}" for name, version in found.items()
    )
    samples, absent, failures = launching.by_turns(
        cases, count, lambda case, name, launch: launches.measure(case, found[name], launch, seconds)
    )

    rows = verdict.rows(samples, cases)
    print("", *report.describe(conditions), "", verdict.table(rows), "", sep="\n")
    print(verdict.summary(rows, len(absent), len(failures)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(verdict.as_json(conditions, samples, rows, absent), file, indent=1)
    return 1 if failures or any(row.verdict != verdict.WITHIN for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
