#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compiles every header of the repository alone: each includes what it needs. Exit 1 and the
# compiler's words if one does not. CXX chooses the compiler; bench/mpi is C with MPI.
set -uo pipefail
cd "$(dirname "$0")/.."
folders=()
for folder in base hca core provider record sim cli bench tests; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t headers < <(find "${folders[@]}" -name '*.h' | sort)
export CXX="${CXX:-g++}"
alone() {
  case $1 in
    bench/mpi/*)
      printf '#include "%s"\n' "$1" |
        mpicc.openmpi -fsyntax-only -Wall -Wextra -Wconversion -Werror -Wno-unused-function -I. -x c - || {
        echo "== $1 does not compile alone"
        exit 1
      }
      return
      ;;
  esac
  # A unit that includes the header, so that "#pragma once in main file" is no complaint.
  printf '#include "%s"\n' "$1" |
    "$CXX" -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Werror -I. -x c++ - || {
    echo "== $1 does not compile alone"
    exit 1
  }
}
export -f alone
printf '%s\0' "${headers[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'alone "$1"' _ || exit 1
echo "${#headers[@]} headers compile alone"
