#!/usr/bin/env bash
# One case of the `turnout` command: cli_test.sh PATH/turnout CASE
set -uo pipefail
turnout=$1
case=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for variable in ${!TURNOUT_*}; do unset "$variable"; done

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}
# expect_output WORDS: what the last run printed has them.
run() {
  "$turnout" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
}
has() { grep -qF -- "$1" "$scratch/$2" || { cat "$scratch/out" "$scratch/err"; fail "no \"$1\" in std$2"; }; }
ends_with() { [ "$status" -eq "$1" ] || { cat "$scratch/err"; fail "exit status $status, expected $1"; }; }

case $case in
configuration_page)
  run info --config --markdown
  ends_with 0
  diff "$here/../../docs/configuration.md" "$scratch/out" ||
    fail "docs/configuration.md differs from base/settings.def: run make docs"
  # The page shows defaults, whatever the environment says.
  TURNOUT_MEMORY_BUDGET=1GiB "$turnout" info --config --markdown | diff -q - "$scratch/out" || fail "environment"
  ;;
config_table)
  TURNOUT_MEMORY_BUDGET=64M run info --config
  ends_with 0
  has "TURNOUT_MEMORY_BUDGET = 64MiB  (bytes, default 256MiB)" out
  has "TURNOUT_RING_ENTRIES = 16  (count, the default)" out
  ;;
version_and_usage)
  run --version
  ends_with 0
  has "turnout " out
  run --help
  ends_with 0
  has "report" out
  run
  [ "$status" -ne 0 ] || fail "no subcommand is an error"
  run frobnicate
  [ "$status" -ne 0 ] || fail "an unknown subcommand is an error"
  run info --markdown
  ends_with 1
  has "--config" err
  ;;
bad_settings)
  TURNOUT_RING_ENTRIES=17 run info
  ends_with 1
  has 'TURNOUT_RING_ENTRIES = "17": expected a power of two' err
  TURNOUT_RING_ENTRIES=17 run info --config
  ends_with 1
  has "the table shows the defaults" err
  TURNOUT_MEMORY_BUGET=1 run info --config
  ends_with 0
  has "did you mean TURNOUT_MEMORY_BUDGET?" err
  ;;
report)
  cp "$here"/reports/*.json "$scratch"
  run report "$scratch"
  ends_with 0
  has "rank 0 of 2" out
  has "rank 1 of 2" out
  has "All processes: 2" out
  has "DC-sendrecv -> RC-RDMA @1.0s" out
  run report --peers 0 --decisions 0 "$scratch/rank-0.json"
  ends_with 0
  has "and 1 peers with fewer messages" out
  ;;
report_damaged)
  run report "$scratch"
  ends_with 1
  has "no report" err
  head -c 300 "$here/reports/rank-0.json" >"$scratch/cut.json"
  cp "$here/reports/rank-1.json" "$scratch"
  mkfifo "$scratch/pipe.json"
  run report "$scratch"
  ends_with 1
  has "cut.json: not JSON" err
  has "pipe.json: neither a file nor a folder" err
  has "rank 1 of 2" out
  run report /nonexistent
  ends_with 1
  has "/nonexistent" err
  ;;
info)
  TURNOUT_DEVICE=virtual TURNOUT_FABRIC=cli-test-$$ run info
  ends_with 0
  has "adapter chosen" out
  has "TURNOUT_DEVICE=virtual" out
  has "fabric" out
  TURNOUT_DEVICE=mlx5_nosuch run info
  ends_with 1
  has "mlx5_nosuch" out
  TURNOUT_DEVICE=virtual TURNOUT_VERBS_PATH="$scratch" run info
  ends_with 1
  has "TURNOUT_VERBS_PATH" out
  ;;
*) fail "no case $case" ;;
esac
echo "ok"
