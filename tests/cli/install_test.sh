#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `make install`: what is installed can be moved, names no path of the source tree, runs an MPI job with nothing
# set, and is taken away without a rest.
#
#   install_test.sh BUILD_DIR
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export BUILD=$1
scratch=$(mktemp -d "${TMPDIR:-/tmp}/turnout-install-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}
run() { env -i PATH=/usr/bin:/bin HOME="$scratch" TMPDIR="$scratch" TURNOUT_FABRIC="install-$$" \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"; }

mkdir -p "$scratch/first/share"
echo "of others" >"$scratch/first/share/file"
"$root/tools/install.sh" install "$scratch/first"
found=$(grep -rlF "$root" "$scratch/first" || true)
[ -z "$found" ] || fail "a path of the source tree is in: $found"
found=$(grep -rlF "$scratch" "$scratch/first" || true)
[ -z "$found" ] || fail "the prefix is in: $found"

mv "$scratch/first" "$scratch/moved"
turnout=$scratch/moved/bin/turnout
cd /
run "$turnout" --version | grep -q '^turnout [0-9]' || fail "no version"
run "$turnout" sim --list | grep -q connect-ib || fail "no profiles"
run mpicc.openmpi "$root/examples/ring.c" -o "$scratch/ring"
run "$turnout" run -- mpirun.openmpi -n 2 "$scratch/ring" >"$scratch/out" 2>&1 || fail "$(cat "$scratch/out")"
grep -q 'the token is 2000: right' "$scratch/out" || fail "$(cat "$scratch/out")"
grep -q '2 of 2 processes used Turnout' "$scratch/out" || fail "$(cat "$scratch/out")"
run "$turnout" verbs -- ibv_devices | grep -q turnout0 || fail "no virtual adapter"
[ "$(PKG_CONFIG_PATH=$scratch/moved/lib/pkgconfig pkg-config --modversion turnout)" = \
  "$(run "$turnout" --version | cut -d' ' -f2)" ] || fail "pkg-config"
[ -f "$(PKG_CONFIG_PATH=$scratch/moved/lib/pkgconfig pkg-config --variable=providerdir turnout)/libturnout-fi.so" ] ||
  fail "pkg-config names another folder of the provider"

# Over itself, as an upgrade; then away.
"$root/tools/install.sh" install "$scratch/moved"
"$root/tools/install.sh" uninstall "$scratch/moved"
left=$(cd "$scratch/moved" && find . | sort | tr '\n' ' ')
[ "$left" = ". ./share ./share/file " ] || fail "left: $left"
DESTDIR=$scratch/stage "$root/tools/install.sh" install /usr
[ -x "$scratch/stage/usr/bin/turnout" ] || fail "DESTDIR"
DESTDIR=$scratch/stage "$root/tools/install.sh" uninstall /usr
[ ! -e "$scratch/stage/usr" ] || fail "left: $(find "$scratch/stage")"
! "$root/tools/install.sh" uninstall "$scratch/moved" 2>"$scratch/out" || fail "uninstall of nothing"
grep -q 'nothing of Turnout is installed' "$scratch/out" || fail "$(cat "$scratch/out")"
echo "install_test: ok"
