#!/usr/bin/env bash
# The tests of Spark with another version of PySpark than .venv has: in a folder of its own under build/, before .venv's
# packages, with the hvd that was installed there (tests/run.sh has done so).
# Usage: tests/other_spark.sh 3.5.9 [pytest's options]
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?which version of PySpark?}
shift
packages=$PWD/build/pyspark-$version
[ -d "$packages/pyspark" ] ||
  .venv/bin/python -m pip install --disable-pip-version-check --quiet --target "$packages" "pyspark==$version"
export PATH="$PWD/.venv/bin:$PATH" PYTHONPATH="$packages${PYTHONPATH:+:$PYTHONPATH}"
unset SPARK_HOME
exec python -m pytest -v -p no:cacheprovider -m "not long" "$@" tests/python/test_spark*.py
