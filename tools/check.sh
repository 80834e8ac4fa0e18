#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks of the sources: format, every header compiles alone, clang-tidy.
#
#   tools/check.sh          files that differ from the last commit, all if there is no difference
#   tools/check.sh --all    all files
set -uo pipefail
cd "$(dirname "$0")/.."
folders=(base hca core provider record sim cli bench tests)
present=()
for folder in "${folders[@]}"; do [ -d "$folder" ] && present+=("$folder"); done

all_sources() { find "${present[@]}" \( -name '*.h' -o -name '*.cpp' -o -name '*.c' \) | sort; }
changed_sources() {
  { git diff --name-only HEAD -- "${present[@]}" && git ls-files -o --exclude-standard "${present[@]}"; } 2>/dev/null |
    grep -E '\.(h|cpp|c)$' | sort -u | while read -r file; do [ -f "$file" ] && echo "$file"; done
}
mapfile -t sources < <(all_sources)
chosen=()
[ "${1:-}" = "--all" ] || mapfile -t chosen < <(changed_sources)
[ ${#chosen[@]} -gt 0 ] || chosen=("${sources[@]}")
bad=0

printf '== clang-format of %d files\n' ${#sources[@]}
clang-format-14 --dry-run -Werror "${sources[@]}" 2>&1 | grep -E 'error:' | cut -d: -f1 | sort -u |
  sed 's/^/   not formatted: /' >build/format.txt
if [ -s build/format.txt ]; then
  cat build/format.txt
  echo "== run: make format"
  bad=1
fi

printf '== every header alone\n'
tools/check_headers.sh || bad=1

printf '== licences and man pages\n'
tools/check_licence.sh || bad=1
cp -r docs/man build/man.before && tools/man.sh && diff -r build/man.before docs/man ||
  { echo "== docs/man is not what tools/man.sh makes of docs/*.md: run make docs"; bad=1; }
rm -rf build/man.before

commands=build/release/compile_commands.json
database=build/tidy
mapfile -t units < <(printf '%s\n' "${chosen[@]}" | grep '\.cpp$' | grep -v '^tests/')
if [ -f $commands ] && [ ${#units[@]} -gt 0 ]; then
  mkdir -p $database  # clang cannot read headers that gcc has compiled
  sed -E 's/ -Winvalid-pch -include [^ ]+//' $commands >$database/compile_commands.json
  printf '== clang-tidy of %d files\n' ${#units[@]}
  printf '%s\0' "${units[@]}" |
    xargs -0 -n 2 -P "$(nproc)" clang-tidy-14 --quiet -p $database >build/tidy.log 2>/dev/null || bad=1
  grep -E '(warning|error):' build/tidy.log | sort -u
fi
[ $bad -eq 0 ] && echo "== sources are clean"
exit $bad
