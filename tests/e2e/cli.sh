#!/bin/sh
# usage: cli.sh PATH_OF_WEIR
# The built program as people meet it: exit codes, which stream, and the names in its messages. Whatever commands it has
# are taken from its own help.
set -u
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checked=0

# run CODE PATTERN_OF_STDOUT PATTERN_OF_STDERR ARGUMENT...   with an empty environment and no input
run() {
    code=$1 out=$2 err=$3
    shift 3
    got=0
    env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" ${setting:+"$setting"} "$weir" "$@" \
        </dev/null >"$work/out" 2>"$work/err" || got=$?
    checked=$((checked + 1))
    bad=
    [ "$got" -eq "$code" ] || bad="exit code $got, not $code"
    grep -q -e "$out" "$work/out" || [ -z "$out" ] || bad="$bad; stdout lacks '$out'"
    grep -q -e "$err" "$work/err" || [ -z "$err" ] || bad="$bad; stderr lacks '$err'"
    if [ "$code" -eq 0 ]; then [ ! -s "$work/err" ] || bad="$bad; stderr is not empty"; fi
    if [ "$code" -eq 2 ]; then [ ! -s "$work/out" ] || bad="$bad; stdout is not empty"; fi
    [ -z "$bad" ] && return
    failed=$((failed + 1))
    echo "FAIL: ${setting:-} weir $*: $bad"
    sed 's/^/    /' "$work/out" "$work/err" | head -n 10
}

setting=
run 0 '^usage: weir COMMAND' ''
run 0 '^usage: weir COMMAND' '' --help
run 0 '^weir [0-9]' '' version
run 0 '^weir [0-9]' '' --version
run 0 '"version":' '' version --json
run 2 '' "^weir: there is no command 'vresion'; the nearest is 'version'" vresion
run 2 '' '^weir: version has no option --jsom; the nearest is --json' version --jsom
run 2 '' "^weir: --json: 'maybe' is neither on nor off" version --json=maybe
run 2 '' '^weir: --config needs a value' version --config
run 2 '' '/nowhere/weir.ini: cannot open: No such file' version --config /nowhere/weir.ini

setting=WEIR_JSON=on
run 0 '"version":' '' version
run 0 '^weir [0-9]' '' version --json=off
setting=WEIR_JSNO=on
run 2 '' '^weir: WEIR_JSNO is set .* the nearest is WEIR_JSON$' version
setting=XDG_CONFIG_HOME=$work
mkdir "$work/weir"
echo 'json = on' >"$work/weir/config.ini"
run 0 '"version":' '' version
echo 'jsno = on' >"$work/weir/config.ini"
run 2 '' "config.ini:1: there is no option 'jsno'; the nearest is 'json'" version
setting=

commands=$("$weir" --help | sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p')
for command in $commands; do
    run 0 "^usage: weir $command" '' "$command" --help
    run 0 "^usage: weir $command" '' help "$command"
    run 2 '' "^weir: $command has no option --confgi; the nearest is --config" "$command" --confgi x
    # sizes: wherever an option takes one
    sizes=$("$weir" "$command" --help | sed -n 's/^  --\([a-z-]*\) SIZE.*/\1/p')
    for option in $sizes; do
        run 2 '' "^weir: --$option: '20X' is not a size such as 512M or 20GiB" "$command" "--$option" 20X
        run 2 '' "^weir: --$option: '-1' is not a size" "$command" "--$option=-1"
    done
done
[ "$(echo "$commands" | grep -c .)" -ge 2 ] || { echo "FAIL: the help lists no commands"; failed=$((failed + 1)); }

if [ -e /dev/full ]; then # results that nobody received
    got=0
    env -i "$weir" version >/dev/full 2>"$work/err" || got=$?
    checked=$((checked + 1))
    { [ "$got" -eq 1 ] && grep -q 'No space left' "$work/err"; } || { echo "FAIL: full disk: exit code $got"; failed=$((failed + 1)); }
    # an answer that nobody receives ends: all its tokens would take minutes
    for command in "generate models/demo --prompt hi --ignore-eos --max-tokens 500000 --context-length 600000" "chat models/demo"; do
        got=0
        # shellcheck disable=SC2086 # a list of words
        echo hi | env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" timeout 60 "$weir" $command >/dev/full 2>"$work/err" || got=$?
        checked=$((checked + 1))
        { [ "$got" -eq 1 ] && [ "$(grep -c '^weir: cannot write the output: No space left on device$' "$work/err")" -eq 1 ]; } ||
            { echo "FAIL: full disk: $command: exit code $got"; cat "$work/err"; failed=$((failed + 1)); }
    done
fi
echo "$checked checks, $failed failed"
[ "$failed" -eq 0 ]
