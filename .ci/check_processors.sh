#!/usr/bin/env bash
# The reductions on processors that this machine does not have, emulated: an AArch64 (NEON), an x86-64 without AVX,
# which must not meet a newer instruction anywhere, and one with all that the emulator knows.
# Usage: .ci/check_processors.sh BUILD    where the tests are built: build/release
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
folder=$build/processors
mkdir -p "$folder/include"
rm -f "$folder"/*.o # some may be of sources that are gone; ccache has the others

# Debian's Catch2 is a header that any compiler can use; /usr/include as a whole is not for another processor.
[ -f /usr/include/catch2/catch.hpp ] || { echo "there is no Catch2 2 in /usr/include"; exit 1; }
ln -sfn /usr/include/catch2 "$folder/include/catch2"
sources=(
  ops/reduction/{adaptive_sum,kernels_scalar,kernels_neon,reduce}.cc
  core/base/error.cc
  tests/ops/reduction/*.cc tests/support/main.cc
)
compile() {
  $(command -v ccache) aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -Wpedantic -Werror -ffp-contract=off \
    -DHVD_KERNELS_ARM=1 -DHVD_CATCH2_MAJOR=2 -I. -isystem "$1/include" -c "$2" -o "$1/$(basename "$2").o"
}
export -f compile
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'compile "$0" "$1"' "$folder"
aarch64-linux-gnu-g++ -static "$folder"/*.o -o "$folder/test_ops_reduction"

emulate() {
  local title=$1 output code=0
  shift
  output=$("$@" 2>&1) || code=$?
  printf -- '-- %s\n%s\n' "$title" "$output"
  return $code
}
tests=$build/tests/ops/reduction/test_ops_reduction
emulate AArch64 qemu-aarch64 "$folder/test_ops_reduction" &
emulate "x86-64 without AVX" qemu-x86_64 -cpu Nehalem "$tests"
wait $!
# Where this machine has AVX2, the tests have been through its kernels without an emulator.
grep -qw avx2 /proc/cpuinfo || emulate "x86-64 with AVX2" qemu-x86_64 -cpu max "$tests"
