#!/bin/sh
# usage: check_packages.sh [ROOT]
# Every library that CMake asks pkg-config for comes from a package that install_deps.sh lists, so that a fresh machine
# can build what this one can.
set -eu
listed=$("$(dirname "$0")/install_deps.sh" list)
cd "${1:-$(dirname "$0")/..}"
command -v dpkg-query >/dev/null || { echo "packages: no dpkg here, not checked"; exit 0; }
modules=$(sed -n 's/.*pkg_check_modules([A-Z0-9_]* \([^)]*\)).*/\1/p' CMakeLists.txt tests/CMakeLists.txt |
    tr ' ' '\n' | sed 's/[<>=].*//' | grep '^[a-z]' | sort -u)
[ -n "$modules" ] || { echo "packages: CMake asks for none, so nothing was checked"; exit 1; }
failed=0
for module in $modules; do
    file=$(pkg-config --variable=pcfiledir "$module")/$module.pc
    package=$(dpkg-query -S "$file" | sed 's/[:,].*//')
    printf '%s\n' "$listed" | grep -qx -e "$package" || {
        echo "packages: $module comes from $package, which scripts/install_deps.sh does not list"
        failed=1
    }
    # The Debian package builds the program, and not the tests.
    if ! [ -f debian/control ] || ! grep -q "pkg_check_modules.* ${module}[ )>]" CMakeLists.txt; then continue; fi
    grep -q -e "$package\(,\|\$\)" debian/control || {
        echo "packages: $module comes from $package, which debian/control does not build-depend on"
        failed=1
    }
done
exit $failed
