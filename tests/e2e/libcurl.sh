#!/bin/sh
# usage: libcurl.sh PATH_OF_WEIR
# weir get where libcurl is missing or is none: it says which package to install, and nothing else needs it.
set -u
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# get PATTERN: with what lies in $work as the first place for libraries
get() {
    got=0
    env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" HOME="$work" LD_LIBRARY_PATH="$work" "$weir" get org/name >"$work/out" 2>&1 || got=$?
    { [ $got -eq 1 ] && grep -q -e "$1" "$work/out"; } && return
    failed=$((failed + 1))
    echo "FAIL: exit code $got, or no '$1'"
    cat "$work/out"
}

echo 'no library at all' >"$work/libcurl.so.4"
get '^weir: cannot open libcurl (.*libcurl.so.4.*); install the package libcurl4$'
env -i HOME="$work" LD_LIBRARY_PATH="$work" "$weir" models >"$work/out" 2>&1 || { echo "FAIL: models"; failed=$((failed + 1)); }
json=$(ldd "$weir" | sed -n 's/.*libjson-c[^ ]* => \([^ ]*\).*/\1/p')
ln -sf "$json" "$work/libcurl.so.4" # a library, but another one
get '^weir: libcurl.so.4 has no curl_[a-z_]*; install the package libcurl4$'
echo "$failed failed"
[ "$failed" -eq 0 ]
