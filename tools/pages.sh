#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes the pages with figures anew: make pages.
#
#   tools/pages.sh [PAGE...]     of docs/experiments, and nwchem, of docs; none: all of them
#   tools/pages.sh wall          those of real time: benchmarks, micro, verbs-speed, scale
#
# A page names the last commit that can have changed its results, so that a second run changes nothing. A page
# that names that commit already is left as it is; FORCE=1 writes it all the same.
# Results of single runs are kept in .cache/pages/COMMIT: what was interrupted goes on there.
# FOLDER (docs/experiments) is where the pages go, JOBS (the number of cores) how many runs go at once.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${FOLDER:-docs/experiments}
jobs=${JOBS:-$(nproc)}
release=build/release
# What the results of the model follow from; those of real time follow from the whole library.
model=(base core hca profiles sim)
library=("${model[@]}" provider bench)

fail() {
  printf '== %s\n' "$@" >&2
  exit 1
}

# The commit of a page that follows from these folders: commit_of [OPTION OF GIT LOG]... -- FOLDER...
commit_of() {
  local options=()
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  git diff --quiet HEAD "$@" ||
    fail "uncommitted changes in:${*#--}" "A page names its commit: commit them first, or stash them."
  git log -1 --abbrev=10 --format=%h "${options[@]}" "$@"
}

# Each page: the options of its experiment.
options_of() {
  case $1 in
    aqps-onetoall | aqps-alltoone | aqps-repeat) echo "--profile connect-ib-aqps" ;;
    aqps-memory) echo "--profile connect-ib --sizes 8,16,32,64,128,256,512,1024" ;;
    clairvoyant) echo "--profile connect-ib --sizes 8,16,64,256" ;;
    eager) echo "--profile connect-ib --sizes 16,64,256" ;;
    policies) echo "--profile connect-ib --sizes 64,1024" ;;
    rendezvous) echo "--profile connectx-3" ;;
    budget | nodes | teardown | validation) echo "--profile connect-ib" ;;
    nwchem) ;;  # tools/nwchem_page.py has them
    *) fail "no such page: $1. There are: ${several[*]} ${single[*]} wall" ;;
  esac
}
# Experiments that make their runs in several processes, and those that use one alone.
several=(rendezvous aqps-onetoall aqps-alltoone aqps-repeat eager teardown policies clairvoyant nwchem)
single=(budget nodes aqps-memory validation)

# Writes one page with so many processes.
write_page() {
  local page=$1 processes=$2 begun=$SECONDS options file
  file=$folder/$page.md
  [ "$page" != nwchem ] || [ -n "${FOLDER:-}" ] || file=docs/nwchem.md
  if [ -z "${FORCE:-}" ] && grep -q "commit \`$commit\`" "$file" 2>/dev/null; then
    printf '== %s: made at commit %s already\n' "$page" "$commit"
    return
  fi
  printf '== %s (after %d min)\n' "$page" $((SECONDS / 60))
  if [ "$page" = nwchem ]; then  # a table in a page of words
    tools/nwchem_page.py "$release/bin/turnout" docs/nwchem.md --commit "$commit" --jobs "$processes" --output "$file"
  else
    read -ra options <<<"$(options_of "$page")"
    "$release/bin/turnout" sim --experiment "$page" --seed 1 "${options[@]}" --commit "$commit" \
      --save ".cache/pages/$commit" --jobs "$processes" --output "$folder" 2>&1 | sed -u "s/^/$page: /"
  fi
  printf '== %s: done in %d min %d s\n' "$page" $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60))
}

# Pages of real time; nothing else should run.
write_wall() {
  local commit python=${VENV:-.venv}/bin/python
  commit=$(commit_of -- "${library[@]}")
  tools/build.sh release all extras
  export TURNOUT_COMMIT=$commit
  bench/run.sh "$release"
  "$python" bench/run_micro_page.py "$release"
  bench/run_verbs.py "$release" --output docs/verbs-speed.md
  bench/run_scale.py "$release" --output "$folder/scale.md"
}

wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=("${several[@]}" "${single[@]}")
wall=
for page in "${wanted[@]}"; do
  if [ "$page" = wall ]; then wall=1; else options_of "$page" >/dev/null; fi
done
# In the order of the lists above.
chosen() {
  local page
  for page in "$@"; do
    [[ " ${wanted[*]} " != *" $page "* ]] || printf '%s\n' "$page"
  done
}

# A commit that leaves all results of the model the same says so.
commit=$(commit_of --invert-grep "--grep=^Results: unchanged$" -- "${model[@]}")
mkdir -p ".cache/pages/$commit" "$folder"
if [ -n "$(chosen "${several[@]}" "${single[@]}")" ]; then tools/build.sh release turnout turnout_sim_program; fi
for page in $(chosen "${several[@]}"); do write_page "$page" "$jobs"; done
failed=0
running=0
for page in $(chosen "${single[@]}"); do
  if [ "$running" -ge "$jobs" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  write_page "$page" 1 &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
[ "$failed" -eq 0 ] || fail "a page was not written; see above"
tools/claims.py "$folder"
[ -z "$wall" ] || write_wall
printf '== all pages asked for are of commit %s, after %d min %d s\n' "$commit" $((SECONDS / 60)) $((SECONDS % 60))
