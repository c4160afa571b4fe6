#!/bin/sh
# Records the routing of the bundled model, continues the recording, and replays it.
set -eu
weir=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "trace.sh: $*" >&2
    exit 1
}

"$weir" trace record models/demo "$dir/t" --ids "5 6 7 8 9 10" --prefill-chunk 1 --ram-budget 1G --json >"$dir/first"
grep -q '"texts":1,"tokens":6,"steps":48' "$dir/first" || fail "six tokens through eight sparse layers are 48 steps: $(cat "$dir/first")"
bytes=$(wc -c <"$dir/t")

# The same passes again are the same bytes but for their numbers; the placement of experts does not show.
"$weir" trace record models/demo "$dir/u" --ids "5 6 7 8 9 10" --prefill-chunk 1 --experts-resident 2% --policy lfu \
    --ram-budget 1G >/dev/null
cmp "$dir/t" "$dir/u" || fail "a trace depends on where experts were"

# Two texts from a file, greedy tokens behind each, at the end of what is there.
printf '5 6 7\n\n8 9 10 11\n' >"$dir/ids"
"$weir" trace record models/demo "$dir/t" --ids-file "$dir/ids" --max-tokens 2 --ram-budget 1G >"$dir/second"
grep -q '^2 texts, 11 tokens' "$dir/second" || fail "two texts: $(cat "$dir/second")"
[ "$(wc -c <"$dir/t")" -gt "$bytes" ] || fail "nothing was added"

"$weir" trace compare "$dir/t" --slots 4,50%,100% --json >"$dir/json"
for policy in lru due belady; do
    grep -q "\"policy\":\"$policy\"" "$dir/json" || fail "compare lacks $policy: $(cat "$dir/json")"
done
[ "$(grep -o '"slots":[0-9]*' "$dir/json" | tr '\n' ' ')" = '"slots":4 "slots":128 "slots":256 ' ] ||
    fail "shares of 256 experts: $(cat "$dir/json")"
"$weir" trace replay "$dir/t" --policy lfu --slots 25% | grep -q 'layer   2' || fail "replay tells layers"

# What must be refused.
for bad in "replay $dir/t" "compare $dir/ids" "compare $dir/none" "compare $dir/t --slots 0" "compare $dir/t --policy x" \
    "recorded models/demo $dir/v" "record models/demo $dir/v" "record models/demo" "compare $dir/t $dir/t"; do
    # shellcheck disable=SC2086
    if "$weir" trace $bad >"$dir/out" 2>"$dir/err"; then fail "trace $bad must fail"; fi
    [ -s "$dir/err" ] || fail "trace $bad says nothing"
done
[ ! -e "$dir/v" ] || fail "a refused recording left a file"
