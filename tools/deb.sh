#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the Debian package from the files of the working tree, in build/deb, and looks at it with lintian.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
  printf '== %s\n' "$@" >&2
  exit 1
}
version=$(sed -n 's/^project(turnout VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
[ -n "$version" ] || fail "CMakeLists.txt names no version."
tree=build/deb/turnout-$version
log=build/deb/build.log
rm -rf build/deb
mkdir -p "$tree"
# What git would archive, with changes that are not committed yet.
git ls-files -co --exclude-standard -z | xargs -0 cp --parents -P -t "$tree"
cp -r packaging/debian "$tree/debian"
printf 'turnout (%s) unstable; urgency=medium\n\n  * See /usr/share/doc/turnout/CHANGELOG.md.\n\n -- The Turnout authors <turnout@localhost.localdomain>  %s\n' \
  "$version" "$(date -R -d "@$(git log -1 --format=%ct)")" >"$tree/debian/changelog"
# debhelper hides the home folder, and so ccache's.
if command -v ccache >/dev/null; then
  CCACHE_DIR=$(ccache -k cache_dir)
  export CCACHE_DIR CCACHE_BASEDIR="$PWD/$tree" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
fi
printf '== building the package (%s)\n' "$log"
(cd "$tree" && DEB_BUILD_OPTIONS="parallel=$(nproc) nocheck" dpkg-buildpackage -b -us -uc) >"$log" 2>&1 ||
  fail "building the package failed:" "$(tail -n 15 "$log")"
package=$(echo build/deb/turnout_"$version"_*.deb)
lintian --allow-root --fail-on error,warning "$package" || fail "lintian found errors or warnings in $package."
printf '== %s (%s)\n' "$package" "$(du -h "$package" | cut -f1)"
