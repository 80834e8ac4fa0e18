#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs what is missing: Debian packages of the lists given, and the virtual environment .venv; for a
# list requirements-NAME.txt of PyPI packages, the virtual environment .cache/NAME.
# Nothing is asked of the network when everything is there.
#
#   tools/deps.sh tools/packages.txt [MORE LISTS]
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
fail() {
  printf '== %s\n' "$@" >&2
  exit 1
}

packages() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

debian=()
requirements=()
for list in "$@"; do
  case $list in
    */requirements-*.txt) requirements+=("$list") ;;
    *) debian+=("$list") ;;
  esac
done

missing=()
for package in $(packages "${debian[@]}"); do
  if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$'; then
    missing+=("$package")
  fi
done

if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || fail "apt-get is not here: this needs Debian 12 (or install: ${missing[*]})"
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail \
      "these Debian packages are missing: ${missing[*]}" \
      "neither root nor sudo is at hand; as root run:" \
      "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  run() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@" >"$log" 2>&1 && return
    tail -n 25 "$log" >&2
    fail "apt-get $1 failed (its last lines are above)." \
      "Is the network there, and a Debian 12 mirror in /etc/apt? Then run this again."
  }
  run update
  run install -y --no-install-recommends "${missing[@]}"
  say "installed"
fi

# A virtual environment with what a list of PyPI packages says, made anew when the list has changed.
environment() { # FOLDER LIST
  local folder=$1 list=$2 python=/usr/bin/python3
  cmp -s "$list" "$folder/requirements.txt" && return
  say "making $folder with $(packages "$list" | paste -sd' ')"
  # Debian's own Python: what else is on the PATH may lack the venv module.
  [ -x "$python" ] || python=python3
  if [ ! -x "$folder/bin/python" ]; then
    "$python" -m venv "$folder" || fail "$python -m venv $folder failed; the Debian package python3-venv provides it"
  fi
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list" || fail \
    "pip could not install $list." \
    "Is PyPI reachable from here (a proxy may be set with PIP_INDEX_URL)? Then run this again."
  cp "$list" "$folder/requirements.txt"
}
environment .venv tools/requirements.txt
for list in "${requirements[@]}"; do
  name=${list##*/requirements-}
  environment ".cache/${name%.txt}" "$list"
done
