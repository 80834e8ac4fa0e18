#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Boots the guest that tests/guest/build.sh made, runs a command of sh in it, and ends with its status:
# 124 when it took too long, 125 when the guest ended without one. The guest sees the host's files, read
# only, and may write the current folder.
#
#   tests/guest/run.sh [-c PROCESSORS] [-m MIB] [-t SECONDS] [-w SOCKET:1|SOCKET:2] FOLDER COMMAND
#
# -w: a network card to the guest that has the same socket and the other number (10.77.0.1, 10.77.0.2); the
# first waits for the second, but where the socket is there already (wire.py) both connect to it. Emulated
# (no KVM is needed): for what is right, not for how fast it is.
set -uo pipefail
processors=1 memory=1024 seconds=120 wire=
while getopts c:m:t:w: option; do
  case $option in
  c) processors=$OPTARG ;;
  m) memory=$OPTARG ;;
  t) seconds=$OPTARG ;;
  w) wire=$OPTARG ;;
  *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -eq 2 ] || {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
folder=$1
control=$(mktemp -d)
trap 'rm -rf "$control"' EXIT
printf 'cd "%s" || exit 126\n%s\n' "$PWD" "$2" >"$control/command"
network=(-nic none)
words="console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on no_timer_check turnout.scratch=$PWD"
tree=$(cd "$(dirname "$0")/../.." && pwd)
words+=" turnout.tree=$tree"
if [ -n "$wire" ]; then
  server=off
  if [ "${wire##*:}" = 1 ] && [ ! -S "${wire%:*}" ]; then server=on; fi
  for _ in $(seq 100); do
    if [ $server = on ] || [ -S "${wire%:*}" ]; then break; fi
    sleep 0.1
  done
  network=(-netdev "stream,id=wire,server=$server,addr.type=unix,addr.path=${wire%:*}"
    -device "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:0${wire##*:},romfile=")
  words+=" turnout.wire=${wire##*:}"
fi
share() { printf -- '-fsdev local,id=%s,path=%s,security_model=none,multidevs=remap%s -device virtio-9p-pci,fsdev=%s,mount_tag=%s' \
  "$1" "$2" "$3" "$1" "$1"; }
# shellcheck disable=SC2046  # words
timeout -k 5 "$seconds" qemu-system-x86_64 -machine q35,usb=off -accel tcg,thread=multi -cpu max \
  -smp "$processors" -m "$memory" -nodefaults -no-user-config -display none -no-reboot "${network[@]}" \
  -kernel "$folder/vmlinuz" -initrd "$folder/initramfs" -append "$words" \
  -chardev "file,id=console,path=$control/console" -serial chardev:console \
  -chardev stdio,id=output,signal=off -serial chardev:output \
  $(share control "$control" "") $(share scratch "$PWD" "") $(share host / ,readonly=on) \
  $(share tree "$tree" ,readonly=on) \
  </dev/null 2>"$control/qemu" | sed -u 's/\r$//'
status=${PIPESTATUS[0]}
if [ -s "$control/status" ]; then
  exit "$(cat "$control/status")"
fi
case $status in 124 | 137) status=124 ;; *) status=125 ;; esac
{
  echo "guest: it ended without a status ($status); its last words:"
  tail -n 5 "$control/qemu" "$control/console"
} >&2
exit "$status"
