#!/bin/sh
# usage: bench.sh
# Builds a release and runs every benchmark under tests/bench. Close other programs first: figures are medians, but of
# this machine as it is now.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh test
cmake --preset gcc >/dev/null
cmake --build build-gcc
found=0
for program in build-gcc/tests/*_bench; do
    [ -x "$program" ] || continue
    found=1
    echo "== ${program##*/}"
    "$program"
done
[ "$found" -eq 1 ] || echo "there are no benchmarks yet" >&2
