#!/bin/sh
# usage: check.sh
# Everything that must hold before a commit lands (`make check`, and CI). Needs no network but apt, no terminal, no
# input. The last line is `N passed, N failed, N skipped` over all checks and all test runs; the exit code is 1 if
# anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() { printf '\n== %s\n' "$*"; }

# One check: a command that succeeds or not.
check() {
    name=$1
    shift
    say "$name"
    if "$@" </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
    fi
}

# A test run: its numbers are on its last line.
tests() {
    name=$1
    shift
    say "$name"
    "$@" </dev/null >"$log" 2>&1
    cat "$log"
    # shellcheck disable=SC2046 # the numbers of the last line
    set -- $(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    if [ $# -eq 3 ]; then
        passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    else
        failed=$((failed + 1))
        echo "FAILED: $name gave no numbers"
    fi
}

finish() {
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

say "packages"
scripts/install_deps.sh test || { failed=1; finish; }

check "layers: includes follow src/LAYERS" scripts/check_layers.sh
check "headers: each compiles alone" scripts/check_headers.sh
check "format" scripts/check_format.sh
check "complexity and length" scripts/check_complexity.sh
check "packages: the list has what CMake asks for" scripts/check_packages.sh
check "shell scripts" scripts/check_shell.sh

check "build with gcc, warnings are errors" scripts/build.sh gcc
check "build with clang, warnings are errors" scripts/build.sh clang
check "build with address and undefined-behaviour sanitizers" scripts/build.sh asan
# shellcheck disable=SC2046 # a list of words
threaded=$(sed -n 's/^\([a-z0-9_]*\).*/\1/p' scripts/threaded_tests.txt)
# shellcheck disable=SC2086 # a list of words
check "build the threaded tests with the thread sanitizer" scripts/build.sh tsan --target $threaded

check "kernels for 64-bit Arm, in an emulator" scripts/check_arm64.sh

jobs=$(nproc)
tests "tests (gcc)" scripts/run_tests.sh build-gcc -j "$jobs"
tests "tests (address and undefined-behaviour sanitizers)" scripts/run_tests.sh build-asan -j "$jobs"
pattern=$(printf '%s' "$threaded" | tr '\n' '|')
# The thread sanitizer needs its address range free, which randomisation does not promise.
fixed_addresses=
setarch -R true 2>/dev/null && fixed_addresses="setarch -R"
# shellcheck disable=SC2086 # nothing, or a command
tests "threaded tests (thread sanitizer)" $fixed_addresses scripts/run_tests.sh build-tsan -j "$jobs" -R "/($pattern)\$"
finish
