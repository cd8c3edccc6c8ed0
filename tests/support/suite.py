#!/usr/bin/env python3
"""Which steps the tests consist of, and in which suite each runs. tests/run.sh starts it once all is set up.

docs/testing.md says which test belongs where, and what it may cost.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import summary
from steps import Step, run

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "test-results"
CPUS = len(os.sched_getaffinity(0))
PYTEST = ["python", "-m", "pytest", "-v", "-p", "no:cacheprovider", "--junitxml", "{junit}"]
SANITIZERS = {
    # Up to Clang 16, LeakSanitizer mistakes thread-local memory that begins 16 bytes into a page for an old glibc's,
    # and crashes (github.com/google/sanitizers/issues/1322). It finds that memory without intercepting __tls_get_addr.
    "ASAN_OPTIONS": "detect_leaks=1:intercept_tls_get_addr=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
# Too long for sanitizers: searches through many states, large tables, and one that computes on one thread. What they
# call is called by shorter tests as well.
TOO_LONG = "^core_control:(schedule lock: every interleaving|Names that nobody|Ten thousand)|^ops_choice:the model"
FUZZED = sorted(path.name.removesuffix("_fuzzer.cc") for path in (ROOT / "tests/fuzz").glob("*_fuzzer.cc"))
OTHER_VERSIONS = (("TensorFlow", "2.13.1"), ("TensorFlow", "2.18.1"), ("JAX", "0.6.2"), ("Spark", "3.5.9"))
BENCHMARKS = ("collectives", "control_plane", "reduction")
LONG_STEP_LIMIT_S = 4 * 3600
PYTHON_NEEDS = ["build-release", "frameworks"]  # of tests in Python, and of what reads the frameworks' sources


def frameworks() -> Step:
    """What only the tests in Python need is installed while those in C++ are built and run."""
    script = [".ci/setup.sh", "build", "check", "frameworks"]
    return Step("frameworks", "build", "installing the frameworks", script)


def build(preset: str, title: str, target: str | None = None) -> Step:
    # -k 0: all that does not compile is said at once.
    script = (
        f"cmake --preset {preset} && cmake --build --preset {preset} {f'--target {target}' if target else ''} -- -k 0"
    )
    ninja_log = ROOT / "build" / preset / ".ninja_log"
    return Step(f"build-{target or preset}", "build", title, ["sh", "-c", script], busy=True, ninja_log=ninja_log)


def unit_tests(
    preset: str, title: str, only: str | None = None, without: str | None = None, prefix: list[str] | None = None
) -> Step:
    command = [*(prefix or []), "ctest", "--test-dir", f"build/{preset}", "-j", str(CPUS + 1), "--output-on-failure"]
    command += ["--no-tests=error", "--output-junit", "{junit}"]
    command += [*(["-R", only] if only else []), *(["-E", without] if without else [])]
    return Step(f"cpp-{preset}", "tests", title, command, [f"build-{preset}"], environment=SANITIZERS)


def python_tests(
    name: str,
    title: str,
    marker: str,
    workers: int,
    files: str = "all",
    only: str | None = None,
    needs: tuple[str, ...] = (),
    **options,
) -> Step:
    """`workers`: processes that run tests side by side, each of which collects all tests; 0: one, by itself."""
    parallel = ["-n", str(workers), "--dist", "loadgroup"]
    command = [*PYTEST, *parallel, "--files", files, "-m", marker, *(["-k", only] if only else []), "tests"]
    return Step(name, "tests", title, command, [*PYTHON_NEEDS, *needs], **options)


def check(name: str, title: str, command: list[str], needs: list[str], **options) -> Step:
    return Step(name, "check", title, command, needs, **options)


def without_randomised_addresses() -> list[str]:
    """ThreadSanitizer does not start where addresses are very random; some containers do not let us ask for less."""
    allowed = subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0
    return ["setarch", "-R"] if allowed else []


def fuzzer(name: str, seconds: int) -> Step:
    """From the kept corpus; what a run finds on its way stays in the build folder."""
    found, kept = ROOT / "build/asan/corpus" / name, ROOT / "tests/fuzz/corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    command = [f"build/asan/tests/fuzz/fuzz_{name}", f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048"]
    command += [str(found), *([str(kept)] if kept.is_dir() else [])]
    return check(f"fuzz-{name}", f"fuzzing {name}", command, ["build-asan"], environment=SANITIZERS)


COMPARE = ["sh", "-c", "cmake --preset release && cmake --build --preset release --target comparisons -- -k 0"]
CPP_EXAMPLE = """cmake -S examples/cpp -B build/example -DCMAKE_PREFIX_PATH=$PWD/.venv && cmake --build build/example &&
    hvdrun -np 16 build/example/allreduce"""
# All C++ tests with a tag; those with [.long] are hidden, and ctest does not know them.
TAGGED_CPP = """failed=0; for test in $(find build/release/tests -type f -executable -name 'test_*' | sort); do
    "$test" "$1" $("$test" --help | grep -o -m 1 -e --allow-running-no-tests) || failed=1; done; exit $failed"""
EXACT = {"TEST_EXACT_TIMES": "1"}


def quick_steps() -> list[Step]:
    return [
        frameworks(),
        build("release", "building (release)"),
        unit_tests("release", "C++ unit tests", only="^(core|ops|launcher|cpp|simulation|bindings_c)"),
        python_tests("python", "Python tests without a framework", "quick and not long", CPUS, "without-frameworks"),
        check("lint", "lint of changed files", [".ci/check", "--changed"], PYTHON_NEEDS),
    ]


def default_steps(fuzzing_s: int = 5) -> list[Step]:
    return [
        frameworks(),
        build("release", "building (release)"),
        python_tests("python", "Python tests", "not long", CPUS + 1, "without-frameworks"),
        python_tests("python-frameworks", "Python tests that import frameworks", "not long", 0, "with-frameworks"),
        build("asan", "building (AddressSanitizer, UndefinedBehaviorSanitizer, fuzzers)"),
        build("tsan", "building (ThreadSanitizer)"),
        check("lint", "formatting, lint, directions of includes", [".ci/check"], PYTHON_NEEDS, busy=True),
        unit_tests("release", "C++ tests"),
        unit_tests("asan", "C++ tests (AddressSanitizer, UndefinedBehaviorSanitizer)", without=TOO_LONG),
        unit_tests("tsan", "C++ tests (ThreadSanitizer)", without=TOO_LONG, prefix=without_randomised_addresses()),
        check("comparisons", "declarations beside vendors' headers", COMPARE, PYTHON_NEEDS, busy=True),
        check("example", "C++ example, 16 ranks", ["sh", "-c", CPP_EXAMPLE], []),
        check("library", "what the library needs and exports", [".ci/check_library.sh", ".venv"], []),
        check(
            "processors",
            "reductions on other processors, emulated",
            [".ci/check_processors.sh", "build/release"],
            ["build-release"],
            busy=True,
        ),
        *[fuzzer(name, fuzzing_s) for name in FUZZED],
    ]


def tagged_cpp_tests(name: str, title: str, tag: str) -> Step:
    command = ["sh", "-c", TAGGED_CPP, "sh", tag]
    return check(name, title, command, ["build-release"], environment=EXACT, alone=True)


def long_steps() -> list[Step]:
    benchmarks = ("build-benchmarks",)  # whose own tests are long
    steps = [
        build("release", "building the benchmarks", target="benchmarks"),
        tagged_cpp_tests("cpp-long", "long C++ tests", "[.long]"),
        tagged_cpp_tests("cpp-timed", "timed C++ tests", "[timed]"),
        python_tests("python-timed", "timed Python tests", "timed and not long", 0, environment=EXACT, alone=True),
        python_tests("python-long", "long Python tests", "long", 0, needs=benchmarks, environment=EXACT, alone=True),
        *[
            Step(
                f"{framework.lower()}-{version}",
                "tests",
                f"{framework} {version}",
                [f"tests/other_{framework.lower()}.sh", version, "--junitxml", "{junit}"],
                PYTHON_NEEDS,
            )
            for framework, version in OTHER_VERSIONS
        ],
        *[
            check(
                f"bench-{name}",
                f"benchmark {name}",
                [f"build/release/tests/bench/bench_{name}"],
                [*benchmarks],
                alone=True,
            )
            for name in BENCHMARKS
        ],
    ]
    for step in steps:
        step.limit_s = LONG_STEP_LIMIT_S
    return steps


def only_steps(pattern: str) -> list[Step]:
    """What of the C++ and the Python tests has the pattern in its name. Either may have none."""
    cpp = unit_tests("release", f"C++ tests that match {pattern}", only=pattern)
    cpp.command.remove("--no-tests=error")
    python = python_tests("python", f"Python tests that match {pattern}", "not long", CPUS, only=pattern)
    # pytest ends with 5 where it has found no test.
    python.command = ["sh", "-c", '"$@"; code=$?; [ $code -eq 5 ] || exit $code', "sh", *python.command]
    return [frameworks(), build("release", "building (release)"), cpp, python]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/run.sh", description="Runs the tests; docs/testing.md says more.")
    suite = parser.add_mutually_exclusive_group()
    suite.add_argument("--quick", action="store_true", help="unit tests, Python without frameworks, lint of changes")
    suite.add_argument("--all", action="store_true", help="adds soaks, benchmarks, other versions of frameworks")
    suite.add_argument("--only", metavar="PATTERN", help="the release build's tests whose names match")
    arguments = parser.parse_args()
    if arguments.only:
        steps = only_steps(arguments.only)
    elif arguments.quick:
        steps = quick_steps()
    else:
        steps = default_steps(60 if arguments.all else 5) + (long_steps() if arguments.all else [])

    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    run(steps, RESULTS)
    return summary.report(RESULTS)


if __name__ == "__main__":
    sys.exit(main())
