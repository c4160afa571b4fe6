#!/bin/sh
# usage: check_shell.sh [ROOT]
# Every script passes shellcheck.
set -eu
cd "${1:-$(dirname "$0")/..}"
# shellcheck disable=SC2046 # a list of words
exec shellcheck $(find scripts tests .ci -name '*.sh' -o -path '.ci/run')
