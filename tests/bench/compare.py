"""hvd beside its peers: the same work, by turns, in several process launches, and whether hvd is as fast as it must be.

    python3 tests/bench/compare.py                   everything: about an hour
    python3 tests/bench/compare.py --only 'np=2*'    some cases
    python3 tests/bench/compare.py --quick           whether it works

The peers are Open MPI (with its own settings and with its best ones), gloo through torch.distributed, and Horovod
where it is installed. What is missing on the machine is installed and built first, as by tests/run.sh. Cases between
hosts run in tests/support/netlab.sh, which needs root. Everything runs on two cores.

Every case is launched several times: hvd, peer, hvd, peer, and so on; each launch measures all sizes of the case,
checks every result, and ends. comparison/gates.py has the gates, comparison/cases.py what is measured.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import sys

from comparison import preparation
from comparison.cases import CASES, HOROVOD, Case, format_size
from comparison.gates import GATES


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="*", help="cases whose name matches, as a shell would")
    parser.add_argument("--launches", type=int, metavar="N", help="of each contender (default: 5, with --quick 2)")
    parser.add_argument("--quick", action="store_true", help="short launches: numbers that mean little")
    parser.add_argument("--list", action="store_true", help="print the cases and gates, and measure nothing")
    parser.add_argument("--json", metavar="FILE", help="write all samples, rows and conditions")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as docs/performance.md has it")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios")
    return parser.parse_args()


def list_cases(cases: list[Case]) -> None:
    for case in cases:
        print(f"{case.name}: {', '.join(case.contenders)}; {', '.join(map(format_size, case.sizes))}")
        for gate in GATES:
            if case.name in gate.cases:
                what = f"at least {gate.ratio:g} beside {' and '.join(gate.peers)}"
                where = ", ".join(map(format_size, gate.sizes))
                kind = f" on a machine {gate.machine}" if gate.machine else ""
                print(f"    {what} at {where}{kind}{', as a geometric mean' if gate.mean else ''}")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without ending what was launched
    options = parse()
    cases = [case for case in CASES if fnmatch.fnmatchcase(case.name, options.only)]
    if not cases:
        sys.exit(f"compare: no case matches {options.only}; --list shows them all")
    if options.list:
        list_cases(cases)
        return 0
    preparation.prepare()
    preparation.continue_in_environment()

    from comparison import launching, machine, report, rows

    os.sched_setaffinity(0, machine.two_cores())
    launches = options.launches or (2 if options.quick else 5)
    conditions = {**machine.conditions(), "launches": launches}
    if conditions["versions"]["Horovod"] is None:
        cases = [case for case in cases if HOROVOD not in case.contenders]
    seconds = 0.05 if options.quick else 0.3
    samples, absent, failures = launching.by_turns(
        cases, launches, lambda case, contender, launch: launching.measure(case, contender, launch, seconds)
    )

    found = rows.rows(samples)
    kind = rows.machine_kind(samples)
    explanation = report.explain(conditions, kind)
    print(f"\n{explanation}\n\n{report.table(found)}\n\n{report.summary(found, rows.not_measured(GATES, found, kind))}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report.as_json(conditions, samples, found, absent), file, indent=1)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(report.markdown(found) + "\n")
    if options.plot:
        from comparison import plot

        plot.draw(found, options.plot, explanation.splitlines()[0])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
