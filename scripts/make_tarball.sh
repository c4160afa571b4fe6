#!/bin/sh
# usage: make_tarball.sh [FOLDER]
# A program that runs from wherever it is unpacked: weir-VERSION-MACHINE.tar.xz in FOLDER (default build-tarball), with every
# library it needs beside it, other than glibc's own. It runs where glibc is at least as new as the one here, so it is
# built on Debian 11: scripts/debian_root.sh bullseye ROOT "scripts/make_tarball.sh".
set -eu
cd "$(dirname "$0")/.."
out=${1:-build-tarball}
scripts/install_deps.sh build
rm -rf "$out"
# DT_RPATH, not RUNPATH: it must hold for the libraries of the libraries, and for the one opened when something is fetched.
# shellcheck disable=SC2016 # ORIGIN is the loader's
build() {
    cmake -S . -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
        '-DCMAKE_INSTALL_RPATH=$ORIGIN/../lib/weir' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags &&
        cmake --build "$out/build"
}
build >"$out.log" 2>&1 || { tail -n 30 "$out.log" >&2; exit 1; }
rm "$out.log"
version=$("$out/build/weir" version | sed -n '1s/^weir \([^ ]*\).*/\1/p')
name=weir-$version-$(uname -m)
cmake --install "$out/build" --prefix "$out/$name" --strip >/dev/null
rm -rf "$out/$name/lib/systemd" "$out/$name/lib/sysusers.d"
mkdir -p "$out/$name/lib/weir" "$out/$name/share/doc/weir/licenses"

# Libraries that glibc brings must be the machine's own.
libraries() { ldd "$@" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|libnsl|ld-linux[^/]*)\.so' | sort -u; }
curl=$(ldconfig -p | sed -n 's/.*libcurl\.so\.4 .* => //p' | head -n 1)
for file in $(libraries "$out/build/weir") $curl $(libraries "$curl"); do
    [ -e "$out/$name/lib/weir/$(basename "$file")" ] || cp -L "$file" "$out/$name/lib/weir/"
    package=$(dpkg-query -S "$(basename "$(readlink -f "$file")")" 2>/dev/null | sed -n '1s/:.*//p')
    copyright=/usr/share/doc/$package/copyright
    [ ! -e "$copyright" ] || cp -L "$copyright" "$out/$name/share/doc/weir/licenses/$package"
done
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$out/$name.tar.xz" "$name"

# It must work from another place than where it was made, and take no library but glibc's from here.
moved=$(mktemp -d)
trap 'rm -rf "$moved"' EXIT
tar -C "$moved" -xf "$out/$name.tar.xz"
foreign=$(ldd "$moved/$name/bin/weir" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | grep -v "^$moved" |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' || true)
[ -z "$foreign" ] || { echo "make_tarball: taken from this machine:" "$foreign" >&2; exit 1; }
env -i PATH=/usr/bin:/bin TMPDIR="$moved" "$moved/$name/bin/weir" selftest
ls -l "$out/$name.tar.xz"
