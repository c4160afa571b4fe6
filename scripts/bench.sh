#!/bin/sh
# usage: bench.sh
# Builds with optimisation and times every kernel against its reference. Close other programs first: the figures are of
# this machine as it is now.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh test
cmake --preset gcc >/dev/null
cmake --build build-gcc
build-gcc/tests/kern_check_test --bench
