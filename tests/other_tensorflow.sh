#!/usr/bin/env bash
# The tests of TensorFlow and Keras with another version of TensorFlow than .venv has: in an environment of its own under
# build/, with the hvd that was built for .venv (tests/run.sh has done so), and the newest Keras that goes with it.
# Usage: tests/other_tensorflow.sh 2.13.1 [pytest's options]
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?which version of TensorFlow?}
shift
environment=build/tensorflow-$version
[ -x "$environment/bin/python" ] || .venv/bin/python -m venv "$environment"
install() { "$environment/bin/python" -m pip install --disable-pip-version-check --quiet "$@"; }
install "tensorflow-cpu==$version" cloudpickle hypothesis pytest PyYAML scikit-learn
wheels=build/wheels-for-tensorflow-$version
rm -rf "$wheels"
# One at a time: all versions' wheels are built in build/python.
flock build/python.lock .venv/bin/python -m pip wheel --disable-pip-version-check --quiet --no-build-isolation --no-deps \
  -w "$wheels" . ./bindings/python/horovod
install --no-deps --force-reinstall "$wheels"/*.whl
export PATH="$PWD/$environment/bin:$PATH"
exec python -m pytest -v -p no:cacheprovider -m "not long" "$@" tests/python/test_tensorflow*.py tests/python/test_keras*.py
