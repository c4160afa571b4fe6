#!/bin/sh
# usage: run_tests.sh BUILD_DIR [ctest options]
# Runs the tests of a build and prints `N passed, N failed, N skipped` for it, from ctest's own report.
set -u
build=$1
shift
report=$PWD/$build/report.xml
rm -f "$report"
status=0
ctest --test-dir "$build" --output-on-failure --output-junit "$report" "$@" </dev/null || status=$?
[ -f "$report" ] || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
awk -v status=$status '
    function attribute(name) { return match($0, "[ \t]" name "=\"[0-9]+\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) + 0 : 0 }
    /<testsuite/ { inside = 1 }
    inside { tests += attribute("tests"); failed += attribute("failures"); skipped += attribute("skipped") + attribute("disabled") }
    inside && />/ { exit }
    END {
        if (status != 0 && failed == 0) failed = 1 # a test that could not be started, or ctest itself
        if (tests == 0) failed = 1                 # no tests prove nothing
        passed = tests - failed - skipped
        printf "%d passed, %d failed, %d skipped\n", (passed > 0 ? passed : 0), failed, skipped
        exit failed > 0
    }' "$report"
