#!/bin/sh
# usage: check_headers.sh [ROOT]
# Every header compiles alone: it includes or declares all that it needs.
set -eu
cd "${1:-$(dirname "$0")/..}"
flags="-std=c17 -D_GNU_SOURCE -Isrc -Iinclude -Itests -Wall -Wextra -Wno-unused-function -Werror"
headers=$(find src include tests -name '*.h' 2>/dev/null | sort)
[ -n "$headers" ] || { echo "headers: none found, so nothing was checked"; exit 1; }
failed=0
for header in $headers; do
    isa=
    gcc=gcc
    case $header in
    */arm/*) # checked where a compiler for it is
        gcc=aarch64-linux-gnu-gcc
        command -v $gcc >/dev/null || continue
        ;;
    */vector/* | */x86/*avx2*) isa="-mavx2 -mfma -mf16c" ;;
    */x86/*avx512*) isa="-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni" ;;
    esac
    # shellcheck disable=SC2086 # lists of words
    printf '#include "%s"\n' "${header#*/}" | $gcc $flags $isa -fsyntax-only -x c - || {
        echo "headers: does not compile alone: $header"
        failed=1
    }
done
exit $failed
