#!/usr/bin/env bash
# Fetches what the real-host tests boot: two Debian kernels and a small root file system of Debian's own tools.
#
#   tests/hosts/prepare.sh [FOLDER]          default: target/hosts-cache
#
# Nothing but QEMU itself is installed. Kernels and tools are downloaded with apt into FOLDER, through a private apt
# state there, so that neither the machine's package sources nor its installed packages change. The mirror is read from
# the machine's own apt configuration (or from DIECUT_DEBIAN_MIRROR). Needs no root when QEMU is already there.
#
# Leaves in FOLDER:
#   base.cpio                 busybox, nvme-cli, e2fsprogs, xfsprogs, btrfs-progs, fio and the libraries they load; in /newer programs of
#                             a later Debian (trixie): an nvme-cli and a fio that know more, tools of zonefs, f2fs and zoned devices
#   qemu/qemu-system-x86_64   a QEMU of the later Debian, which has drives with placement handles (FDP), and what it loads
#   <kernel>/vmlinuz          for kernel in 6.1 (cloud flavour) and 6.12 (full flavour, from bookworm-backports)
#   <kernel>/modules.cpio     the modules the scenarios load, with their dependencies
#   <kernel>/version          the kernel's own version string
set -euo pipefail
umask 022
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${1:-${DIECUT_HOSTS_CACHE:-${CARGO_TARGET_DIR:-$top/target}/hosts-cache}}

say() { printf 'hosts: %s\n' "$*"; }
die() { printf 'hosts: CANNOT PREPARE REAL HOSTS: %s\n' "$*" >&2; exit 2; }

[ "$(uname -m)" = x86_64 ] || die "only x86_64 guests are known, this machine is $(uname -m)"

# --- QEMU: the only thing that is installed -------------------------------------------------------------------------
missing=()
command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
command -v xz >/dev/null || missing+=(xz-utils)
command -v dpkg-deb >/dev/null || die "dpkg-deb is missing: this is not a Debian-like machine"
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || die "not root and packages are missing; run: apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  timeout 300 apt-get update -qq || die "apt-get update failed"
  timeout 900 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || die "apt-get install ${missing[*]} failed"
fi

# Unchanged script and complete folder: nothing to do. Kernels stay those of the first download on purpose: a test that
# changes its peer from run to run cannot tell whose change broke it. Delete the folder to take newer ones.
stamp=$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
if [ "$(cat "$cache/stamp" 2>/dev/null || true)" = "$stamp" ]; then
  say "ready in $cache ($(cat "$cache/6.1/version"), $(cat "$cache/6.12/version"))"
  exit 0
fi
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/lock"
flock -w 1200 9 || die "another preparation holds $cache/lock"
[ "$(cat "$cache/stamp" 2>/dev/null || true)" != "$stamp" ] || { say "ready in $cache"; exit 0; }

# --- a private apt --------------------------------------------------------------------------------------------------
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || die "$keyring is missing (package debian-archive-keyring)"
mirror=${DIECUT_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
  # deb822 and one-line sources; security and foreign archives do not count.
  mirror=$( { cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '/^URIs:/ { for (i = 2; i <= NF; i++) print $i }'
              cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) { print $i; break } }'
            } | grep -E '/debian/?$' | head -n 1 || true)
fi
[ -n "$mirror" ] || die "no Debian mirror in this machine's apt sources; set DIECUT_DEBIAN_MIRROR to one"

