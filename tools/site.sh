#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the documentation site in build/site from docs/ and mkdocs.yml. Any broken link is an error.
#
#   tools/site.sh           build
#   tools/site.sh serve     show it at http://127.0.0.1:8000 and rebuild it after each change
set -euo pipefail
cd "$(dirname "$0")/.."
mkdocs=${SITE_VENV:-.cache/site}/bin/mkdocs
[ -x "$mkdocs" ] || {
  echo "== $mkdocs is missing: run make site" >&2
  exit 1
}
export NO_MKDOCS_2_WARNING=1
case ${1:-build} in
  build)
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    "$mkdocs" build --strict --clean >"$log" 2>&1 || {
      grep -v '^INFO' "$log" >&2
      exit 1
    }
    printf '== the site is in build/site: open build/site/index.html\n'
    ;;
  serve) exec "$mkdocs" serve --strict ;;
  *)
    echo "usage: tools/site.sh [build | serve]" >&2
    exit 1
    ;;
esac
