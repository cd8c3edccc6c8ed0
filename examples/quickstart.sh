#!/usr/bin/env bash
# From a clean clone to a model trained by four processes: installs what is missing, builds hvd into .venv/, and trains
# a small network on scikit-learn's handwritten digits. Arguments go to the script, for example --json or --reference.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/setup.sh build
export PATH="$PWD/.venv/bin:$PATH"
printf '==> %s\n' "hvdrun -np 4 python examples/torch/digits.py $*"
exec hvdrun -np 4 python examples/torch/digits.py "$@"
