#!/bin/sh
# usage: build.sh PRESET [cmake --build options]
# Configures and builds build-PRESET (build, for the preset release); the compilers' output is shown only when something failed.
set -u
preset=$1
folder=build-$preset
[ "$preset" != release ] || folder=build
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake --preset "$preset" && cmake --build "$folder" "$@"; } </dev/null >"$log" 2>&1 || {
    grep -E -A 12 'error:|warning:|FAILED' "$log" || tail -n 40 "$log"
    exit 1
}
