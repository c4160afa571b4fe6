#!/bin/sh
# usage: demo.sh
# Installs what is missing, builds a release and lets the bundled tiny model continue a prompt. The model is random (it
# is the reference model of the tests), so it shows that every part runs, not that it can write.
set -eu
cd "$(dirname "$0")/.."
model=tests/fixtures/glm52-tiny/plain
scripts/install_deps.sh build
cmake --preset release >/dev/null
cmake --build build | tail -n 1
if ! build/weir help generate >/dev/null 2>&1; then
    echo "demo: this version of weir has no generate command yet; what it has:"
    exec build/weir --help
fi
[ -f "$model/config.json" ] || { echo "demo: $model is missing" >&2; exit 1; }
exec build/weir generate "$model" --ids 1,2,3,4,5,6,7,8 --max-tokens 24 --temperature 0
