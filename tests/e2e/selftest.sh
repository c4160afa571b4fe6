#!/bin/sh
# usage: selftest.sh PATH_OF_WEIR
# weir selftest: it passes, leaves nothing behind, and says where it could not work.
set -u
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAIL: $1"
    cat "$work/out" "$work/err"
    failed=$((failed + 1))
}

mkdir "$work/place"
TMPDIR=$work/place "$weir" selftest >"$work/out" 2>"$work/err" || fail "exit code $?"
for what in 'converted' 'all experts in memory' 'a tenth of the experts' 'read as one text' 'kernels without' \
    'drafts by the MTP layer, [0-9]* of them: the same' \
    'killed while it answered, [0-9]* tokens restored: the same tokens' 'a server on the loopback, killed' 'computes as it should'; do
    grep -q -e "$what" "$work/out" || [ "$what" = 'kernels without' ] || fail "no '$what'"
done
[ -z "$(ls -A "$work/place")" ] || fail "something is left behind"

got=0
TMPDIR=$work/nowhere "$weir" selftest >"$work/out" 2>"$work/err" || got=$?
{ [ $got -eq 1 ] && grep -q 'nowhere/.*: no folder can be made' "$work/err"; } || fail "a place that is not there: $got"
echo "$failed failed"
[ "$failed" -eq 0 ]
