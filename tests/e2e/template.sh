#!/bin/sh
# usage: template.sh PATH_OF_WEIR
# `weir template` as people and scripts use it: a prompt, JSON lines, and what it says about bad input.
set -u
weir=$1
dir=tests/fixtures/tokenizer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checked=0

# expect NAME CODE WANTED_STDOUT WANTED_IN_STDERR; the command ran before and left out, err and code
expect() {
    checked=$((checked + 1))
    bad=
    [ "$code" -eq "$2" ] || bad="exit code $code, not $2"
    printf '%s' "$3" | cmp -s - "$work/out" || bad="$bad; stdout differs from '$3'"
    grep -q -e "$4" "$work/err" || [ -z "$4" ] || bad="$bad; stderr lacks '$4'"
    [ -n "$4" ] || [ ! -s "$work/err" ] || bad="$bad; stderr is not empty"
    [ -z "$bad" ] && return
    failed=$((failed + 1))
    echo "FAIL: $1: $bad"
    sed 's/^/    /' "$work/out" "$work/err" | head -n 10
}
# given INPUT ARGUMENT...
given() {
    input=$1
    shift
    code=0
    printf '%s' "$input" | env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" "$weir" template "$@" >"$work/out" 2>"$work/err" ||
        code=$?
}

given '' $dir 'hi'
expect 'a prompt' 0 '[gMASK]<sop><|user|>hi<|assistant|><think></think>' ''
given 'hi
' $dir/tokenizer.json --thinking on
expect 'a prompt from standard input, thinking' 0 '[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>hi
<|assistant|><think>' ''
given '' $dir 'a' --json
expect 'a prompt as JSON' 0 '{"ids":[4062,4064,4067,64,4068,4081,4082],"text":"[gMASK]<sop><|user|>a<|assistant|><think></think>"}
' ''
given '{"messages": [{"role": "user", "content": "a"}]}

{"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "high", "add_generation_prompt": false}' $dir --json
expect 'JSON lines' 0 '{"ids":[4062,4064,4067,64,4068,4081,4082],"text":"[gMASK]<sop><|user|>a<|assistant|><think></think>"}
{"ids":[4062,4064,4066,924,922,25,1347,4067,64],"text":"[gMASK]<sop><|system|>Reasoning Effort: High<|user|>a"}
' ''
given '{"messages": [{"role": "user", "content": "<think>"}], "add_generation_prompt": false}' $dir --json --special all
expect 'markers in client text by request' 0 '{"ids":[4062,4064,4067,4081],"text":"[gMASK]<sop><|user|><think>"}
' ''
given '{"messages": [{"role": "user", "content": "<think>"}], "add_generation_prompt": false}' $dir --json
case $(cat "$work/out") in *4081*) echo "FAIL: client text became a control token"; failed=$((failed + 1)) ;; esac

given '{"messages": []}' $dir --json
expect 'no messages' 2 '' 'standard input, line 1: messages: must be an array with at least one message'
given '{"messages": [{"role": "robot"}]}' $dir --json
expect 'an unknown role' 2 '' "standard input, line 1: messages.0..role: 'robot'"
given '{"mesages": []}' $dir --json
expect 'a member without effect' 2 '' "'mesages' has no effect on a prompt"
given '{"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "huge"}' $dir --json
expect 'a wrong effort' 2 '' "reasoning_effort: 'huge'"
given '{"messages": ' $dir --json
expect 'not JSON' 2 '' 'standard input, line 1: request: byte 13'
given '[1]' $dir --json
expect 'not an object' 2 '' 'not a JSON object'
given '' "$work" x
expect 'a folder without a tokenizer' 4 '' 'tokenizer.json: cannot open'
sed 's/<arg_key>/<Arg_key>/g' $dir/tokenizer.json >"$work/tokenizer.json"
given '' "$work" x
expect 'a tokenizer of another family' 4 '' 'has no added token <arg_key>'

cp $dir/tokenizer.json "$work"
echo '{{ messages }}' >"$work/chat_template.jinja"
given '' "$work" x
expect 'a model with another template' 0 '[gMASK]<sop><|user|>x<|assistant|><think></think>' 'weir: warning: chat_template.jinja differs'
cp tests/fixtures/chat/chat_template.jinja "$work"
given '' "$work" x
expect 'a model with the template' 0 '[gMASK]<sop><|user|>x<|assistant|><think></think>' ''

echo "$checked checked, $failed failed"
[ "$failed" -eq 0 ]
