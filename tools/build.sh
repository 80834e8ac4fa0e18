#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Configures (once) and builds a preset of CMakePresets.json: tools/build.sh release [TARGETS]
# The target `extras`: benchmarks and other programs that `make test` does not run.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
fail() {
  printf '== %s\n' "$@" >&2
  exit 1
}
mkdir -p build
if [ ! -f "build/$preset/build.ninja" ]; then
  printf '== configuring build/%s\n' "$preset"
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || {
    tail -n 30 "build/$preset.configure.log" >&2
    fail "configuring build/$preset failed (build/$preset.configure.log)." \
      "If a package is not found, run: make deps"
  }
fi
# For editors and clang-tidy.
[ "$preset" != release ] || ln -sf build/release/compile_commands.json compile_commands.json
printf '== building build/%s\n' "$preset"
# Another clone of the repository finds what this one has compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# ccache keeps no object of a precompiled header without being told so.
export CCACHE_SLOPPINESS=pch_defines,time_macros
# The compiler names the headers that a file includes: no run of the preprocessor beforehand.
export CCACHE_DEPEND=1
cmake --build --preset "$preset" "${@/#/--target=}" || fail \
  "building build/$preset failed; the first error is above." \
  "After a change of compiler or packages, 'make clean' and run this again."
