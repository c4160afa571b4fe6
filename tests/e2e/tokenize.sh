#!/bin/sh
# usage: tokenize.sh PATH_OF_WEIR
# `weir tokenize` as people and scripts use it: arguments, pipes, JSON lines, and what it says about bad input.
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
    [ "$(wc -l <"$work/err")" -eq "$([ "$2" -eq 0 ] && echo 0 || echo 1)" ] || bad="$bad; not one line of error"
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
    # shellcheck disable=SC2059 # the input is a format, for its escapes
    printf "$input" | env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" "$weir" tokenize "$@" >"$work/out" 2>"$work/err" || code=$?
}

given '' $dir/tokenizer.json 'a<|user|>b'
expect 'text as an argument' 0 '64 4067 65
' ''
given '' $dir 'a<|user|>b'
expect 'a folder' 0 '64 4067 65
' ''
given 'a<|user|>b' $dir
expect 'text from standard input' 0 '64 4067 65
' ''
given '' $dir ''
expect 'an empty text' 0 '
' ''
given '' $dir 'ok <|user|>' --special none
ids=$(cat "$work/out")
case " $ids " in *" 4067 "*) ids="a control token came of text" ;; esac
given "$ids" $dir --decode
expect 'markers stay text' 0 'ok <|user|>' ''
given '' $dir --decode '64, 4067,65'
expect 'ids as an argument' 0 'a<|user|>b' ''
given '' $dir --decode --special none '64 4067 65'
expect 'without special tokens' 0 'ab' ''
given '{"text": "a<|user|>"}\n\n{"ids": [65, 4067]}' $dir --json
expect 'JSON lines' 0 '{"ids":[64,4067],"text":"a<|user|>"}
{"ids":[65,4067],"text":"b<|user|>"}
' ''
given '' $dir --json 'a"b'
expect 'one JSON line' 0 '{"ids":[64,1,65],"text":"a\"b"}
' ''
given '{"text": "\\u0000"}\n' $dir --json
expect 'NUL' 0 '{"ids":[188],"text":"\u0000"}
' ''

given 'ok \377' $dir
expect 'invalid UTF-8' 2 '' 'standard input: the text is not valid UTF-8 at byte 3 (0xff)'
given '' $dir "$(printf 'a\377')" --json
grep -q '"text":"a�"' "$work/out" || { echo "FAIL: invalid bytes of an argument are replaced"; failed=$((failed + 1)); }
given x "$work/nowhere"
expect 'no such model' 4 '' 'nowhere: cannot open: No such file'
given x "$work"
expect 'a folder without a tokenizer' 4 '' 'tokenizer.json: cannot open: No such file'
echo '{"model": {}}' >"$work/tokenizer.json"
given x "$work"
expect 'a bad tokenizer' 4 '' 'tokenizer.json: pre_tokenizer: is "null" instead of a "Sequence"'
given '64 4096' $dir --decode
expect 'an id without a token' 2 '' 'token id 4096 has no token; ids of this tokenizer are below 4096'
given '64 x' $dir --decode
expect 'not an id' 2 '' "standard input: 'x' (number 2) is not a token id"
given '' $dir --decode
expect 'no ids' 2 '' 'standard input: no token ids'
given '{"text": "a"}\n{"text": 7}\n' $dir --json
expect 'a bad line' 2 '{"ids":[64],"text":"a"}
' 'standard input, line 2: text is not a string'
given '{"ids": [1, -1]}\n' $dir --json
expect 'a bad id in a line' 2 '' 'standard input, line 1: ids.1. is not a token id'
given '{"text": "a", "ids": [1]}\n' $dir --json
expect 'both' 2 '' 'standard input, line 1: must be'
given '{"text": "a"\n' $dir --json
expect 'not JSON' 2 '' 'standard input, line 1: request: byte'
given '' $dir --json --decode
expect 'decode without effect' 2 '' '--decode has no effect on JSON lines'
given '' $dir --special some x
expect 'a wrong choice' 2 '' "--special: there is no 'some'"

echo "$checked checked, $failed failed"
[ "$failed" -eq 0 ]
