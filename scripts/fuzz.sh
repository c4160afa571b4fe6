#!/bin/sh
# usage: fuzz.sh [NAME...]
# Builds the fuzzers and runs each for FUZZ_SECONDS (default 60), starting from its corpus. New inputs stay in
# build-fuzz/corpus/NAME; a crash is written next to them, to be copied into tests/fuzz/corpus/NAME with the fix.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh test
cmake --preset fuzz >/dev/null
cmake --build build-fuzz
names=$*
[ -n "$names" ] || names=$(find tests/fuzz -name '*_fuzz.c' | sed 's/.*\///; s/_fuzz\.c$//' | sort)
[ -n "$names" ] || { echo "fuzz: there are no fuzzers" >&2; exit 1; }
for name in $names; do
    found=build-fuzz/corpus/$name
    mkdir -p "$found"
    echo "== $name"
    "build-fuzz/tests/${name}_fuzz" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$found/" -print_final_stats=1 "$found" "tests/fuzz/corpus/$name"
done
