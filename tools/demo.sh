#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two unmodified MPI libraries over Turnout, one after the other, each started by `turnout run`:
#   1. Debian's HPCC on Debian's Open MPI 4 with 8 ranks;
#   2. examples/ring.py, a small mpi4py program, on PyPI's MPICH 5.
#
#   tools/demo.sh BUILD_DIR
#
# Ends with an error if a residual check of HPCC does not pass or no peer got an RC-RDMA channel.
# Settings: DEMO_RANKS (8), DEMO_N (order of HPL's matrix), DEMO_PROVIDER (turnout; another provider's
# name, such as tcp, shows the same programs without us), VENV (.venv), any TURNOUT_* variable.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: tools/demo.sh BUILD_DIR}
build=$(cd "$build" && pwd)
provider=${DEMO_PROVIDER:-turnout}
ranks=${DEMO_RANKS:-8}
order=${DEMO_N:-1000}
venv=${VENV:-$root/.venv}
work=$(mktemp -d "${TMPDIR:-/tmp}/turnout-demo-XXXXXX")

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '\n== demo failed: %s\n' "$1" >&2
  [ -z "${2:-}" ] || sed 's/^/   /' "$2" >&2
  exit 1
}
job=
watcher=
# shellcheck disable=SC2317
cleanup() {
  [ -z "$job" ] || kill "$job" 2>/dev/null || true
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

[ "$provider" != turnout ] || [ -f "$build/lib/libturnout-fi.so" ] ||
  fail "$build/lib/libturnout-fi.so not found: run make build first"
command -v hpcc >/dev/null || fail "hpcc is not installed: run make deps first"

# What starts a job: `turnout run`, or the settings that another provider needs.
over=("$build/bin/turnout" run --report --)
if [ "$provider" != turnout ]; then
  include=$provider
  [ "$provider" != tcp ] || include="tcp;ofi_rxm"  # its name for reliable datagrams in libfabric 1.17
  over=(env OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi "OMPI_MCA_mtl_ofi_provider_include=$include"
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
    MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 "FI_PROVIDER=$provider")
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# ---------------------------------------------------------------------------------------------------
say "HPCC, $ranks ranks, Debian's Open MPI $(mpirun.openmpi --version | sed -n '1s/.* //p')," \
  "provider $provider"
rows=1
for c in $(seq 1 "$ranks"); do
  if [ $((ranks % c)) -eq 0 ] && [ $((c * c)) -le "$ranks" ]; then rows=$c; fi
done
# HPCC reads the file by line number: HPL's 31 lines, then PTRANS's.
cat >"$work/hpccinf.txt" <<INPUT
HPLinpack benchmark input file
written by tools/demo.sh
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
$order       Ns
1            # of NBs
80           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
$rows            Ps
$((ranks / rows))            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
INPUT

if [ "$(id -u)" -eq 0 ]; then  # Open MPI refuses root otherwise
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
started=$SECONDS
(
  cd "$work"
  TURNOUT_FABRIC=demo-hpcc-$$ exec "${over[@]}" mpirun.openmpi -n "$ranks" hpcc
) >"$work/stdout" 2>"$work/stderr" &
job=$!

# Progress: HPCC writes the name of each part when it begins.
(
  seen=0
  while true; do
    sleep 1
    [ -f "$work/hpccoutf.txt" ] || continue
    grep -a '^Begin of .* section' "$work/hpccoutf.txt" 2>/dev/null | tail -n +$((seen + 1)) \
      >"$work/new" || true
    while read -r _ _ name _; do
      printf '   %3d s  %s\n' $((SECONDS - started)) "$name"
    done <"$work/new"
    seen=$((seen + $(wc -l <"$work/new")))
  done
) &
watcher=$!
status=0
wait "$job" || status=$?
job=
kill "$watcher" 2>/dev/null || true
wait "$watcher" 2>/dev/null || true
watcher=
[ "$status" -eq 0 ] || {
  tail -n 40 "$work/stderr" "$work/stdout" >"$work/last" 2>/dev/null || true
  fail "HPCC ended with exit code $status; its last lines:" "$work/last"
}
out=$work/hpccoutf.txt
[ -s "$out" ] || fail "HPCC wrote no output" "$work/stderr"

say "residual checks"
grep -aE '^\|\|Ax-b\|\||tests completed and' "$out" | sed 's/^ */   /'
say "HPCC's summary (some of its lines)"
value() { sed -n "s/^$1=//p" "$out" | tail -n 1; }
for name in Success CommWorldProcs HPL_N HPL_Tflops HPL_time PTRANS_GBs PTRANS_residual \
  MPIRandomAccess_GUPs MPIRandomAccess_ErrorsFraction MPIFFT_Gflops MPIFFT_maxErr \
  MaxPingPongLatency_usec MinPingPongLatency_usec MaxPingPongBandwidth_GBytes \
  NaturallyOrderedRingLatency_usec RandomlyOrderedRingLatency_usec; do
  printf '   %-36s %s\n' "$name" "$(value "$name")"
done
printf '   took %d s\n' $((SECONDS - started))

# The residual checks of every part, as HPCC defines them.
[ "$(value Success)" = 1 ] || fail "HPCC's summary does not say Success=1" "$work/stderr"
passed=$(grep -aoE '[1-9][0-9]* tests completed and passed' "$out" | awk '{ n += $1 } END { print n + 0 }')
if grep -aqE '\.\.\. FAILED|FAILED residual|[1-9][0-9]* tests completed and failed' "$out"; then
  fail "a residual check failed" <(grep -aE 'FAILED|completed and failed' "$out")
fi
grep -aqE '\|\|Ax-b.*PASSED' "$out" || fail "no residual check of HPL PASSED"
[ "$passed" -ge 2 ] || fail "PTRANS: no test passed"
within() { # NAME LIMIT: a figure that must not be above the limit
  awk -v v="$(value "$1")" -v l="$2" 'BEGIN { exit !(v != "" && v + 0 <= l + 0) }' ||
    fail "$1=$(value "$1") is above $2"
}
# HPCC's own limits: 1 % of updates may be lost (RandomAccess), 16 is the threshold of FFT and PTRANS.
within MPIRandomAccess_ErrorsFraction 0.01
within PTRANS_residual 16
within MPIFFT_maxErr 16

# What Turnout chose in this job, as `turnout run --report` prints it.
report() { # STDOUT STDERR
  [ "$provider" = turnout ] || return 0
  say "what was chosen for which peer, and why"
  sed -n '/^-- turnout report/,/^-- all tables/p' "$1" | sed 's/^/   /'
  grep -aE '^turnout(\[| run:)' "$2" | sed 's/^/   /' || true
  grep -aqE '[0-9]+ of [0-9]+ processes used Turnout' "$2" || fail "no process used Turnout" "$2"
}
report "$work/stdout" "$work/stderr"
[ "$provider" != turnout ] || grep -aq '^RC-RDMA ' "$work/stdout" ||
  fail "no peer got an RC-RDMA channel" "$work/stdout"

# ---------------------------------------------------------------------------------------------------
say "examples/ring.py with mpi4py on PyPI's MPICH, 2 ranks, provider $provider"
[ -x "$venv/bin/mpiexec" ] || fail "$venv has no mpiexec: run make deps first"
status=0
TURNOUT_FABRIC=demo-ring-$$ \
  "${over[@]}" "$venv/bin/mpiexec" -n 2 "$venv/bin/python" "$root/examples/ring.py" \
  >"$work/ring.out" 2>"$work/ring.err" || status=$?
sed '/^-- turnout report/,/^-- all tables/d; s/^/   /' "$work/ring.out"
[ "$status" -eq 0 ] || fail "ring.py ended with exit code $status" "$work/ring.err"
report "$work/ring.out" "$work/ring.err"

say "demo passed: $passed residual checks PASSED (HPL and PTRANS), two MPI libraries, one provider"
