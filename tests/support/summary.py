#!/usr/bin/env python3
"""Adds up what tests/run.sh has run: prints what failed, then "N passed, N failed, N skipped" as the last line.

Usage: summary.py RESULTS    RESULTS/steps.tsv has a line for each step: kind, exit code, title, JUnit file.
A "tests" step counts the test cases of its JUnit file, a "check" step counts as one test, a "build" step counts only
if it fails. A tests step that ended badly without a failed case (it crashed, it wrote no file) counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_cases(junit):
    """(passed, names of failed, skipped) of a JUnit file; zeros if there is none."""
    try:
        cases = list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return 0, [], 0
    passed, failed, skipped = 0, [], 0
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname', '')}: {case.get('name', '')}")
        elif case.find("skipped") is not None or case.get("status") in {"notrun", "disabled"}:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def count_step(kind, code, title, junit):
    """(passed, names of failed, skipped) of one step."""
    if kind != "tests":
        return int(kind == "check" and code == 0), [title] if code != 0 else [], 0
    passed, failed, skipped = count_cases(junit)
    if code != 0 and not failed:
        failed = [f"ended with exit code {code}"]
    return passed, [f"{title}: {name}" for name in failed], skipped


def main():
    results = pathlib.Path(sys.argv[1])
    passed, failed, skipped = 0, [], 0
    for line in (results / "steps.tsv").read_text().splitlines():
        kind, code, title, junit = line.split("\t")
        more_passed, more_failed, more_skipped = count_step(kind, int(code), title, junit)
        passed, failed, skipped = passed + more_passed, failed + more_failed, skipped + more_skipped
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
