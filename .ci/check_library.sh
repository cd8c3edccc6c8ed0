#!/usr/bin/env bash
# What libhvd.so.0, hvdrun, hvd-bench, MPI's plugins and the frameworks' libraries ask of a machine, and what the
# libraries show to their process.
# Usage: .ci/check_library.sh PREFIX    where they are installed: .venv, /usr/local
set -euo pipefail
library=$1/lib/libhvd.so.0
programs=("$1/bin/hvdrun" "$1/bin/hvd-bench")
allowed='^(lib(c|m|gcc_s|pthread|hvd)\.so\.[0-9]+|libstdc\+\+\.so\.6|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1)$'
plugins=()
for interface in openmpi mpich standard; do plugins+=("$1/lib/hvd/libhvd_mpi_$interface.so"); done
# Part of the Python package, where there is that.
ops=()
for package in "$1"/lib/python3*/*-packages/hvd; do
  [ ! -d "$package" ] || ops+=("$package"/libhvd_{tensorflow,jax,mxnet}.so)
done
failed=0
fault() { echo "$1" && failed=1; }

for file in "$library" "${programs[@]}" "${plugins[@]}" "${ops[@]}"; do
  [ -f "$file" ] || { fault "$file is missing"; continue; }
  for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [[ $needed =~ $allowed ]] || fault "$file needs $needed, which a machine may not have"
  done
done

# "u" is a symbol that the whole process shares, whoever else defines it: another copy of spdlog, for instance.
while read -r _ kind name; do
  [[ $name == hvd_* ]] || fault "$library exports $name, which is not part of the C interface"
  [ "$kind" != u ] || fault "$library exports $name for the whole process to share"
done < <(nm -D --defined-only "$library")
# Not through `grep -q`, which leaves nm behind with a broken pipe.
[[ $(nm -D --defined-only "$library")$'\n' == *$' T hvd_init\n'* ]] || fault "$library does not export hvd_init"

# MPI is opened before its plugin, which is linked with none.
for file in "${plugins[@]}"; do
  [ -f "$file" ] || continue
  exported=$(nm -D --defined-only "$file" | awk '{ print $NF }' | xargs)
  [ "$exported" = hvd_plugin_get ] || fault "$file exports $exported, and not just hvd_plugin_get"
  [[ $(nm -D --undefined-only "$file") == *' U MPI_Allreduce'* ]] || fault "$file does not call MPI"
done

# The framework is found at run time, or calls; nothing may tie the library to one version of it.
declare -A shown=([libhvd_tensorflow.so]=hvd_tensorflow_problem
  [libhvd_jax.so]="hvd_jax_collective hvd_jax_collective_on_gpu"
  [libhvd_mxnet.so]="hvd_mxnet_connect hvd_mxnet_push")
for file in "${ops[@]}"; do
  [ -f "$file" ] || continue
  exported=$(nm -D --defined-only "$file" | awk '{ print $NF }' | xargs)
  only=${shown[${file##*/}]}
  [ "$exported" = "$only" ] || fault "$file exports $exported, and not just $only"
  [[ $(nm -D --undefined-only "$file") != *' U '@(TF_|XLA_|MX)* ]] || fault "$file is linked with its framework"
done
exit $failed
