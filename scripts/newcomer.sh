#!/bin/sh
# usage: newcomer.sh [ROOT]
# The path of somebody who has just cloned weir: the first commands of README.md, word for word, in a fresh Debian 12. Must end
# with an answer from the bundled model and a green test run. Needs root, debootstrap and the network, and takes about as
# long as `make check` and a debootstrap together; ROOT is kept when it is given.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=${1:-$work/root}
commands=$(awk '/^## Two commands/ { part = 1 } part && /^```$/ { exit } block { print } part && /^```sh/ { block = 1 }' README.md)
case $commands in
*"make demo"*"make check"*) ;;
*) echo "newcomer: README.md's first commands are not make demo and make check:" "$commands" >&2; exit 1 ;;
esac
status=0
scripts/debian_root.sh bookworm "$root" "$commands" >"$work/log" 2>&1 || status=$?
tail -n 40 "$work/log"
grep -q "mixture-of-experts models on a small computer" "$work/log" || { echo "newcomer: no answer from the bundled model" >&2; status=1; }
tail -n 1 "$work/log" | grep -Eq '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$' ||
    { echo "newcomer: the tests are not green" >&2; status=1; }
exit "$status"
