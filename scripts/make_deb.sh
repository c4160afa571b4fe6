#!/bin/sh
# usage: make_deb.sh
# Builds the Debian package from what is committed, in build-deb, and looks at it with lintian where that is installed.
set -eu
cd "$(dirname "$0")/.."
command -v dh >/dev/null || { echo "make_deb: needs debhelper: apt-get install debhelper" >&2; exit 1; }
rm -rf build-deb
mkdir -p build-deb/weir
git archive HEAD | tar -x -C build-deb/weir
(cd build-deb/weir && dpkg-buildpackage -b -us -uc)
command -v lintian >/dev/null && lintian build-deb/*.changes
ls build-deb/*.deb
