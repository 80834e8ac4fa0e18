#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's rping, ucmatose, udaddy, cmtime, rdma_server and rdma_xserver with their clients, over the adapter
# and its librdmacm. cm_programs.sh FOLDER-OF-LIBRDMACM [TURNOUT]: with the program `turnout`, over the system's
# libibverbs and libmlx5 on the emulated mlx5.
set -uo pipefail
scratch=$(mktemp -d)
tree=$(mktemp -d)
trap 'unset LD_PRELOAD; rm -rf "$scratch" "$tree"' EXIT
for variable in ${!TURNOUT_*}; do unset "$variable"; done
export TURNOUT_FABRIC=cm-programs-$$
port=$((20000 + $$ % 10000))
if [ $# -gt 1 ]; then
  variables=$(XDG_RUNTIME_DIR=$tree "$2" verbs --mlx5 --env) || exit 1
  eval "$variables"
else
  export LD_LIBRARY_PATH=$1
fi

fail() {
  cat "$scratch"/*
  printf 'FAILED: %s\n' "$*"
  exit 1
}
[ $# -eq 1 ] || ibv_devices | grep -q mlx5_0 || fail "no mlx5"
listens() { grep -q "@turnout-cm-$(id -u)-$TURNOUT_FABRIC-[0-9a-f]*-$port-" /proc/net/unix; }

# rping's server destroys its event channel while its other thread may be on its way back into
# rdma_get_cm_event with it, which then fails and ends the program: with 255, after all is done.
ends_by_its_own_race() {
  [ "$1" = 255 ] && grep -q '^rdma_get_cm_event: Bad file descriptor' "$scratch/server" &&
    grep -q 'server DISCONNECT EVENT' "$scratch/server"
}

# pair SERVER CLIENT: each a command line; the port is appended to both.
pair() {
  port=$((port + 1))
  # shellcheck disable=SC2086
  timeout 60 $1 -p "$port" >"$scratch/server" 2>&1 &
  local server=$!
  for _ in $(seq 200); do
    listens && break
    sleep 0.05
  done
  # shellcheck disable=SC2086
  timeout 60 $2 -p "$port" >"$scratch/client" 2>&1 || fail "$2: status $?"
  wait "$server" || ends_by_its_own_race $? || fail "$1: status $?"
  ! grep -i 'error\|fail' "$scratch"/* || fail "$1, $2"
}

pair "rping -s -v -C 10 -V" "rping -c -a 127.0.0.1 -v -C 10 -V"
[ "$(grep -c 'ping data: rdma-ping' "$scratch/client")" = 10 ] || fail "rping: not ten pings"
pair "rping -s -a ::1 -C 3 -S 4000" "rping -c -a ::1 -C 3 -S 4000"
# These have no option for the port in both roles that all versions share: the default's.
same() {
  timeout 60 $1 >"$scratch/server" 2>&1 &
  local server=$!
  for _ in $(seq 200); do
    grep -q "@turnout-cm-$(id -u)-$TURNOUT_FABRIC-" /proc/net/unix && break
    sleep 0.05
  done
  timeout 60 $2 >"$scratch/client" 2>&1 || fail "$2: status $?"
  wait "$server" || fail "$1: status $?"
}
same "ucmatose -C 10 -c 4" "ucmatose -s 127.0.0.1 -C 10 -c 4"
same "ucmatose -m" "ucmatose -s localhost -m"
same "udaddy -C 5 -c 2" "udaddy -s 127.0.0.1 -C 5 -c 2"
# AF_IB: the port's GID, and service ids.
gid=$(ibv_devinfo -v | sed -n 's/.*GID\[ *0\]:[[:space:]]*//p')
same "udaddy -f gid -C 5 -c 2" "udaddy -f gid -s $gid -C 5 -c 2"
same "ucmatose -f gid -P ib -b $gid" "ucmatose -f gid -P ib -s $gid"
same rdma_server rdma_client
# Its server ends by a signal only.
timeout -k 5 60 cmtime -c 50 >"$scratch/server" 2>&1 &
server=$!
for _ in $(seq 200); do
  grep -q "@turnout-cm-$(id -u)-$TURNOUT_FABRIC-" /proc/net/unix && break
  sleep 0.05
done
timeout -k 5 60 cmtime -s 127.0.0.1 -c 50 >"$scratch/client" 2>&1 || fail "cmtime: status $?"
grep -q '^destroy ' "$scratch/client" || fail "cmtime: no times"
kill $server
wait $server
same "rdma_xserver -c x" "rdma_xclient -c x"
! grep -q "@turnout/$(printf %x "$(id -u)")/$TURNOUT_FABRIC/" /proc/net/unix || fail "somebody is left"
