#!/usr/bin/env bash
# Brings the machine and .venv/ to where hvd runs: Debian packages, a virtual environment with PyTorch, hvd itself.
# Usage: .ci/setup.sh build [check [frameworks]]    "check" adds what compiles and checks the tests, and the peers that
# tests/bench/compare.py measures; "frameworks" what the tests in Python need besides.
# Every step looks first and does only what is missing, so that running it again takes a second.
set -euo pipefail
cd "$(dirname "$0")/.."
groups="${*:-build}"
torch_version=2.13.0

is_wanted() { [[ " $groups " == *" $1 "* ]]; }

say() { printf '==> %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# The packages of the wanted groups in a list file, one a line.
listed() { awk -v groups=" $groups " 'NF == 2 && $1 !~ /^#/ && index(groups, " " $1 " ") { print $2 }' "$1"; }

install_debian_packages() {
  local wanted missing as_root=()
  mapfile -t wanted < <(listed .ci/debian-packages.txt)
  if ! command -v dpkg-query > /dev/null; then
    echo "setup: this is not a Debian system; it must have the equivalents of: ${wanted[*]}" >&2
    return
  fi
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort) \
    <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2> /dev/null |
      sed -n 's/ installed$//p' | sort))
  ((${#missing[@]})) || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null ||
      die "these packages are missing, and this is neither root nor is there sudo: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get -o Acquire::Retries=3 update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}"
}

# pip would spend most of its time compiling every module; Python compiles what tests import on its first import.
pip_install() {
  local options=(--disable-pip-version-check)
  ! is_wanted check || options+=(--no-compile)
  .venv/bin/python -m pip install "${options[@]}" "$@"
}

# A PyTorch that python3 can import already is used as it is, wherever it lies; one before 2.4 is not enough.
make_environment() {
  [ -x .venv/bin/python ] && .venv/bin/python -m pip --version > /dev/null 2>&1 && return
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || die "python3 must be 3.9 or newer"
  local outer
  outer=$(python3 -c 'import os, torch; torch.library.register_autograd; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2> /dev/null || true)
  say "making .venv with $(python3 --version)${outer:+ and the PyTorch of $outer}"
  python3 -m venv --clear ${outer:+--system-site-packages} .venv
  # python3 may itself belong to a virtual environment, whose packages the option above does not reach.
  if [ -n "$outer" ] && ! .venv/bin/python -c 'import torch' 2> /dev/null; then
    echo "$outer" > "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
  fi
  # Python 3.11's own pip takes three times as long to find versions of all frameworks that go together.
  ! is_wanted check || pip_install --quiet --upgrade pip
}

install_torch() {
  local stamp=.venv/.hvd-torch
  [ -e "$stamp" ] && return
  if ! .venv/bin/python -c 'import torch' 2> /dev/null; then
    say "installing PyTorch $torch_version (the CPU build where the index has one)"
    pip_install "torch==$torch_version+cpu" || pip_install "torch==$torch_version"
  fi
  touch "$stamp"
}

# The packages of one group.
install_python_packages() {
  local wanted stamp=.venv/.hvd-packages
  touch "$stamp"
  mapfile -t wanted < <(groups=$1 listed .ci/python-packages.txt | grep -vxFf "$stamp")
  ((${#wanted[@]})) || return 0
  say "installing Python packages: ${wanted[*]}"
  pip_install "${wanted[@]}"
  printf '%s\n' "${wanted[@]}" >> "$stamp"
}

# What the tests look at, and what would get in the way of .venv's own programs and libraries.
install_packages_apart() {
  local wanted stamp=.venv/.hvd-packages-apart
  touch "$stamp"
  mapfile -t wanted < <(groups=apart listed .ci/python-packages.txt | grep -vxFf "$stamp")
  ((${#wanted[@]})) || return 0
  say "installing Python packages into .venv/apart: ${wanted[*]}"
  pip_install --no-deps --ignore-installed --prefix "$PWD/.venv/apart" "${wanted[@]}"
  printf '%s\n' "${wanted[@]}" >> "$stamp"
}

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))'; }

# MXNet works with no NumPy after 1.23, so it has an environment of its own, with the hvd of .venv.
install_mxnet() {
  local wanted stamp=.venv/.hvd-packages-mxnet
  touch "$stamp"
  mapfile -t wanted < <(groups=mxnet listed .ci/python-packages.txt | grep -vxFf "$stamp")
  ((${#wanted[@]})) || return 0
  if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 12))'; then
    say "tests of hvd.mxnet will fail: that NumPy exists for Python 3.11 and older only"
    return
  fi
  say "installing Python packages into .venv/mxnet: ${wanted[*]}"
  .venv/bin/python -m venv --without-pip .venv/mxnet
  pip_install --ignore-installed --no-warn-conflicts --prefix "$PWD/.venv/mxnet" "${wanted[@]}"
  ln -sfn "$(packages_of .venv)"/{hvd,horovod} "$(packages_of .venv/mxnet)"
  printf '%s\n' "${wanted[@]}" >> "$stamp"
}

horovod=bindings/python/horovod

# What something is built from, as one number: unchanged since the last installation means nothing to do.
fingerprint() { find "$@" -type f -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum; }

wheels=build/wheel

build_wheel() {
  local stamp=$wheels/.fingerprint log=build/python.log now
  # Of this Python: another one needs another wheel.
  now=$({
    .venv/bin/python -VV
    fingerprint CMakeLists.txt pyproject.toml README.md LICENSE include core ops parameters bindings launcher simulation \
      tools third_party -not -path "$horovod/*"
  } | sha256sum)
  [ "$(cat "$stamp" 2> /dev/null)" = "$now" ] && return
  say "building hvd (the whole output is in $log)"
  rm -rf "$wheels"
  mkdir -p "$wheels"
  # With the tests' own options, so that ccache compiles what they have in common once.
  local options=()
  ! is_wanted check || options=(--config-settings cmake.define.HVD_WARNINGS_AS_ERRORS=ON)
  if ! .venv/bin/python -m pip wheel --disable-pip-version-check "${options[@]}" --no-build-isolation --no-deps -v \
    -w "$wheels" . 2>&1 | tee "$log" | grep --line-buffered -E '^ *\[[0-9]+/[0-9]+\]|error:|Successfully built'; then
    tail -n 60 "$log" >&2
    die "building hvd failed; see $log"
  fi
  echo "$now" > "$stamp"
}

install_hvd() {
  local stamp=.venv/.hvd-fingerprint
  cmp -s "$stamp" "$wheels/.fingerprint" && return
  say "installing hvd into .venv"
  rm -f "$stamp"
  pip_install --quiet --no-deps --force-reinstall "$wheels"/hvd-*.whl
  cp "$wheels/.fingerprint" "$stamp"
}

# The name horovod for hvd, a distribution of its own.
install_hvd_horovod() {
  local stamp=.venv/.hvd-horovod-fingerprint now
  now=$(fingerprint "$horovod")
  [ "$(cat "$stamp" 2> /dev/null)" = "$now" ] && return
  say "installing hvd-horovod into .venv"
  pip_install --quiet --no-build-isolation --no-deps --force-reinstall "./$horovod"
  echo "$now" > "$stamp"
}

install_debian_packages
make_environment
install_python_packages build
# Compiling uses all CPUs, and pip, which waits for the network and unpacks, less than one. As a process group of its own
# (set -m) it ends with this script.
set -m
build_wheel &
building=$!
set +m
trap 'kill -- "-$building" 2> /dev/null || true' EXIT
install_torch
if is_wanted check; then
  install_python_packages check
  install_packages_apart
fi
if is_wanted frameworks; then
  install_python_packages frameworks
  install_mxnet
fi
install_hvd_horovod
wait "$building" || die "hvd was not built"
trap - EXIT
install_hvd
