#!/usr/bin/env bash
# From a clean clone to all tests run: sets the machine up, builds, runs every test and check, and ends with one line,
# "N passed, N failed, N skipped". A step that fails does not stop the others.
# Usage: tests/run.sh [--all]    --all adds what is long: soaks, very large tensors, benchmarks.
# What each step printed stays in build/test-results/.
set -uo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  --all) all=true ;;
  '') all=false ;;
  *) echo "usage: tests/run.sh [--all]" >&2; exit 2 ;;
esac

results=$PWD/build/test-results
rm -rf "$results"
mkdir -p "$results"
: > "$results/steps.tsv"
export PATH="$PWD/.venv/bin:$PATH"
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
steps=0
ticker=
trap '[ -z "$ticker" ] || kill "$ticker" 2> /dev/null' EXIT

headline() { printf '==> %s\n' "$*"; }
elapsed() { printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); }

# Says every 15 seconds how far a step is: the last line of its log.
tick() {
  while sleep 15 > /dev/null 2>&1; do
    printf '    %s  %s\n' "$(elapsed $((SECONDS - began)))" "$(tail -n 1 "$1" | tr -d '\r' | cut -c 1-100)"
  done
}

# step KIND TITLE COMMAND...: runs it and notes how it ended; summary.py says what the kinds mean. A "tests" command
# finds in $junit where to write its results.
step() {
  local kind=$1 title=$2 began=$SECONDS code=0
  shift 2
  steps=$((steps + 1))
  local log=$results/$steps.log
  junit=$results/$steps.xml
  headline "$title"
  : > "$log"
  tick "$log" &
  ticker=$!
  "$@" > "$log" 2>&1 < /dev/null || code=$?
  kill "$ticker" 2> /dev/null
  wait "$ticker" 2> /dev/null
  ticker=
  # ctest's line of a test that has failed; its second try has none.
  sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \(.*[^.]\) \.*\*\*\*\([A-Z].*\)/    failed once: \1 (\2)/p' "$log"
  printf '%s\t%s\t%s\t%s\n' "$kind" "$code" "$title" "$junit" >> "$results/steps.tsv"
  if [ "$code" -eq 0 ]; then
    printf '    done in %s\n' "$(elapsed $((SECONDS - began)))"
  else
    tail -n 100 "$log" | sed 's/^/    /'
    printf '    FAILED with exit code %s after %s; all of its output: %s\n' "$code" "$(elapsed $((SECONDS - began)))" "$log"
  fi
}

build() { cmake --preset "$1" && cmake --build --preset "$1" "${@:2}" -- -k 0; }

# unit_tests PRESET [COMMAND...]: run by the command, without the tests whose names match $left_out. Many tests have
# limits of time, which a machine that stands still for a while breaks: a test may be tried twice, and step() says which
# were. What a sanitizer has found once is a failure, whatever came of the second try.
unit_tests() {
  local code=0
  "${@:2}" ctest --test-dir "build/$1" -j "$(nproc)" --output-on-failure --no-tests=error --output-junit "$junit" \
    --repeat until-pass:2 ${left_out:+-E "$left_out"} || code=$?
  if grep -Eq 'ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ' "$log"; then return 1; fi
  return "$code"
}

# A search through millions of states: nothing in it is about memory.
every_interleaving='^core_negotiation:schedule lock: every interleaving'

asan_tests() {
  local left_out=$every_interleaving
  unit_tests asan
}

# Not where a test has one thread. ThreadSanitizer does not start where addresses are very random; some containers do
# not let us ask for less.
tsan_tests() {
  local left_out="^ops_reduction:|^ops_choice:the model|^core_negotiation:However messages|$every_interleaving"
  if setarch -R true 2> /dev/null; then
    unit_tests tsan setarch -R
  else
    unit_tests tsan
  fi
}

# Ten seconds each from the kept corpus; what a run finds on its way stays in the build folder.
fuzz() {
  local name=$1 found
  found=build/asan/corpus/$name
  mkdir -p "$found"
  "$2" -max_total_time=10 -timeout=10 -rss_limit_mb=2048 "$found" $([ -d "tests/fuzz/corpus/$name" ] && echo "tests/fuzz/corpus/$name")
}

cpp_example() {
  cmake -S examples/cpp -B build/example -DCMAKE_PREFIX_PATH="$PWD/.venv" && cmake --build build/example &&
    hvdrun -np 16 build/example/allreduce
}

python_tests() { python -m pytest -v -p no:cacheprovider --durations=10 --junitxml "$junit" -m "$1" tests; }

# Catch2's hidden cases, which ctest does not know.
long_unit_tests() { "$1" '[.long]' --reporter junit --out "$junit" $("$1" --help | grep -o -m 1 -e --allow-running-no-tests); }

headline "setting up"
if ! .ci/setup.sh build check; then
  printf 'the set-up failed, nothing was tested\n0 passed, 1 failed, 0 skipped\n'
  exit 1
fi

step build "building (release)" build release
step tests "C++ tests" unit_tests release
step tests "Python tests" python_tests "not long"
step check "C++ example, 16 ranks" cpp_example
step check "what the library needs and exports" .ci/check_library.sh .venv
step check "reductions on other processors, emulated" .ci/check_processors.sh build/release
step check "formatting, lint, directions of includes" .ci/check
step build "building (AddressSanitizer, UndefinedBehaviorSanitizer, fuzzers)" build asan
step tests "C++ tests (AddressSanitizer, UndefinedBehaviorSanitizer)" asan_tests
step build "building (ThreadSanitizer)" build tsan
step tests "C++ tests (ThreadSanitizer)" tsan_tests
for fuzzer in $(find build/asan/tests -type f -executable -name 'fuzz_*' | sort); do
  step check "fuzzing ${fuzzer##*/fuzz_}" fuzz "${fuzzer##*/fuzz_}" "$fuzzer"
done
if $all; then
  for executable in $(find build/release/tests -type f -executable -name 'test_*' | sort); do
    step tests "long C++ tests of ${executable##*/test_}" long_unit_tests "$executable"
  done
  step tests "long Python tests" python_tests long
  for version in 2.13.1 2.18.1; do
    step tests "TensorFlow $version" tests/other_tensorflow.sh "$version" --junitxml "$results/$((steps + 1)).xml"
  done
  for benchmark in $(find build/release/tests/bench -type f -executable -name 'bench_*' | sort); do
    step check "benchmark ${benchmark##*/bench_}" "$benchmark"
  done
fi

headline "finished in $(elapsed "$SECONDS")"
python tests/support/summary.py "$results"
