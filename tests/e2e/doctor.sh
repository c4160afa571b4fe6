#!/bin/sh
# usage: doctor.sh PATH_OF_WEIR
# weir doctor on this machine, on the demo model and on damaged copies of it: what it finds, and its exit code.
set -u
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# doctor CODE PATTERN ARGUMENT...; the code may be `told`: 0 or 1, as the output says whether anything is to be changed,
# because a machine may lack something itself.
doctor() {
    code=$1 pattern=$2
    shift 2
    got=0
    env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" HOME="$work" "$weir" doctor "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    if [ "$code" = told ]; then
        code=1
        grep -q -e '^0 problems, 0 warnings$' -e '^{"ok":true,' "$work/out" && code=0
    fi
    { [ $got -eq "$code" ] && grep -q -e "$pattern" "$work/out"; } && return
    failed=$((failed + 1))
    echo "FAIL: weir doctor $*: exit code $got, not $code, or no '$pattern'"
    cat "$work/out" "$work/err"
}

doctor told '^ok  *memory  *[0-9.]* GiB may be counted on'
doctor told '^{"ok":[a-z]*,"findings":\[{"severity":"[a-z]*","subject":"processor"' --json
doctor 1 '^warning  *processor' --cpu-mask avx2,avx512
doctor 1 '^{"ok":false,' --cpu-mask avx2,avx512 --json
doctor told '^ok  *template  *.*the GLM-5.2 template' models/demo
doctor told '^ok  *speed' models/demo
doctor told '"subject":"plan"' models/demo --json --experts-resident 10%
doctor 3 '^problem  *plan' models/demo --ram-budget 10M
doctor 4 '^note  *plan  *a checkpoint' tests/fixtures/glm52-tiny/mtp
doctor 4 '^problem  *tokenizer  *.*tokenizer.json: cannot open' tests/fixtures/glm52-tiny/mtp
doctor 4 '^problem  *files  *.*/config.json: cannot open' "$work"

mkdir "$work/model"
ln -s "$PWD"/models/demo/* "$work/model/"
rm "$work/model/out-idx-00000.safetensors"
doctor 1 '^warning  *sparse index  *absent' "$work/model"
rm "$work/model/out-mtp-00000.safetensors"
doctor 1 '^warning  *MTP  *absent' "$work/model"
rm "$work/model/chat_template.jinja"
echo 'hello' >"$work/model/chat_template.jinja"
doctor 1 '^warning  *template' "$work/model"
rm "$work/model/tokenizer_config.json"
echo '{"added_tokens_decoder": {"7": {"content": "<sop>", "special": true}}}' >"$work/model/tokenizer_config.json"
doctor 1 '^warning  *tokenizer  *.*<sop>' "$work/model"
head -c 1000 models/demo/out-00000.safetensors >"$work/short"
rm "$work/model/out-00000.safetensors"
mv "$work/short" "$work/model/out-00000.safetensors"
doctor 4 '^problem  *files  *.*out-00000.safetensors' "$work/model"
got=0 # every shell that is sh on Linux has ulimit -n
# shellcheck disable=SC3045
(ulimit -n 40 && exec "$weir" doctor models/demo) >"$work/out" || got=$?
if [ $got -ne 1 ] || ! grep -q '^problem  *open files' "$work/out"; then
    echo "FAIL: 40 open files: exit code $got"
    cat "$work/out"
    failed=$((failed + 1))
fi

got=0
"$weir" doctor models/demo --experts-resident 0 >"$work/out" 2>&1 || got=$?
[ $got -eq 2 ] || { echo "FAIL: an impossible option gives $got"; failed=$((failed + 1)); }
echo "$failed failed"
[ "$failed" -eq 0 ]
