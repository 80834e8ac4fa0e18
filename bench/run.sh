#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Measures Turnout and what people compare it with, and writes docs/benchmarks.md.
#   bench/run.sh BUILD_DIR [options of bench/run.py]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench/run.sh BUILD_DIR [options of bench/run.py]}
shift
cmake --build "$build" --target fi_pingpong hca_baseline
python=${VENV:-$root/.venv}/bin/python
exec "$python" "$root/bench/run.py" "$build" "$@"
