#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every name that rdma-core's libraries export, with its version, is exported by ours.
# symbols.sh FOLDER-OF-OURS
set -euo pipefail
exported() { nm -D --with-symbol-versions --defined-only "$1" | awk '$2 != "A" { sub("@@", "@", $3); print $3 }' | sort -u; }
status=0
for library in libibverbs.so.1 libmlx5.so.1 librdmacm.so.1; do
  # Not ours, whatever LD_LIBRARY_PATH says.
  theirs=$(ldconfig -p | awk -v name="$library" '$1 == name && !seen++ { print $NF }')
  [ -n "$theirs" ] || { echo "rdma-core's $library is not installed"; exit 1; }
  missing=$(comm -23 <(exported "$theirs") <(exported "$1/$library"))
  if [ -n "$missing" ]; then
    printf '%s lacks:\n%s\n' "$library" "$missing"
    status=1
  fi
  printf '%s: %s names\n' "$library" "$(exported "$theirs" | wc -l)"
done
exit $status
