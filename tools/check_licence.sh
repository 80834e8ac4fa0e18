#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every source file names its licence in its first two lines; one version everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
while IFS= read -r file; do
  if ! head -n 2 "$file" | grep -q 'SPDX-License-Identifier: BSD-3-Clause'; then
    echo "   no SPDX-License-Identifier: $file"
    bad=1
  fi
done < <(find base bench cli cmake core examples hca packaging provider record sim tests tools \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.c' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' \
     -o -name '*.def' -o -name CMakeLists.txt \) -not -path '*/__pycache__/*')
version=$(sed -n 's/^project(turnout VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
grep -qx "version: $version" CITATION.cff || { echo "   CITATION.cff is not of version $version"; bad=1; }
grep -q "^## $version" CHANGELOG.md || { echo "   CHANGELOG.md has no section of version $version"; bad=1; }
exit $bad
