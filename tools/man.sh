#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the man pages in docs/man from docs/turnout.1.md and docs/fi_turnout.7.md.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v lowdown >/dev/null || {
  echo "== lowdown is not installed: apt-get install lowdown" >&2
  exit 1
}
version=$(sed -n 's/^project(turnout VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
mkdir -p docs/man
for page in turnout.1 fi_turnout.7; do
  # Section headings are capitals in man pages; links to files of the repository are text.
  sed -e 1d -e '/^## /s/.*/\U&/' -e 's/\[\([^]]*\)\]([^)]*)/\1/g' "docs/$page.md" |
    lowdown -s -Tman -M title="${page%.*}" -M section="${page##*.}" -M source="Turnout $version" \
      -M shiftheadinglevelby=-1 -M date= >"docs/man/$page"
done
