#!/bin/sh
# usage: convert.sh PATH_OF_WEIR
# `weir convert` as people use it: what it tells, exit codes, going on, and the bundled demo model's refusals.
set -u
weir=$1
source=tests/fixtures/glm52-tiny/fp8
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checked=0

# expect NAME CODE WANTED_IN_STDOUT WANTED_IN_STDERR; the command ran before and left out, err and code
expect() {
    checked=$((checked + 1))
    bad=
    [ "$code" -eq "$2" ] || bad="exit code $code, not $2"
    grep -q -e "$3" "$work/out" || [ -z "$3" ] || bad="$bad; stdout lacks '$3'"
    [ -n "$3" ] || [ ! -s "$work/out" ] || bad="$bad; stdout is not empty"
    grep -q -e "$4" "$work/err" || bad="$bad; stderr lacks '$4'"
    ! grep -q "$(printf '\r')" "$work/err" || bad="$bad; a progress bar in a file"
    [ -z "$bad" ] && return
    failed=$((failed + 1))
    echo "FAIL: $1: $bad"
    sed 's/^/    /' "$work/out" "$work/err" | head -n 12
}
convert() {
    code=0
    env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" "$weir" convert "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

convert $source "$work/a"
expect 'an ambiguous group is refused with one that works' 2 '' '--group 32 is unambiguous'
convert $source "$work/a" --group 32 --pass main,mtp
expect 'a conversion' 0 'shards, .*largest relative error' 'routed experts: int4, one scale per 32 columns'
expect 'what is left out is told' 0 'shards' 'indexer: not made'
cp -r "$work/a" "$work/before"
convert $source "$work/a" --group 32 --pass main,mtp
expect 'the same again changes nothing' 0 'shards' '2 of 2 shards are finished already'
diff -r "$work/a" "$work/before" >/dev/null || { failed=$((failed + 1)); echo "FAIL: the second run changed something"; }
convert $source "$work/a" --group 16 --pass main,mtp
expect 'other options are refused' 2 '' '"group": 32, now it would be "group": 16'
convert $source "$work/b" --pass main,indexers
expect 'a pass that does not exist' 2 '' "'indexers' is none of main, mtp, indexer"
convert tests/fixtures/glm52-tiny/plain "$work/b" --group 16 --pass mtp
expect 'a pass that the source lacks' 4 '' 'no MTP layer to convert'
convert tests/fixtures/glm52-tiny "$work/b"
expect 'a folder that is no model' 4 '' 'config.json'
convert $source "$source" --group 32
expect 'onto itself' 2 '' 'choose an empty folder'

echo "convert: $checked checked, $failed failed"
[ "$failed" -eq 0 ]