# use_apt NAME SUITES: package lists of these suites in a folder of their own; `apt_options` names it to apt's programs.
use_apt() {
  apt_root=$cache/apt-$1
  mkdir -p "$apt_root"/state/lists/partial "$apt_root"/archives/partial "$apt_root"/sources
  : >"$apt_root/status"
  cat >"$apt_root/sources/debian.sources" <<SOURCES
Types: deb
URIs: $mirror
Suites: $2
Components: main
Architectures: amd64
Signed-By: $keyring
SOURCES
  # An empty status file makes apt resolve every dependency, as for an empty machine.
  apt_options=(
    -o "Dir::State=$apt_root/state" -o "Dir::State::status=$apt_root/status" -o "Dir::Cache=$apt_root"
    -o "Dir::Cache::archives=$apt_root/archives" -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$apt_root/sources"
    -o "Dir::Etc::Preferences=/dev/null" -o "Dir::Etc::PreferencesParts=/dev/null"
    -o "APT::Architecture=amd64" -o "APT::Architectures=amd64" -o "APT::Sandbox::User=$(id -un)" -o "Debug::NoLocking=true"
    -o "Acquire::Languages=none" -o "Acquire::Retries=3" -o "APT::Install-Recommends=false"
  )
  say "reading the package lists of $2"
  timeout 300 apt-get "${apt_options[@]}" update -qq || die "apt-get update of the private sources failed"
}
# download FOLDER PACKAGES...: unpacks packages with all they need into a folder.
download() {
  local folder=$1 package; shift
  say "downloading $* and what they need"
  timeout 900 apt-get "${apt_options[@]}" install -y -qq --download-only "$@" >"$apt_root/install.log" 2>&1 \
    || { tail -n 20 "$apt_root/install.log" >&2; die "the tools could not be downloaded"; }
  rm -rf "$folder" && mkdir -p "$folder"
  for package in "$apt_root"/archives/*.deb; do
    case $(basename "$package") in linux-image-*) continue ;; esac
    dpkg-deb -x "$package" "$folder"
  done
}

use_apt newer trixie
newer=$cache/newer
download "$newer" nvme-cli fio f2fs-tools zonefs-tools zbd-utils util-linux qemu-system-x86

use_apt base "bookworm bookworm-updates bookworm-backports"
full=$cache/full
rm -rf "$cache/base"
download "$full" busybox-static nvme-cli e2fsprogs xfsprogs btrfs-progs fio util-linux kmod

# --- root file system: the named programs and the libraries they load, nothing else ---------------------------------
libraries=$full/lib/x86_64-linux-gnu:$full/usr/lib/x86_64-linux-gnu:$full/usr/lib/x86_64-linux-gnu/ceph
loader=$full/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
[ -x "$loader" ] || loader=$full/lib64/ld-linux-x86-64.so.2
base=$cache/base
mkdir -p "$base"/{dev,proc,sys,run,tmp,mnt,etc/nvme,var/lib,usr/bin,usr/sbin,usr/lib64,usr/lib/x86_64-linux-gnu,usr/lib/modules}
for name in bin sbin lib lib64; do ln -s "usr/$name" "$base/$name"; done
programs=(sbin/nvme sbin/mke2fs sbin/e2fsck sbin/debugfs sbin/mkfs.xfs sbin/xfs_repair usr/sbin/xfs_io usr/bin/fio
  sbin/blkid bin/lsblk sbin/blkdiscard sbin/blkzone sbin/wipefs sbin/blockdev sbin/mkfs.btrfs bin/btrfs)
find_program() { local candidate; for candidate in "$full/$1" "$full/usr/$1"; do [ ! -x "$candidate" ] || { echo "$candidate"; return; }; done; die "program $1 is in no package"; }
cp "$(find_program bin/busybox)" "$base/usr/bin/busybox"
for program in "${programs[@]}"; do
  path=$(find_program "$program")
  cp -L "$path" "$base/usr/sbin/$(basename "$program")"
  "$loader" --library-path "$libraries" --list "$path"
done | awk '$2 == "=>" { print $3 }' | sort -u | while read -r library; do
  cp -L "$library" "$base/usr/lib/x86_64-linux-gnu/"
done
cp -L "$loader" "$base/usr/lib64/ld-linux-x86-64.so.2"
for name in mkfs.ext4 mkfs.ext3 fsck.ext4; do
  case $name in mkfs.*) ln -s mke2fs "$base/usr/sbin/$name" ;; *) ln -s e2fsck "$base/usr/sbin/$name" ;; esac
done
cp "$full/etc/mke2fs.conf" "$base/etc/"
# The newer programs run by their own loader with their own libraries, because those need a later libc. A scenario that wants them puts
# /newer/bin in front of its PATH.
newer_programs=(nvme fio mkfs.f2fs fsck.f2fs mkzonefs zbd blkzone)
newer_libraries=$newer/lib/x86_64-linux-gnu:$newer/usr/lib/x86_64-linux-gnu:$newer/usr/lib/x86_64-linux-gnu/ceph
newer_loader=$newer/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
[ -x "$newer_loader" ] || newer_loader=$newer/usr/lib64/ld-linux-x86-64.so.2
mkdir -p "$base"/newer/{bin,exec,lib}
cp -L "$newer_loader" "$base/newer/lib/"
for program in "${newer_programs[@]}"; do
  path=
  for folder in usr/sbin usr/bin sbin bin; do [ -n "$path" ] || [ ! -x "$newer/$folder/$program" ] || path=$newer/$folder/$program; done
  [ -n "$path" ] || die "newer program $program is in no package"
  cp -L "$path" "$base/newer/exec/$program"
  printf '#!/bin/sh\nexec /newer/lib/%s --argv0 %s --library-path /newer/lib /newer/exec/%s "$@"\n' "$(basename "$newer_loader")" "$program" "$program" >"$base/newer/bin/$program"
  chmod +x "$base/newer/bin/$program"
  "$newer_loader" --library-path "$newer_libraries" --list "$path"
done | awk '$2 == "=>" { print $3 }' | sort -u | while read -r library; do
  cp -L "$library" "$base/newer/lib/"
done
# The later QEMU runs on this machine in the same way, with the few files of firmware that a guest without a screen needs.
rm -rf "$cache/qemu" && mkdir -p "$cache"/qemu/{lib,share}
cp -L "$newer_loader" "$newer/usr/bin/qemu-system-x86_64" "$cache/qemu/lib/"
"$newer_loader" --library-path "$newer_libraries" --list "$newer/usr/bin/qemu-system-x86_64" | awk '$2 == "=>" { print $3 }' | while read -r library; do
  cp -L "$library" "$cache/qemu/lib/"
done
for file in bios-256k.bin kvmvapic.bin linuxboot.bin linuxboot_dma.bin; do
  found=$(find "$newer/usr/share" -name "$file" -type f | head -n 1)
  [ -n "$found" ] || die "firmware $file is in no package"
  cp "$found" "$cache/qemu/share/"
done
cat >"$cache/qemu/qemu-system-x86_64" <<'RUN'
#!/bin/sh
own=$(dirname "$(readlink -f "$0")")
exec "$own"/lib/ld-linux-x86-64.so.2 --library-path "$own/lib" "$own/lib/qemu-system-x86_64" -L "$own/share" "$@"
RUN
chmod +x "$cache/qemu/qemu-system-x86_64"
printf 'root:x:0:0:root:/:/bin/sh\n' >"$base/etc/passwd"
printf 'root:x:0:\n' >"$base/etc/group"
busybox=$base/usr/bin/busybox
archive() { (cd "$1" && find . | LC_ALL=C sort | "$busybox" cpio -o -H newc 2>/dev/null) >"$2.new" && mv "$2.new" "$2"; }
archive "$base" "$cache/base.cpio"

# --- kernels --------------------------------------------------------------------------------------------------------
modules=(virtio_pci virtio_blk virtio_net nvme nvme-tcp nvme-fabrics nvmet nvmet-tcp ext4 xfs btrfs f2fs zonefs null_blk dm-mod dm-zoned loop crc32c_generic crc32c-intel crc32_generic)
kmod() { local name=$1; shift; "$loader" --argv0 "$name" --library-path "$libraries" "$full/bin/kmod" "$@"; }
prepare_kernel() { # folder name, metapackage, suite
  local out=$cache/$1 package root version tree module file
  package=$(apt-cache "${apt_options[@]}" -o "APT::Default-Release=$3" depends --important "$2" | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }')
  [ -n "$package" ] || die "$2 in $3 names no kernel"
  say "downloading $package"
  (cd "$apt_root/archives" && timeout 900 apt-get "${apt_options[@]}" -o "APT::Default-Release=$3" download -qq "$package") || die "$package could not be downloaded"
  root=$cache/unpack-$1
  rm -rf "$root" "$out" && mkdir -p "$root" "$out"
  dpkg-deb -x "$(ls -t "$apt_root"/archives/"${package}"_*.deb | head -n 1)" "$root"
  # kmod looks below /lib/modules whatever the package says.
  if [ -d "$root/usr/lib/modules" ] && [ ! -e "$root/lib" ]; then ln -s usr/lib "$root/lib"; fi
  version=$(ls "$root/lib/modules")
  # Compressed modules are unpacked here, once, rather than under emulation at every boot.
  find "$root/lib/modules/$version/" -name '*.ko.xz' -exec xz -dq {} +
  kmod depmod -b "$root" "$version" 2>/dev/null
  tree=$out/tree
  mkdir -p "$tree/usr/lib/modules/$version"
  for module in "${modules[@]}"; do
    kmod modprobe -d "$root" -S "$version" --show-depends "$module" 2>/dev/null || say "kernel $version has no module $module (it may not be needed)"
  done | awk '$1 == "insmod" { print $2 } $1 == "hosts:" { print > "/dev/stderr" }' | sort -u | while read -r file; do
    file=${file#"$root"/}; file=${file#usr/}
    install -D -m 644 "$root/$file" "$tree/usr/$file"
  done
  cp "$root/lib/modules/$version/"modules.{order,builtin,builtin.modinfo} "$tree/usr/lib/modules/$version/"
  # kmod wants <base>/lib/modules.
  ln -s usr/lib "$tree/lib"
  kmod depmod -b "$tree" "$version"
  rm "$tree/lib"
  # Suites ask how the kernel was configured.
  install -D -m 644 "$root/boot/config-$version" "$tree/boot/config-$version"
  archive "$tree" "$out/modules.cpio"
  cp "$root/boot/vmlinuz-$version" "$out/vmlinuz"
  printf '%s\n' "$version" >"$out/version"
  rm -rf "$root" "$tree"
}
prepare_kernel 6.1 linux-image-cloud-amd64 bookworm
prepare_kernel 6.12 linux-image-amd64 bookworm-backports

rm -rf "$full" "$newer" "$base" "$cache"/apt-*/archives/*.deb
printf '%s\n' "$stamp" >"$cache/stamp"
say "ready in $cache ($(cat "$cache/6.1/version"), $(cat "$cache/6.12/version"), base $(du -m "$cache/base.cpio" | cut -f1) MiB)"
