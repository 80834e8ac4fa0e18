#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What verbs_users.py has no case for: servers that only a signal ends (udpong, rcopy), IPv6, and programs of
# sockets through rdma-core's librspreload. rsocket_programs.sh TURNOUT
set -uo pipefail
turnout=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for variable in ${!TURNOUT_*}; do unset "$variable"; done
export TURNOUT_FABRIC=rsocket-programs-$$
port=$((20000 + $$ % 10000))
preload=

fail() {
  cat "$scratch"/*.txt
  printf 'FAILED: %s\n' "$*"
  exit 1
}
# Beside what `turnout verbs` preloads. Its process is the caller's: to be killed by that one's number.
run() {
  if [ -z "$preload" ]; then
    exec timeout -k 5 60 "$turnout" verbs -- "$@"
  else
    # shellcheck disable=SC2016
    exec timeout -k 5 60 "$turnout" verbs -- sh -c 'LD_PRELOAD=$0:$LD_PRELOAD exec "$@"' "$preload" "$@"
  fi
}

listens() { grep -q "@turnout-cm-$(id -u)-$TURNOUT_FABRIC-[0-9a-f]*-$port-" /proc/net/unix; }

# pair SERVER CLIENT: each a command line; the port is appended to both. A client that comes before
# the server listens is refused, and comes again.
pair() {
  port=$((port + 1))
  # shellcheck disable=SC2086
  run $1 -p "$port" >"$scratch/server.txt" 2>&1 &
  local server=$! status=1
  # A listener of ours, and not the kernel's.
  case $1 in
    udpong* | *"-T f"*) ;;
    *)
      for _ in $(seq 200); do
        listens && break
        sleep 0.05
      done
      listens || fail "$1: no rsocket listens"
      ;;
  esac
  for _ in $(seq 40); do
    sleep 0.25
    # shellcheck disable=SC2086
    (run $2 -p "$port") >"$scratch/client.txt" 2>&1 && status=0 && break
    grep -qi 'refused' "$scratch/client.txt" || break
  done
  [ $status = 0 ] || fail "$2"
  if [ "${3:-}" = stays ]; then
    kill $server # timeout hands it on, and kills what does not end
    wait $server
  else
    wait $server || fail "$1: status $?"
  fi
  ! grep -i 'error\|fail' "$scratch/client.txt" || fail "$1, $2"
  printf 'ok: %s\n' "$2"
}

for size in 64 65536 1000000; do
  common="rstream -T v -T b -f ipv6 -S $size -C 20 -I 10"
  pair "$common -b ::1" "$common -s ::1"
done
# Pieces much larger than the buffers.
pair "rstream -T v -T b -B 8192 -S 3000000 -C 5 -I 5" "rstream -T v -T b -B 8192 -S 3000000 -C 5 -I 5 -s 127.0.0.1"
for mode in "-T b" "-T a"; do
  pair "riostream $mode -T v -S 65536 -C 20 -I 50" "riostream $mode -T v -S 65536 -C 20 -I 50 -s 127.0.0.1"
done
# Its server serves until it is killed. Small enough that nothing has to be lost.
for mode in "-T b" "-T n" "-T a" "-T e"; do
  pair "udpong $mode -b 127.0.0.1 -C 100 -S 64" "udpong $mode -C 100 -S 64 -s 127.0.0.1" stays
done
# Longer than the MTU; its own buffer ends at 8 KiB.
pair "udpong -T e -b 127.0.0.1 -C 50 -S 5000" "udpong -T e -C 50 -S 5000 -s 127.0.0.1" stays
head -c 20000000 /dev/urandom >"$scratch/source"
pair rcopy "rcopy $scratch/source 127.0.0.1:$scratch/copy" stays
cmp "$scratch/source" "$scratch/copy" || fail "rcopy: the copy differs"

# Calls of ordinary sockets, taken over by rdma-core's library.
preload=$(dpkg -L librdmacm1 2>/dev/null | grep 'librspreload.so.1$')
[ -n "$preload" ] || fail "librspreload.so.1 of the package librdmacm1 is not installed"
for mode in "" "-T n" "-T a" "-T b"; do
  pair "rstream -T s -T v $mode -S 5000" "rstream -T s -T v $mode -S 5000 -s 127.0.0.1"
done
# RDMAV_FORK_SAFE: the server accepts with TCP, and its child changes over.
export RDMAV_FORK_SAFE=1
pair "rstream -T f -T v -S 5000" "rstream -T s -T v -S 5000 -s 127.0.0.1"
