#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One case of the `turnout` command: cli_test.sh PATH/turnout CASE
set -uo pipefail
turnout=$1
case=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for variable in ${!TURNOUT_*} ${!FI_TURNOUT_*}; do unset "$variable"; done

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

has_matplotlib() { /usr/bin/python3 -c "import matplotlib" 2>/dev/null; }

case $case in
doctor)
  run doctor
  ends_with 0
  has "selected: turnout0" out
  has "libturnout-fi.so" out
  has "0 problems" out
  run doctor --json
  ends_with 0
  /usr/bin/python3 -c 'import json, sys; assert {"level", "what", "found", "fix"} == set(json.load(sys.stdin)[0])' \
    <"$scratch/out" || fail "not a list of findings"
  # What would end a program is a problem.
  TURNOUT_DEVICE=mlx5_77 run doctor
  ends_with 1
  has "problem  adapter" out
  has "mlx5_77" out
  TURNOUT_INTERVAL=banana run doctor
  ends_with 1
  has "problem  settings" out
  TURNOUT_COSTS=/nonexistent run doctor
  ends_with 1
  has "problem  costs file" out
  FI_PROVIDER_PATH=/nonexistent run doctor
  ends_with 1
  has "problem  FI_PROVIDER_PATH" out
  FI_TURNOUT_INTERVAL=banana run doctor
  ends_with 1
  has 'FI_TURNOUT_INTERVAL = "banana"' out
  ;;
configuration_page)
  run info --config --markdown
  ends_with 0
  diff "$here/../../docs/configuration.md" "$scratch/out" ||
    fail "docs/configuration.md differs from base/settings.def: run make docs"
  # The page shows defaults, whatever the environment says.
  TURNOUT_MEMORY_BUDGET=1GiB "$turnout" info --config --markdown | diff -q - "$scratch/out" || fail "environment"
  ;;
costs_page)
  run info --costs --markdown
  ends_with 0
  diff "$here/../../docs/device-costs.md" "$scratch/out" ||
    fail "docs/device-costs.md differs from core/selection/device_costs.def: run make docs"
  # What is printed is a file of costs, and a setting that is given wins over it.
  "$turnout" info --costs >"$scratch/costs.toml" || fail "costs"
  TURNOUT_COSTS=$scratch/costs.toml TURNOUT_TUNING=cost_poll=20ns run info --costs
  ends_with 0
  has 'poll = { value = 20, unit = "ns", uncertainty = 0, source = "S the setting cost_poll" }' out
  [ "$(diff "$scratch/costs.toml" "$scratch/out" | grep -c '^>')" -eq 1 ] || fail "costs read again"
  echo "[device" >"$scratch/broken.toml"
  TURNOUT_COSTS=$scratch/broken.toml run info --costs
  ends_with 1
  has "broken.toml, line 1" err
  ;;
calibrate)
  run calibrate --profile connect-ib --rounds 3 --most-queue-pairs 128 --output "$scratch/a.toml"
  ends_with 0
  run calibrate --profile connect-ib --rounds 3 --most-queue-pairs 128
  ends_with 0
  diff "$scratch/a.toml" "$scratch/out" || fail "two calibrations in virtual time differ"
  TURNOUT_COSTS=$scratch/a.toml run info --costs
  ends_with 0
  grep -v '^note' "$scratch/a.toml" | diff - <(grep -v '^note' "$scratch/out") || fail "read again"
  # Without DC: UD is measured in its place, and the selection reads it there.
  run calibrate --profile connect-ib --rounds 3 --most-queue-pairs 128 --default-transport ud --output "$scratch/ud.toml"
  ends_with 0
  grep -q '^dc_sendrecv = .*"M half a pingpong round trip over UD-sendrecv' "$scratch/ud.toml" ||
    fail "UD in DC's place"
  grep -q '^dc_rdma = .*"assumed equal to receiver.dc_sendrecv' "$scratch/ud.toml" || fail "a ring over DC"
  TURNOUT_COSTS=$scratch/ud.toml run info --costs
  ends_with 0
  run calibrate --profile nosuch
  ends_with 2
  run calibrate --profile connect-ib --device virtual
  ends_with 2
  TURNOUT_FABRIC=cli-calibrate-$$ run calibrate --device virtual --rounds 3
  ends_with 0
  has 'name = "turnout0"' out
  TURNOUT_FABRIC=cli-calibrate-$$ run calibrate --device virtual --rounds 3 --default-transport ud
  ends_with 0
  has "median of 3" out
  has "over UD-sendrecv, in place of DC" out
  ;;
