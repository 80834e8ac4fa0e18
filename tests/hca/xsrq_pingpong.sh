#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's ibv_xsrq_pingpong over the adapter: a server and three clients that share an XRC domain,
# so that the server's messages to one client travel through the others' targets, too.
# xsrq_pingpong.sh PROGRAM FOLDER-OF-LIBIBVERBS
set -uo pipefail
program=$1
export LD_LIBRARY_PATH=$2
clients=3
messages=200
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for variable in ${!TURNOUT_*}; do unset "$variable"; done
export TURNOUT_FABRIC=xsrq-pingpong-$$
port=$((20000 + $$ % 10000))

fail() {
  cat "$scratch"/*
  printf 'FAILED: %s\n' "$*"
  exit 1
}
listens() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "$(printf ':%04X .* 0A ' "$port")"; }

for events in "" --events; do
  timeout 60 "$program" --port="$port" --clients="$clients" --num_tests="$messages" $events \
    >"$scratch/server" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    listens && break
    sleep 0.05
  done
  pids=()
  for client in $(seq "$clients"); do
    timeout 60 "$program" --port="$port" --num_tests="$messages" $events localhost \
      >"$scratch/client$client" 2>&1 &
    pids+=($!)
  done
  for pid in "$server" "${pids[@]}"; do
    wait "$pid" || fail "a process ended with status $?${events:+, $events}"
  done
  grep -q '^success$' "$scratch/server" || fail "the server does not say success"
  # A port that was just in use may not be free at once.
  port=$((port + 1))
done
! grep -q "@turnout/$(printf %x "$(id -u)")/$TURNOUT_FABRIC/" /proc/net/unix || fail "somebody is left"
