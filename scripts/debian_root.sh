#!/bin/sh
# usage: debian_root.sh SUITE ROOT SCRIPT
# Runs a shell script as root inside a fresh Debian root file system, in /weir, a clean clone of what is committed here. The
# root is made with debootstrap when ROOT does not hold one yet; what an earlier run left in /weir is replaced. Mounts end
# with the script. Needs root, debootstrap and the network.
set -eu
[ $# -eq 3 ] || { echo "usage: $0 SUITE ROOT SCRIPT" >&2; exit 2; }
suite=$1 root=$2 script=$3
here=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "debian_root: must be run as root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debian_root: apt-get install debootstrap" >&2; exit 1; }

[ -e "$root/etc/debian_version" ] || debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/resolv.conf"
rm -rf "$root/weir"
git clone -q "$here" "$root/weir"
printf '%s\n' "$script" >"$root/newcomer.sh"
# shellcheck disable=SC2016 # for the shell inside
exec unshare --mount --propagation private sh -eu -c '
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 chroot "$1" sh -ex -c "cd /weir && . /newcomer.sh"
' sh "$root"
