#!/bin/sh
# usage: bench.sh [NAME] [OPTION...]
# Builds with optimisation and times every kernel, or those with NAME in theirs. Close other programs first: the figures
# are of this machine as it is now.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh build
cmake --preset release >/dev/null
cmake --build build
exec build/weir bench kernels "$@"
