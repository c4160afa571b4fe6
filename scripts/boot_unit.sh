#!/bin/bash
# usage: boot_unit.sh [BUILD]        (as root; default build-gcc)
# Starts weir as the service that `make install` installs, under a systemd of its own: in namespaces, over a copy of this
# root file system that is thrown away, without a network. Says whether the service came up as its own user with all that its
# unit file denies it, answers, has its states where they belong, comes back when it is killed, and stops when it is told to.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$PWD build=$PWD/${1:-build-gcc}
result=$(mktemp -d)
trap 'rm -rf "$result"' EXIT
[ -x "$build/weir" ] || { echo "boot_unit: there is no $build/weir" >&2; exit 1; }
[ -x /lib/systemd/systemd ] || { echo "boot_unit: needs systemd: apt-get install systemd" >&2; exit 1; }

# What the booted system asks of the service; its output is the result.
cat >"$result/ask.sh" <<'ASK'
expect() { # WHAT TEXT PATTERN
    if grep -q -e "$3" <<<"$2"; then echo "ok    $1"; else echo "FAIL  $1: no '$3' in: $2"; fi
}
ask() { curl -s -m 60 "http://127.0.0.1:8080/$1" "${@:2}"; }
question='{"model": "demo", "prompt": "The river", "max_tokens": 12, "temperature": 0}'
answer() { ask v1/completions -H 'Content-Type: application/json' -d "$question"; }
show() { systemctl show --value -p "$1" weir.service; }
pid=$(show MainPID)
expect 'it says that it is ready' "$(show StatusText)" 'Answering requests'
expect 'its own user' "$(stat -c %U "/proc/$pid")" '^weir$'
expect 'no capability, no new ones, filtered system calls' "$(grep -E '^(CapBnd|NoNewPrivs|Seccomp):' "/proc/$pid/status" | tr -d '\n')" \
    'CapBnd:.0000000000000000NoNewPrivs:.1Seccomp:.2'
expect 'the root file system is read-only to it' "$(grep ' / / ' "/proc/$pid/mountinfo")" ' / / ro'
expect 'it answers' "$(answer)" '"completion_tokens":12'
expect 'it reads through io_uring' "$(readlink /proc/"$pid"/fd/*)" 'io_uring'
kill -KILL "$pid"
for _ in $(seq 200); do [ "$(show ActiveState)" = active ] && [ "$(show MainPID)" != "$pid" ] && break; sleep 0.1; done
expect 'killed, it comes back' "$(show NRestarts)" '^1$'
expect 'and answers' "$(answer)" '"completion_tokens":12'
systemctl stop weir.service
expect 'stopped, it ends well' "$(show Result) $(show ExecMainStatus)" '^success 0$'
expect 'what it remembers is in its own folder' "$(find /var/lib/weir -type f -user weir)" '/var/lib/weir/'
expect 'exposure' "$(systemd-analyze security --no-pager weir.service | tail -n 1)" 'weir.service: 1\.[0-9] OK'
systemd-analyze security --no-pager weir.service | tail -n 1
systemctl exit 0
ASK

# The first process of the new namespaces: makes the root and becomes systemd.
cat >"$result/boot.sh" <<'BOOT'
set -e
tree=$1 build=$2 result=$3
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
ip link set lo up
mount -t proc proc proc
mount -t sysfs -o ro sys sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"; done
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm dev/mqueue dev/hugepages
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p oldroot result etc/weir srv/models
mount --bind "$result" result
rm -rf etc/systemd/system/*.wants etc/systemd/system/default.target
DESTDIR=$PWD cmake --install "$build" --prefix /usr/local >/dev/null
cp -r "$tree/models/demo" srv/models/demo
printf 'MODEL=/srv/models/demo\nWEIR_RAM_BUDGET=512M\nWEIR_EXPERTS_RESIDENT=10%%\n' >etc/weir/weir.conf
printf '[Unit]\nDefaultDependencies=no\nWants=weir.service ask.service\n' >etc/systemd/system/only.target
printf '[Unit]\nDefaultDependencies=no\nAfter=weir.service\n[Service]\nType=oneshot\n' >etc/systemd/system/ask.service
printf 'StandardOutput=append:/result/log\nStandardError=append:/result/log\nExecStart=/bin/bash /result/ask.sh\n' \
    >>etc/systemd/system/ask.service
chroot . systemd-sysusers /usr/local/lib/sysusers.d/weir.conf 2>/dev/null
pivot_root . oldroot
cd /
umount -l oldroot
mount --make-rshared /
exec env -i container=lxc PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=only.target --log-target=null --show-status=0
BOOT

timeout -s KILL 120 unshare --fork --pid --kill-child --mount --uts --ipc --cgroup --net \
    bash "$result/boot.sh" "$tree" "$build" "$result" || { echo "boot_unit: systemd did not boot here" >&2; exit 1; }
cat "$result/log"
! grep -q '^FAIL' "$result/log"
