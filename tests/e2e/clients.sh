#!/bin/sh
# usage: clients.sh PATH_OF_WEIR
# The official npm packages of OpenAI and Anthropic and the AI SDK, pinned in node/package-lock.json, talk to a server
# with the demo model, and ajv looks at structured output. Skipped where node or npm is missing or too old, or where npm
# cannot fetch the packages.
set -u
weir=$1
node=$PWD/tests/e2e/node
packages=$(cd "$(dirname "$weir")" && pwd)/client-packages
for program in node npm; do
    command -v $program >/dev/null || { echo "no $program: skipped; scripts/install_deps.sh test installs it"; exit 77; }
done
[ "$(node -p 'process.versions.node.split(".")[0] >= 18')" = true ] ||
    { echo "node $(node --version) is older than 18: skipped"; exit 77; }

# Fetched once for a build folder, and again when the lock changes.
if ! cmp -s "$node/package-lock.json" "$packages/fetched-lock.json"; then
    mkdir -p "$packages"
    cp "$node/package.json" "$node/package-lock.json" "$packages/"
    (cd "$packages" && timeout 120 npm ci --no-audit --no-fund --silent </dev/null) ||
        { echo "npm ci failed: skipped"; exit 77; }
    cp "$node/package-lock.json" "$packages/fetched-lock.json"
fi
cp "$node"/*.mjs "$packages/"

work=$(mktemp -d)
"$weir" serve models/demo --port 0 --temperature 0 --batch 2 --max-queue 1 --threads 1 --prefill-chunk 64 \
    >"$work/out" 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
tries=0
until grep -q event=ready "$work/log"; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 $server 2>/dev/null; then
        cat "$work/log"
        echo "FAIL: the server did not start"
        exit 1
    fi
    sleep 0.1
done

failed=0
for script in clients vercel structured; do
    timeout 100 node "$packages/$script.mjs" "$(head -n 1 "$work/out")" || { echo "FAIL: $script"; failed=1; }
done
kill $server
wait $server || { echo "FAIL: the server ended with $?"; failed=1; }
[ $failed -eq 0 ] || tail -n 20 "$work/log"
exit $failed
