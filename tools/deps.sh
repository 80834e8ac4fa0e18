#!/usr/bin/env bash
# Installs what is missing: Debian packages of the lists given, and the virtual environment .venv.
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

missing=()
for package in $(packages "$@"); do
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

if ! cmp -s tools/requirements.txt .venv/requirements.txt; then
  say "making .venv with $(packages tools/requirements.txt | paste -sd' ')"
  # Debian's own Python: what else is on the PATH may lack the venv module.
  python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv || fail "$python -m venv .venv failed; the Debian package python3-venv provides it"
  fi
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements.txt || fail \
    "pip could not install tools/requirements.txt." \
    "Is PyPI reachable from here (a proxy may be set with PIP_INDEX_URL)? Then run this again."
  cp tools/requirements.txt .venv/requirements.txt
fi
