"""What a run of the tests came to: where its time went, what failed, and "N passed, N failed, N skipped" at the end.

RESULTS holds steps.json (written by steps.py) and a JUnit file for each step that ran test cases. A "tests" step counts
its cases, a "check" step counts as one test, a "build" step counts only if it fails. A step that ended badly without a
failed case (it crashed, it wrote no file), or that was not run since what it needs had failed, counts as one failure.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SLOWEST = 20
FIRST_LINES, LAST_LINES, WIDTH = 4, 12, 300  # of why a case failed


def read_cases(junit: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def name_of(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '')}: {case.get('name', '')}"


def reason_of(case: ElementTree.Element, failure: ElementTree.Element) -> list[str]:
    """How its message begins and ends; where it has none, as of ctest, what the case wrote."""
    lines = (failure.get("message") or case.findtext("system-out") or "").strip().splitlines()
    if len(lines) > FIRST_LINES + LAST_LINES:
        lines[FIRST_LINES:-LAST_LINES] = ["..."]
    return ["    " + line[:WIDTH] for line in lines]


def count_cases(cases: list[ElementTree.Element]) -> tuple[int, list[str], int]:
    """(passed, names of failed with the reasons below, skipped)."""
    passed, failed, skipped = 0, [], 0
    for case in cases:
        failure = next((each for each in case if each.tag in {"failure", "error"}), None)
        if failure is not None:
            failed.append("\n".join([name_of(case), *reason_of(case, failure)]))
        elif case.find("skipped") is not None or case.get("status") in {"notrun", "disabled"}:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def count_step(step: dict, cases: list[ElementTree.Element]) -> tuple[int, list[str], int]:
    """As count_cases(), of one step."""
    code, title = step["code"], step["title"]
    if code is None:
        return 0, [f"{title}: not run"], 0
    if step["kind"] != "tests":
        return int(step["kind"] == "check" and code == 0), [title] if code != 0 else [], 0
    passed, failed, skipped = count_cases(cases)
    if code != 0 and not failed:
        failed = [f"ended with exit code {code}"]
    return passed, [f"{title}: {name}" for name in failed], skipped


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def rows(table: list[list[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first is text, the others are numbers."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def time_row(step: dict, cpus: int) -> list[str]:
    """Compiling and linking are shares of the CPU time: ninja's own times are those of compilers side by side."""
    wall, cpu, made = step["wall_s"], step["cpu_s"], step["compile_s"] + step["link_s"]
    compiling = cpu * step["compile_s"] / made if made > 0 else 0
    linking = cpu * step["link_s"] / made if made > 0 else 0
    running = 0 if step["kind"] == "build" else cpu
    parts = [minutes(part) if part > 0 else "-" for part in (compiling, linking, running)]
    return [step["title"], minutes(wall), minutes(cpu), *parts, share(max(0.0, cpus * wall - cpu), cpus * wall)]


def time_table(record: dict, tests: int) -> list[str]:
    """What each step took; "idle" is what it left of the CPUs, to the step beside it or to nobody."""
    cpus, wall = record["cpus"], record["wall_s"]
    ran = [step for step in record["steps"] if step["code"] is not None]
    table = [["step", "wall", "CPU", "compile", "link", "run", "idle"], *(time_row(step, cpus) for step in ran)]
    used, there = sum(step["cpu_s"] for step in ran), cpus * wall
    total = f"{minutes(wall)} in all, {minutes(used)} of CPU used of the {minutes(there)} of {cpus} CPUs"
    return [*rows(table), f"{total}: {share(used, there)}; {tests} tests"]


def cpu_of(case: ElementTree.Element) -> str:
    """In a column; ctest does not say it."""
    found = case.find("properties/property[@name='cpu_s']")
    return f"{float(found.get('value', 0)):6.1f} s of CPU" if found is not None else ""


def slowest_tests(cases: list[tuple[str, ElementTree.Element]]) -> list[str]:
    timed = sorted(((float(case.get("time") or 0), title, case) for title, case in cases), key=lambda row: -row[0])
    return [f"{took:7.1f} s {cpu_of(case):15}  {title}: {name_of(case)}" for took, title, case in timed[:SLOWEST]]


def report(results: Path) -> int:
    """Prints it, keeps the times in RESULTS/times.txt, and returns the exit code of the whole run."""
    record = json.loads((results / "steps.json").read_text())
    passed, failed, skipped = 0, [], 0
    all_cases = []
    for step in record["steps"]:
        cases = read_cases(results / f"{step['name']}.xml")
        all_cases += [(step["title"], case) for case in cases]
        more_passed, more_failed, more_skipped = count_step(step, cases)
        passed, failed, skipped = passed + more_passed, failed + more_failed, skipped + more_skipped
    times = ["==> where the time went", *time_table(record, passed + len(failed) + skipped)]
    times += [f"==> the {SLOWEST} slowest tests", *slowest_tests(all_cases)]
    (results / "times.txt").write_text("\n".join(times) + "\n")
    print("\n".join(times))
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if failed else 0
