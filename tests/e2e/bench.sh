#!/bin/sh
# usage: bench.sh PATH_OF_WEIR
# The parts of weir bench that run passes: on the demo model, as text and as JSON, and what they refuse.
set -u
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAIL: $1"
    failed=$((failed + 1))
}

for part in prefill decode; do
    "$weir" bench $part models/demo --sizes 3,40 --runs 2 >"$work/out" 2>"$work/err" || fail "$part: $(cat "$work/err")"
    [ "$(grep -c 'tokens/s' "$work/out")" -eq 2 ] || fail "$part: not one line for each size"
    for stage in embed norm project index absorb attend dense router wait experts shared head; do
        [ "$(grep -c "^  $stage " "$work/out")" -eq 2 ] || fail "$part: the stage $stage is missing"
    done
    # Stages are a split of the time, so they add up to nearly all of it.
    awk '/tokens\/s/ { if (n++ && sum < 90) bad = 1; sum = 0 } /%$/ && / a token / { sum += $(NF - 1) }
         END { exit bad || sum < 90 || sum > 100.5 }' "$work/out" || { fail "$part: the stages do not add up"; cat "$work/out"; }
    "$weir" bench $part models/demo --sizes 3 --runs 1 --json >"$work/out" || fail "$part --json"
    grep -q "^{\"part\":\"$part\",.*\"shapes\":\[{\"depth\":.*\"stages_ns\":{\"embed\":.*\"head\":[0-9]*}}\]}$" "$work/out" ||
        fail "$part: what --json prints"
done
"$weir" bench decode models/demo --sizes 3 --sequences 5 --runs 1 >"$work/out" 2>&1 || fail "five sequences: $(cat "$work/out")"

got=0
"$weir" bench decoed models/demo >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q "the nearest is 'decode'" "$work/out"; } || fail "a part that does not exist"
got=0
"$weir" bench prefill models/demo --sizes 0 >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q 'sizes go from 1' "$work/out"; } || fail "a prompt of no tokens"
echo "$failed failed"
[ "$failed" -eq 0 ]
