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

"$weir" bench disk models/demo >"$work/out" 2>&1 || fail "disk: $(cat "$work/out")"
[ "$(grep -c 'in flight .* GB/s .* GB/s' "$work/out")" -eq 6 ] || fail "disk: not one line for each depth"
# The engine against its ceilings: every phase with its two quotients, and bytes that add up.
"$weir" bench engine models/demo --experts-resident 25% >"$work/out" 2>&1 ||
    fail "engine: $(cat "$work/out")"
[ "$(grep -c 'time over the larger floor, which is the .*; the disk at .* of its ceiling' "$work/out")" -eq 4 ] ||
    { fail "engine: not two quotients for each phase"; cat "$work/out"; }
"$weir" bench engine models/demo --experts-resident 25% --json >"$work/out" 2>"$work/err" ||
    fail "engine --json: $(cat "$work/err")"
for phase in first_prompt prefill warm_up decode; do
    sed -n "s/.*\"$phase\":{\([^}]*\)}.*/\1/p" "$work/out" | tr -d '"' | tr ',' '\n' | tr ':' ' ' |
        awk -v phase="$phase" '
            { v[$1] = $2 }
            function near(what, a, b) { if (a - b > 0.02 * b || b - a > 0.02 * b) { print phase, what, a, b; bad = 1 } }
            END {
                s = v["ns"] / 1e9; disk = v["disk_bytes_per_second"]
                if (!(v["tokens"] > 0 && disk > 0 && v["bytes_needed"] <= v["bytes_wanted"])) { print phase; exit 1 }
                near("disk floor", v["disk_floor_seconds"] + 1e-5, v["bytes_needed"] / disk + 1e-5)
                larger = v["disk_floor_seconds"] > v["processor_seconds"] ? v["disk_floor_seconds"] : v["processor_seconds"]
                near("over floor", v["over_floor"], s / larger)
                near("disk share", v["disk_share"] + 1e-3, v["bytes_read"] / s / disk + 1e-3)
                exit bad
            }' || fail "engine: the quotients of $phase do not follow from its figures"
done

"$weir" bench batch models/demo --sizes 1,3 --runs 1 --experts-resident 25% >"$work/out" 2>&1 || fail "batch: $(cat "$work/out")"
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "batch: not one line for each size"
"$weir" bench batch models/demo --sizes 2 --runs 1 --json >"$work/out" || fail "batch --json"
grep -q '^{"part":"batch",.*"rows":\[{"sequences":2,"tokens":48,.*"bytes_wanted_per_token":[0-9]*}\]}$' "$work/out" ||
    fail "what batch --json prints"
"$weir" bench draft models/demo --experts-resident 50% --hits 0,95 --throttle 0,500 --sizes 1 --runs 1 >"$work/out" 2>&1 ||
    fail "draft: $(cat "$work/out")"
[ "$(wc -l <"$work/out")" -eq 6 ] || { fail "draft: not one line for each disk and share of hits"; cat "$work/out"; }
"$weir" bench draft models/demo --experts-resident 50% --hits 100 --sizes 2 --runs 1 --json >"$work/out" || fail "draft --json"
# Drafts that always come true are all accepted, and a pass with two of them brings three tokens.
sed 's/.*{"drafts":2,[^[]*"turns":\[{\([^}]*\)}.*/\1/' "$work/out" | tr -d '"' | tr ',' '\n' | tr ':' ' ' |
    awk '{ v[$1] = $2 } END { exit !(v["drafted"] > 0 && v["drafted"] == v["accepted"] && v["tokens"] == 3 * v["passes"]) }' ||
    fail "draft: accepted drafts of --json: $(cat "$work/out")"
got=0
"$weir" bench draft models/demo --hits 101 >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q 'numbers up to 100' "$work/out"; } || fail "more than all drafts hit"
got=0
"$weir" bench batch models/demo --sizes 65 >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q 'from 1 to 64' "$work/out"; } || fail "too many sequences"
"$weir" bench kernels rope --runs 1 --json >"$work/out" || fail "kernels --json"
grep -q '^{"part":"kernels".*"kernels":\[.*{"op":"rope","isa":"ref","rows":1,"out":0,"in":64,"ns":.*}\]}$' "$work/out" ||
    fail "what kernels prints: $(cat "$work/out")"
got=0
"$weir" bench decode >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q 'bench decode needs a MODEL' "$work/out"; } || fail "a part without its model"
got=0
"$weir" bench decoed models/demo >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q "the nearest is 'decode'" "$work/out"; } || fail "a part that does not exist"
got=0
"$weir" bench prefill models/demo --sizes 0 >"$work/out" 2>&1 || got=$?
{ [ $got -eq 2 ] && grep -q 'sizes go from 1' "$work/out"; } || fail "a prompt of no tokens"
echo "$failed failed"
[ "$failed" -eq 0 ]
