#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs BUILD (build/release), or takes an installation away: tools/install.sh install|uninstall PREFIX
#
# The files and the folders that an installation made are listed in PREFIX/share/turnout/installed, so
# taking it away needs no build tree and leaves what others put there. DESTDIR is put before PREFIX.
set -euo pipefail
cd "$(dirname "$0")/.."
action=${1:?usage: tools/install.sh install|uninstall PREFIX}
prefix=${2:?usage: tools/install.sh install|uninstall PREFIX}
fail() {
  printf '== %s\n' "$@" >&2
  exit 1
}
[[ $prefix == /* ]] || fail "PREFIX=$prefix is no absolute path."
root=${DESTDIR:-}$prefix
list=$root/share/turnout/installed

case $action in
  install)
    stage=$(mktemp -d)
    trap 'rm -rf "$stage"' EXIT
    DESTDIR=$stage cmake --install "${BUILD:-build/release}" --prefix "$prefix" --strip >build/install.log 2>&1 ||
      fail "installing failed:" "$(tail -n 5 build/install.log)"
    # Its own list, and the folders of an earlier installation.
    {
      [ ! -f "$list" ] || grep '/$' "$list" || true
      (cd "$stage$prefix" && find . -mindepth 1 -type d -printf '%P/\n') | while read -r folder; do
        [ -d "$root/$folder" ] || printf '%s\n' "$folder"
      done
      [ -d "$root" ] || printf './\n'
      (cd "$stage$prefix" && find . ! -type d -printf '%P\n')
      printf 'share/turnout/installed\n'
    } | sort -u >"$stage/installed"
    mkdir -p "$root" || fail "$root cannot be made; run this as a user who may, or with another PREFIX."
    [ -w "$root" ] || fail "$root cannot be written; run this as a user who may, or with another PREFIX."
    cp -a --no-preserve=ownership "$stage$prefix/." "$root/"
    install -m 644 "$stage/installed" "$list"
    printf '== installed in %s; try: %s/bin/turnout doctor\n' "$root" "$root"
    ;;
  uninstall)
    [ -f "$list" ] || fail "nothing of Turnout is installed in $root ($list is not there)."
    mapfile -t lines <"$list"
    for line in "${lines[@]}"; do
      [[ $line != /* && $line != *..* ]] || fail "$list names $line, which is not below $root."
    done
    for line in "${lines[@]}"; do
      [[ $line == */ ]] || rm -f "$root/$line"
    done
    # The deepest first; a folder in which others put something stays.
    printf '%s\n' "${lines[@]}" | grep '/$' | sort -r | while read -r folder; do
      [ "$folder" != ./ ] || folder=
      rmdir --ignore-fail-on-non-empty "$root/$folder" 2>/dev/null || true
    done
    printf '== taken away from %s\n' "$root"
    ;;
  *) fail "usage: tools/install.sh install|uninstall PREFIX" ;;
esac