config_table)
  TURNOUT_MEMORY_BUDGET=64M run info --config
  ends_with 0
  has "TURNOUT_MEMORY_BUDGET = 64MiB  (bytes, default 256MiB)" out
  has "TURNOUT_RING_ENTRIES = 16  (count, the default)" out
  FI_TURNOUT_MEMORY_BUDGET=64M run info --config
  ends_with 0
  has "FI_TURNOUT_MEMORY_BUDGET = 64MiB  (bytes, default 256MiB)" out
  TURNOUT_MEMORY_BUDGET=32M FI_TURNOUT_MEMORY_BUDGET=64M run info --config
  ends_with 0
  has 'TURNOUT_MEMORY_BUDGET = "32M" overrides FI_TURNOUT_MEMORY_BUDGET = "64M"' err
  grep -q '^TURNOUT_MEMORY_BUDGET = 32MiB' "$scratch/out" || fail "which one wins"
  [ "$(grep -c '^TURNOUT_' "$scratch/out")" -le 45 ] || fail "tuning parameters are not asked for"
  # Those that match, and those that were changed.
  run info --config=credit
  ends_with 0
  has "TURNOUT_CREDITS = 16" out
  has "TURNOUT_TUNING: credits_first = 4" out
  ! grep -q TURNOUT_FABRIC "$scratch/out" || fail "what does not match"
  TURNOUT_TUNING=credits_first=8 TURNOUT_POLICY=aqps run info --config --changed
  ends_with 0
  has "TURNOUT_POLICY = aqps" out
  has "TURNOUT_TUNING: credits_first = 8" out
  [ "$(grep -c '^TURNOUT_' "$scratch/out")" -eq 3 ] || fail "what was not changed"
  run info --config=qwertyuiop
  ends_with 0
  has 'no setting matches "qwertyuiop"' out
  # Names of earlier versions.
  TURNOUT_START_CHANNEL=ud run info --config
  ends_with 0
  has "TURNOUT_START_CHANNEL is deprecated; use TURNOUT_DEFAULT_TRANSPORT" err
  has "TURNOUT_DEFAULT_TRANSPORT = ud" out
  ;;
version_and_usage)
  run --version
  ends_with 0
  has "turnout " out
  run --help
  ends_with 0
  has "report" out
  run -V
  ends_with 0
  # Wrong use ends with 2 and names what was meant.
  run
  ends_with 2
  has "a command is missing" err
  run frobnicate
  ends_with 2
  has 'unknown command "frobnicate"' err
  run reprot
  ends_with 2
  has "did you mean report?" err
  run report --htlm x
  ends_with 2
  has "turnout report: unknown option \"--htlm\"; did you mean --html?" err
  run sim ring --rank 3
  ends_with 2
  has "did you mean --ranks?" err
  run plot source
  ends_with 2
  has "did you mean sources?" err
  run top --wait soon
  ends_with 2
  has "--wait" err
  run doctor now
  ends_with 2
  has 'unexpected argument "now"' err
  run report
  ends_with 2
  has "path" err
  run info --markdown
  ends_with 2
  has "--config" err
  run run
  ends_with 2
  has "turnout run -- mpirun" err
  # Help names each default as it is.
  run sim --help
  has "[turnout]" out
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
  FI_TURNOUT_RING_ENTRIES=17 run info
  ends_with 1
  has 'FI_TURNOUT_RING_ENTRIES = "17": expected a power of two' err
  FI_TURNOUT_MEMORY_BUGET=1 run info --config
  ends_with 0
  has "did you mean FI_TURNOUT_MEMORY_BUDGET?" err
  ;;
