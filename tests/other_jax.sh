#!/usr/bin/env bash
# The tests of JAX with another version than .venv has: in an environment of its own under build/, with the hvd that was
# built for .venv (tests/run.sh has done so), and the newest optax, Flax and Orbax that go with it.
# Usage: tests/other_jax.sh 0.6.2 [pytest's options]
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?which version of JAX?}
shift
environment=build/jax-$version
[ -x "$environment/bin/python" ] || .venv/bin/python -m venv "$environment"
install() { "$environment/bin/python" -m pip install --disable-pip-version-check --quiet "$@"; }
install "jax==$version" "jaxlib==$version" optax flax orbax-checkpoint cloudpickle pytest PyYAML scikit-learn
wheels=build/wheels-for-jax
rm -rf "$wheels"
# One at a time: all versions' wheels are built in build/python.
flock build/python.lock .venv/bin/python -m pip wheel --disable-pip-version-check --quiet --no-build-isolation --no-deps \
  -w "$wheels" .
install --no-deps --force-reinstall "$wheels"/*.whl
export PATH="$PWD/$environment/bin:$PATH"
exec python -m pytest -v -p no:cacheprovider -m "not long" "$@" tests/python/test_jax*.py
