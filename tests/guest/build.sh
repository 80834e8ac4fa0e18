#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a small guest in FOLDER from Debian's packages: a kernel and an initial RAM disk with the modules
# of Soft-RoCE. tests/guest/run.sh boots it. Nothing is asked of the network when FOLDER has it.
#
#   tests/guest/build.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: tests/guest/build.sh FOLDER}
# What the guest needs beside what is built into Debian's kernel: the shares of the host's folders, a
# network interface of its own or to another guest, the RDMA stack and Soft-RoCE.
modules="virtio_pci 9pnet_virtio 9p virtio_net dummy crc32_generic ib_uverbs rdma_ucm ib_umad rdma_rxe"
export PATH=$PATH:/usr/sbin:/sbin

fail() {
  printf '== guest: %s\n' "$@" >&2
  exit 1
}
mkdir -p "$folder"
cd "$folder"
if [ ! -s vmlinuz ]; then
  command -v apt-get >/dev/null || fail "apt-get is not here: the guest's kernel is a package of Debian 12"
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: //p' | head -n 1)
  [ -n "$package" ] || fail "no package linux-image-amd64 is known: run apt-get update"
  printf '== guest: fetching %s\n' "$package"
  rm -rf unpacked ./*.deb
  apt-get -q download "$package" >download.log 2>&1 ||
    fail "apt-get download $package failed:" "$(tail -n 3 download.log)" "Is the network there? Then run this again."
  dpkg-deb --extract "$package"_*.deb unpacked
  rm -f ./*.deb
  cp unpacked/boot/vmlinuz-* vmlinuz.new
  mv vmlinuz.new vmlinuz
fi
version=$(ls unpacked/lib/modules)
if [ initramfs -nt "$here/init" ] && [ initramfs -nt "$here/build.sh" ] && [ initramfs -nt vmlinuz ]; then
  exit 0
fi
depmod -b unpacked "$version"
rm -rf tree
mkdir -p tree/{bin,modules,proc,sys,dev,host,control}
# shellcheck disable=SC2086  # a list
for module in $modules; do
  modprobe --dirname unpacked --set-version "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >order
while read -r file; do
  cp "$file" tree/modules/
  basename "$file"
done <order >tree/modules/order
busybox=$(command -v busybox) || fail "busybox is not here: run make test-guest, which installs busybox-static"
cp "$busybox" tree/bin/busybox
cp "$here/init" tree/init
chmod 755 tree/init
(cd tree && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >initramfs.new
mv initramfs.new initramfs
