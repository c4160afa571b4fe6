#!/bin/sh
# usage: install_deps.sh build|test|list
# Installs the Debian packages that are missing, and says which; or lists all. `test` includes `build`. This is the one
# list; check_packages.sh compares it with what CMake asks for.
set -eu

build="build-essential cmake ninja-build pkg-config libjson-c-dev libssl-dev libinih-dev libedit-dev libxxhash-dev liburing-dev
 libcurl4-openssl-dev libsqlite3-dev libmicrohttpd-dev"
test="clang-14 libclang-rt-14-dev llvm-14 clang-format-14 libcmocka-dev libpcre2-dev libutf8proc-dev pmccabe shellcheck
 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static nodejs npm curl ca-certificates"

case "${1:-}" in
build) wanted=$build ;;
test) wanted="$build $test" ;;
list)
    # shellcheck disable=SC2086 # lists of words
    printf "%s\n" $build $test
    exit
    ;;
*) echo "usage: $0 build|test|list" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "install_deps: no apt here; these Debian packages or their like are needed: $wanted" >&2
    exit 0
fi

missing=
for package in $wanted; do
    # Node may come from elsewhere, and then brings its own npm.
    case $package in
    nodejs) command -v node >/dev/null && continue ;;
    npm) command -v npm >/dev/null && continue ;;
    esac
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "install_deps: run as root, or install sudo, or install:$missing" >&2; exit 1; }
    as_root=sudo
fi
echo "install_deps: installing with apt:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq </dev/null
# shellcheck disable=SC2086 # a list of words
$as_root apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