report)
  cp "$here"/reports/*.json "$scratch"
  run report "$scratch"
  ends_with 0
  has "2 of 2 processes used Turnout" out
  has "DC-sendrecv -> RC-RDMA @1.0s" out
  [ "$(wc -l <"$scratch/out")" -le 25 ] || fail "a summary of more than 25 lines"
  run report --full "$scratch"
  ends_with 0
  has "rank 0 of 2" out
  has "rank 1 of 2" out
  has "All processes: 2" out
  has "DC-sendrecv -> RC-RDMA @1.0s" out
  run report --peers 0 --decisions 0 "$scratch/rank-0.json"
  ends_with 0
  has "and 1 peers with fewer messages" out
  # One of the two has a profile.
  run report --full "$scratch"
  has "Profile of 2 processes (1 with a profile)" out
  run report --json "$scratch"
  ends_with 0
  python3 - "$scratch/out" <<'CHECK' || fail "the profile as JSON"
import json, sys
[job] = json.load(open(sys.argv[1]))
assert (job["turnout_job"], job["processes"], job["profiled"]) == (1, 2, 1), job
assert job["per_process"]["sent_messages"] == {"processes": 1, "min": 40.0, "mean": 40.0, "max": 40.0, "sum": 40.0}
assert job["per_process"]["connections"]["processes"] == 2
assert job["sent"]["control"] == [{"below": 128, "messages": 10, "bytes": 720}]
CHECK
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
  has "1 of 2 processes left a report" out
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
  TURNOUT_COSTS=/nonexistent TURNOUT_DEVICE=virtual TURNOUT_FABRIC=cli-test-$$ run info
  ends_with 1
  has "/nonexistent" out
  TURNOUT_DEVICE=mlx5_nosuch run info
  ends_with 1
  has "mlx5_nosuch" out
  TURNOUT_DEVICE=virtual TURNOUT_VERBS_PATH="$scratch" run info
  ends_with 1
  has "TURNOUT_VERBS_PATH" out
  ;;
sim)
  run sim ring --ranks 8 --policy aqps,rc-rdma-od --seed 3 --option rounds=20 \
    --json "$scratch/a.json" --csv "$scratch/a.csv" --timeline "$scratch/t.json"
  ends_with 0
  has "ring: 8 ranks" out
  has "modelled, not measured: profile connect-ib" out
  python3 - "$scratch" <<'END' || fail "what it wrote"
import csv, json, sys
folder = sys.argv[1]
results = json.load(open(f"{folder}/a.json"))["results"]
assert [r["policy"] for r in results] == ["aqps", "rc-rdma-od"], results
assert results[0]["messages"] == 160
rows = list(csv.DictReader(open(f"{folder}/a.csv")))
assert {r["policy"] for r in rows} == {"aqps", "rc-rdma-od"}
for policy in ("aqps", "rc-rdma-od"):
    events = json.load(open(f"{folder}/t-{policy}.json"))["traceEvents"]
    assert any(e["ph"] == "i" and e["name"] == "arrives" for e in events)
END
  # The same seed, the same events; another, others.
  hash_of() { grep -o '"hash": "[0-9a-f]*"' "$1" | head -1; }
  run sim ring --ranks 8 --seed 3 --policy aqps --option rounds=20 --json "$scratch/b.json"
  [ "$(hash_of "$scratch/a.json")" = "$(hash_of "$scratch/b.json")" ] || fail "two runs of one seed differ"
  run sim ring --ranks 8 --seed 4 --policy aqps --option rounds=20 --json "$scratch/c.json"
  [ "$(hash_of "$scratch/a.json")" != "$(hash_of "$scratch/c.json")" ] || fail "two seeds do not differ"
  ;;
sim_workloads)
  # Every pattern runs on the real core; alltoone over 64 ranks overflows the adapter's caches.
  for workload in alltoall bowtie broadcast masterworker pingpong random ring shifts steal stencil2d \
    stencil3d trees overlap flood incast; do
    run sim "$workload" --ranks 8 --policy aqps
    ends_with 0
  done
  for workload in onetoall alltoone; do
    run sim "$workload" --ranks 64 --policy static:dc-sendrecv,rc-rdma-od --option messages=2000
    ends_with 0
  done
  run sim repeat --ranks 8 --option messages_out=500 --option messages_in=500
  ends_with 0
  printf 'turnout-trace 1\nranks 2\nrank 0\ns 1 1 8 7 0\nrank 1\nr 1 0 8 7 0\nw 1\nend\n' >"$scratch/trace"
  run sim replay --trace "$scratch/trace" --ranks 4
  ends_with 0
  has "replay: 4 ranks" out
  run sim nwchem --ranks 16 --ranks-per-node 4 --option tasks=20 --policy turnout,rc-rdma-od --limits 32,2
  ends_with 0
  has "partners per process, turnout:" out
  has "partners per process, rc-rdma-od:" out
  has "      2  clairvoyant" out
  ;;
sim_errors)
  run sim ring --ranks 0
  ends_with 2
  has "--ranks 0: expected 1 to" err
  run sim rings
  ends_with 2
  has "did you mean ring?" err
  run sim ring --policy aqsp
  ends_with 2
  has "did you mean aqps?" err
  run sim ring --option round=3
  ends_with 2
  has "did you mean rounds?" err
  run sim ring --option rounds
  ends_with 2
  has "--option rounds: expected name=value" err
  run sim ring --set memory_bugdet=1
  ends_with 2
  has "did you mean memory_budget?" err
  run sim ring --profile conect-ib
  ends_with 2
  has "connect-ib" err
  run sim ring --trace "$scratch/none"
  ends_with 2
  has "--trace goes with" err
  run sim replay --trace "$scratch/none"
  ends_with 1
  has "$scratch/none" err
  run sim --experiment aqps-onetoal
  ends_with 2
  has "did you mean aqps-onetoall?" err
  run sim
  ends_with 2
  has "--list" err
  run sim ring --limits 4,0
  ends_with 2
  has "numbers of connections from 1 on" err
  run sim ring --ranks 8 --json /nonexistent/x
  ends_with 1
  has "/nonexistent/x" err
  run sim ring --ranks 8 --time-limit 1us
  ends_with 1
  has "ring under turnout" err
  run sim --list
  ends_with 0
  has "alltoone" out
  has "aqps-memory" out
  ;;
sim_experiment)
  # An endpoint of connect-ib begins with 9 MB under turnout; 63 connections need 90.
  run sim --experiment budget --sizes 64 --set memory_budget=16000000 --output "$scratch/pages"
  ends_with 0
  grep -q "^| turnout | 64 | 16000000 B | .*| yes |$" "$scratch/pages/budget.md" || fail "no peak of turnout"
  grep -q "^| rc-rdma-od | 64 | none | " "$scratch/pages/budget.md" || fail "nothing without a budget"
  ! grep -qF "**no**" "$scratch/pages/budget.md" || fail "over the budget"
  run sim --experiment aqps-onetoall --sizes 4,8 --option messages=2000 --option warmup=100 \
    --output "$scratch/pages"
  ends_with 0
  grep -q "Against the paper" "$scratch/pages/aqps-onetoall.md" || fail "no page"
  data=$scratch/pages/aqps-onetoall.json
  [ -s "$data" ] || fail "no data"
  if has_matplotlib; then
    grep -q "^!\[aqps-onetoall: .*\](aqps-onetoall.svg)$" "$scratch/pages/aqps-onetoall.md" || fail "no picture"
    grep -q "budget: 16 MB" "$scratch/pages/budget.svg" || fail "no line for the budget"
    # Readers in dark mode see the text, too.
    grep -q "prefers-color-scheme:dark" "$scratch/pages/aqps-onetoall.svg" || fail "no dark mode"
    ! grep -q "#ffffff" "$scratch/pages/aqps-onetoall.svg" || fail "a white background"
    # Text stays text, and the same data give the same file.
    grep -q "<text.*>processes</text>" "$scratch/pages/aqps-onetoall.svg" || fail "text drawn as paths"
    /usr/bin/python3 "$here/../../tools/plot.py" "$data" "$scratch/again.svg" || fail "plot.py"
    cmp "$scratch/pages/aqps-onetoall.svg" "$scratch/again.svg" || fail "two pictures of the same data"
  else
    has "python3-matplotlib" err
    grep -q "tools/plot.py aqps-onetoall.json" "$scratch/pages/aqps-onetoall.md" || fail "no word on the plot"
  fi
  ;;
sim_kept_results)
  experiment() { run sim --experiment policies --sizes 4 --workloads "$1" --budgets 9MiB --save "$scratch/kept" --output "$scratch/pages" "${@:2}"; }
  experiment trees,steal --policy dc-rdma-od,aqps --jobs 2
  ends_with 0
  [ "$(ls "$scratch/kept" | wc -l)" -eq 4 ] || fail "not four results"
  has "[4/4]" err
  cp "$scratch/pages/policies.md" "$scratch/first.md"
  # From the folder: no run, the same page.
  experiment trees,steal --policy dc-rdma-od,aqps --jobs 2
  ends_with 0
  ! grep -qF "[4/4]" "$scratch/err" || fail "runs were made again"
  cmp "$scratch/first.md" "$scratch/pages/policies.md" || fail "two pages of the same results"
  # A damaged one is told of and made again, a missing one added.
  for one in "$scratch"/kept/*.json; do break; done
  echo '{' >"$one"
  experiment trees,steal --policy dc-rdma-od,aqps
  ends_with 0
  has "repeating the run" err
  has "[1/1]" err
  cmp "$scratch/first.md" "$scratch/pages/policies.md" || fail "another page after damage"
  # With a commit: sentinels beside the page, of runs that were read back, too.
  [ ! -e "$scratch/pages/policies.sentinels.json" ] || fail "sentinels without a commit"
  experiment trees,steal --policy dc-rdma-od,aqps --commit 0123456789
  ends_with 0
  grep -q 'commit `0123456789`' "$scratch/pages/policies.md" || fail "the page names no commit"
  [ "$(grep -c '"policy"' "$scratch/pages/policies.sentinels.json")" -eq 4 ] || fail "not four sentinels"
  run sim --experiment policies --jobs 2
  ends_with 2
  has "--save" err
  run sim --experiment policies --policy aqps --workloads tree
  ends_with 2
  has "did you mean trees?" err
  run sim --experiment aqps-onetoall --budgets 1GiB
  ends_with 2
  has "--budgets" err
  run sim --experiment aqps-onetoall --trace "$scratch/none"
  ends_with 2
  has "--trace: the experiment aqps-onetoall has its own workload" err
  run sim --experiment policies --trace "$scratch/none" --workloads trees
  ends_with 2
  has "leave out --workloads" err
  run sim --experiment policies --trace "$scratch/none" --commit 0123456789
  ends_with 2
  has "--commit:" err
  run sim --experiment policies --trace "$scratch/none"
  ends_with 1
  has "$scratch/none" err
  printf 'turnout-trace 1\nranks 2\nrank 0\ns 1 1 8 7 0\nrank 1\nr 1 0 8 7 0\nw 1\nend\n' >"$scratch/two.trace"
  run sim --experiment clairvoyant --trace "$scratch/two.trace" --budgets 32MiB --output "$scratch/pages"
  ends_with 0
  grep -q '^| two | 32MiB | all |' "$scratch/pages/clairvoyant.md" || fail "no map for the recording"
  grep -qF -- "--trace 'two'" "$scratch/pages/clairvoyant.md" || fail "the page names no recording"
  run sim --experiment aqps-onetoall --seeds 2
  ends_with 2
  has "runs once" err
  run sim --experiment teardown --sizes 8 --seeds 2,0
  ends_with 2
  has "from 1 to" err
  run sim --experiment teardown --sizes 8,12 --seeds 2,1 --option tasks=4 --output "$scratch/pages"
  ends_with 0
  grep -q "Medians of 2 seeds" "$scratch/pages/teardown.md" || fail "no medians"
  grep -q "One seed" "$scratch/pages/teardown.md" || fail "one seed is not told"
  ;;
plot_sources)
  {
    printf 'turnout-trace 1\nranks 3\nrank 0\n'
    for i in $(seq 1 50); do printf 'r 1 1 8 7 0\nw 1\nc 1000\n'; done
    for i in $(seq 1 50); do printf 'r 1 2 8 7 0\nw 1\n'; done
    printf 'rank 1\n'
    for i in $(seq 1 50); do printf 's 1 0 8 7 0\nw 1\n'; done
    printf 'rank 2\n'
    for i in $(seq 1 50); do printf 's 1 0 8 7 0\nw 1\n'; done
    printf 'end\n'
  } >"$scratch/a.trace"
  run plot sources "$scratch/a.trace" --periods 5 --output "$scratch/a.svg" --json "$scratch/a.json"
  has "100 messages of 3 sources in 5 periods and 3 groups" out
  if has_matplotlib; then
    ends_with 0
    grep -q "Who sends to rank 0" "$scratch/a.svg" || fail "no picture"
  else
    ends_with 1
    has "python3-matplotlib" err
  fi
  python3 - "$scratch/a.json" <<'END' || fail "what it computed"
import json, sys
plot = json.load(open(sys.argv[1]))["plots"][0]
rows = plot["darkness"]
assert rows[0] == [0] * 5, rows
# 250 events: 50 messages of rank 1 in the first 150, those of rank 2 in the others.
assert [cell > 0 for cell in rows[1]] == [True, True, True, False, False], rows
assert [cell > 0 for cell in rows[2]] == [False, False, False, True, True], rows
assert plot["x_to"] == 250 and max(map(max, rows)) == 1, plot
END
  run plot sources "$scratch/a.trace" --rank 3 --output "$scratch/b.svg"
  ends_with 2
  has "ranks 0 to 2" err
  run plot sources "$here/reports" --output "$scratch/b.svg"
  ends_with 2
  has "TURNOUT_TRACE" err
  run plot sources "$here/reports" "$scratch/a.trace"
  ends_with 2
  has "of one job" err
  run plot sources "$scratch/none"
  ends_with 2
  has "none" err
  run plot sources "$scratch/a.trace" --periods 0
  ends_with 2
  ;;
*) fail "no case $case" ;;
esac
echo "ok"
