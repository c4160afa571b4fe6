#!/bin/sh
# usage: check_format.sh [--fix] [ROOT]
# Every C file looks as .clang-format says (clang-format 14, so that everybody gets the same).
set -eu
fix=
[ "${1:-}" != --fix ] || { fix=yes; shift; }
cd "${1:-$(dirname "$0")/..}"
files=$(find src include examples tests -name '*.[ch]' 2>/dev/null | sort)
[ -n "$files" ] || { echo "format: no files found, so nothing was checked"; exit 1; }
# shellcheck disable=SC2086 # lists of words
[ -z "$fix" ] || exec clang-format-14 --style=file -i $files
failed=0
for file in $files; do
    clang-format-14 --style=file "$file" | cmp -s - "$file" || { echo "format: run \`make format\`: $file"; failed=1; }
done
exit $failed
