#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# onetoall, alltoone and repeat as an MPI program over Turnout, under each policy: times and ratios.
#   bench/run_patterns.sh BUILD_DIR [options of bench/run_patterns.py]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench/run_patterns.sh BUILD_DIR [options of bench/run_patterns.py]}
shift
cmake --build "$build" --target turnout_fi turnout_ibverbs turnout_mlx5
python=${VENV:-$root/.venv}/bin/python
exec "$python" "$root/bench/run_patterns.py" "$build" "$@"
