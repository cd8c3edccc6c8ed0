"""The steps of a test run: which of them start when, and what a run comes to."""

import json
import os
import subprocess
import sys

import pytest

import summary
from steps import Step, made_since, next_steps, read_ninja_log, run

pytestmark = pytest.mark.quick


def step(name, kind="check", needs=(), busy=False, command=("true",)):
    return Step(name, kind, f"the step {name}", list(command), list(needs), busy)


BUILD = step("build", "build", busy=True)
TESTS = step("tests", "tests", needs=["build"])
LINT = step("lint", busy=True)
LIBRARY, EXAMPLE, FUZZER = step("library"), step("example"), step("fuzzer")
BENCHMARK = Step("bench", "check", "a benchmark", ["true"], alone=True)


@pytest.mark.parametrize(
    "waiting, running, succeeded, started",
    [
        ([BUILD, TESTS, LINT], [], set(), [BUILD]),
        ([BUILD, TESTS, LINT, LIBRARY, EXAMPLE, FUZZER], [], set(), [BUILD, LIBRARY, EXAMPLE]),
        ([TESTS, LINT], [], {"build"}, [TESTS, LINT]),
        ([LINT], [BUILD], set(), []),
        ([EXAMPLE, FUZZER], [BUILD, LIBRARY], set(), [EXAMPLE]),
        ([FUZZER], [BUILD, LIBRARY, EXAMPLE], set(), []),
        ([TESTS], [], set(), []),
        ([BENCHMARK, LIBRARY], [], set(), [BENCHMARK]),
        ([BENCHMARK, LIBRARY], [LINT], set(), [LIBRARY]),
        ([LIBRARY], [BENCHMARK], set(), []),
    ],
)
def test_which_steps_start(waiting, running, succeeded, started):
    assert next_steps(waiting, running, succeeded) == started


def test_what_ninja_has_made(tmp_path):
    log = tmp_path / ".ninja_log"
    log.write_text("# ninja log v5\n0\t1500\t7\ta.cc.o\t1\n")
    before = read_ninja_log(log)
    log.write_text(log.read_text() + "0\t2000\t8\ta.cc.o\t2\n2000\t2500\t9\tlibhvd.so\t3\n")
    assert made_since(before, read_ninja_log(log)) == (2.0, 0.5)
    assert read_ninja_log(tmp_path / "absent") == {}


CASE = '<testcase classname="a" name="{}" time="{}">{}</testcase>'


@pytest.mark.parametrize(
    "steps, last",
    [
        ([step("one"), step("two")], "2 passed, 0 failed, 0 skipped"),
        ([step("one", command=["false"]), step("two", needs=["one"])], "0 passed, 2 failed, 0 skipped"),
        ([step("build", "build")], "0 passed, 0 failed, 0 skipped"),
        ([step("build", "build", command=["false"])], "0 passed, 1 failed, 0 skipped"),
        ([step("crash", "tests", command=["sh", "-c", "kill -9 $$"])], "0 passed, 1 failed, 0 skipped"),
    ],
)
def test_what_a_run_comes_to(steps, last, tmp_path, capsys):
    run(steps, tmp_path)
    code = summary.report(tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert code == (0 if ", 0 failed" in last else 1)


def test_a_step_that_reaches_its_limit_is_aborted(tmp_path, capsys):
    duration = f"1234.{os.getpid()}"  # no other run's
    program = "import faulthandler, subprocess, sys; faulthandler.enable(); subprocess.run(['sleep', sys.argv[1]])"
    waiting = step("waiting", command=[sys.executable, "-c", program, duration])
    waiting.limit_s = 5
    run([waiting, step("next")], tmp_path)
    told = (tmp_path / "waiting.log").read_text()
    assert "The step has reached its limit of time and is aborted." in told and "Fatal Python error: Aborted" in told
    assert subprocess.run(["pgrep", "-f", f"sleep {duration}$"]).returncode == 1
    summary.report(tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("what, last", [("", "2 passed, 0 failed"), ("<failure/>", "1 passed, 1 failed")])
def test_cases_are_counted_and_the_slowest_named(what, last, tmp_path, capsys):
    cpu = '<properties><property name="cpu_s" value="2.5"/></properties>'
    junit = f"<testsuite>{CASE.format('slow', 3, cpu)}{CASE.format('fast', 1, what)}</testsuite>"
    run([step("cases", "tests", command=["sh", "-c", 'echo "$0" > "$1"', junit, "{junit}"])], tmp_path)
    summary.report(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{last}, 0 skipped"
    assert "    3.0 s    2.5 s of CPU  the step cases: a: slow" in lines
    assert (tmp_path / "times.txt").read_text() in "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "what, told",
    [
        ('<failure message="assert 1 == 2&#10;by rank 3">where</failure>', ["    assert 1 == 2", "    by rank 3"]),
        ('<error message="no fixture"/>', ["    no fixture"]),
        ('<failure message=""/><system-out>a\nb\n</system-out>', ["    a", "    b"]),
        (
            f'<failure message="{"a&#10;" * 100}{"b" * 1000}"/>',
            [*["    a"] * 4, "    ...", *["    a"] * 11, "    " + "b" * 300],
        ),
        ("<failure/>", []),
    ],
)
def test_why_a_case_failed_is_told_at_the_end(what, told, tmp_path, capsys):
    junit = f"<testsuite>{CASE.format('b', 1, what)}</testsuite>"
    run([step("cases", "tests", command=["sh", "-c", 'echo "$0" > "$1"', junit, "{junit}"])], tmp_path)
    summary.report(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("FAILED the step cases: a: b") + 1 : -1] == told


def test_the_cpu_of_a_step_is_measured(tmp_path):
    busy = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    run([step("busy", command=[sys.executable, "-c", busy])], tmp_path)
    (record,) = json.loads((tmp_path / "steps.json").read_text())["steps"]
    assert 0.3 <= record["cpu_s"] < 3 and record["code"] == 0
