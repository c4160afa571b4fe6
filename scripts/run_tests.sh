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
# Texts inside the report are escaped, so a tag at the beginning of a line is ctest's own.
awk -v status=$status '
    /^[ \t]*<testcase / { tests++ }
    /^[ \t]*<testcase .* status="(fail|disabled)"/ { failed++ }
    /^[ \t]*<skipped message="SKIP_/ { skipped++; next }
    /^[ \t]*<skipped / { failed++ } # it could not be started
    END {
        if (status != 0 && !failed) failed = 1 # ctest itself
        if (!tests) failed = tests = 1         # no tests prove nothing
        printf "%d passed, %d failed, %d skipped\n", tests - failed - skipped, failed, skipped
        exit failed > 0
    }' "$report"
