#!/usr/bin/env bash
# From a clean clone to all tests run: installs what is missing, builds, runs tests and checks, and ends with one line,
# "N passed, N failed, N skipped". A step that fails does not stop the others. What each step printed, and where the time
# went, stays in build/test-results/. docs/testing.md says what each suite runs.
# Usage: tests/run.sh [--quick | --all | --only PATTERN]
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
# pytest compiles each test file once and not in each of its processes, whatever the environment sets.
unset PYTHONDONTWRITEBYTECODE
echo "==> setting up"
if ! .ci/setup.sh build check; then
  printf 'the set-up failed, nothing was tested\n0 passed, 1 failed, 0 skipped\n'
  exit 1
fi
exec python tests/support/suite.py "$@"
