#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The page of figures that others published follows from this build: some of them are of raw verbs, which no
# sentinel covers, so the page is made again and compared up to its sentinels.
#
#   validation_test.sh TURNOUT PAGES
set -euo pipefail
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$1" sim --experiment validation --profile connect-ib --seed 1 --output "$made" >/dev/null
until_sentinels() { sed '/^## Sentinels$/,$d' "$1"; }
if ! diff <(echo "$(until_sentinels "$2/validation.md")") <(echo "$(until_sentinels "$made/validation.md")"); then
  echo "docs/experiments/validation.md is not what this build predicts: tools/pages.sh validation"
  exit 1
fi
