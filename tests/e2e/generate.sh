#!/bin/sh
# usage: generate.sh PATH_OF_WEIR
# `weir generate` and `weir score` as people and scripts use them, on the bundled model: where prompts come from, what
# goes to which stream, what the same seed gives, and what is said about mistakes.
set -u
weir=$1
demo=models/demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checked=0

# given INPUT ARGUMENT...   runs weir; leaves code, $work/out and $work/err
given() {
    input=$1
    shift
    code=0
    # shellcheck disable=SC2059 # the input is a format, for its escapes
    printf "$input" | env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" "$weir" "$@" >"$work/out" 2>"$work/err" || code=$?
}
# expect NAME CODE PATTERN_OF_STDOUT PATTERN_OF_STDERR   a pattern of '' is for an empty stdout
expect() {
    checked=$((checked + 1))
    bad=
    [ "$code" -eq "$2" ] || bad="exit code $code, not $2"
    if [ -n "$3" ]; then
        grep -q -e "$3" "$work/out" || bad="$bad; stdout lacks '$3'"
    else
        [ ! -s "$work/out" ] || bad="$bad; stdout is not empty"
    fi
    [ -z "$4" ] || grep -q -e "$4" "$work/err" || bad="$bad; stderr lacks '$4'"
    [ "$2" -eq 0 ] || [ "$(wc -l <"$work/err")" -eq 1 ] || bad="$bad; not one line of error"
    [ -z "$bad" ] && return
    failed=$((failed + 1))
    echo "FAIL: $1: $bad"
    sed 's/^/    /' "$work/out" "$work/err" | head -n 10
}
# same NAME FILE   stdout is the file
same() {
    checked=$((checked + 1))
    cmp -s "$2" "$work/out" && return
    failed=$((failed + 1))
    echo "FAIL: $1: $(cat "$work/out") instead of $(cat "$2")"
}

question='What is the capital of Norway?'
greedy="--temperature 0"
facts='^[0-9]* prompt tokens read in .* tokens/s), [0-9]* written in .* tokens/s), .* of experts read, hit rate .* waited, peak memory .*iB, ended by eos$'

# shellcheck disable=SC2086 # a list of words
{
    given '' generate $demo "$question" $greedy
    expect 'an operand' 0 '^The capital of Norway is Oslo\.$' "$facts"
    cp "$work/out" "$work/answer"
    given '' gen $demo --prompt "$question" $greedy && same '--prompt' "$work/answer"
    given "$question" generate $demo $greedy && same 'a pipe' "$work/answer"
    given "$question\n" generate $demo - $greedy && same '- and the end of a line' "$work/answer"
    printf '%s\n' "$question" >"$work/question"
    given '' generate $demo --prompt-file "$work/question" $greedy && same 'a file' "$work/answer"
    given "$question" generate $demo --prompt-file - $greedy && same '--prompt-file -' "$work/answer"
    given '' generate $demo "$question" $greedy --threads 3 && same '3 threads' "$work/answer"
    given '' generate $demo "$question" $greedy --stop XYZ --stop ' is' && expect '--stop twice' 0 \
        '^The capital of Norway$' 'ended by stop$'
    given '' generate $demo "$question" $greedy --max-tokens 2 && expect '--max-tokens' 0 '^The' 'ended by length$'

    given '' generate $demo "$question" $greedy --json
    expect '--json' 0 '^{"ids":\[[0-9,]*\],"text":"The capital of Norway is Oslo\.","finish_reason":"eos","usage":{"prompt_tokens":15,"completion_tokens":' ''
    [ ! -s "$work/err" ] || { failed=$((failed + 1)); echo "FAIL: --json is not alone"; }
    expect '--json, its numerics' 0 '"numerics":"exact","kv":"f32"' ''
    given '' generate $demo "$question" $greedy --json --num-draft-tokens 3
    expect '--json, its drafts' 0 '"speculation":{"mode":"mtp","drafted":[1-9][0-9]*,"accepted":[1-9][0-9]*,"passes":[1-9][0-9]*,"tokens_per_pass":[1-4][0-9.]*,.*"forwards_saved":[1-9][0-9]*,"added_experts":[0-9]*,"added_bytes":[0-9]*,"expected_gain_seconds":[0-9.e-]*,"gain_seconds":[0-9.e-]*}' ''
    given '' generate $demo "$question" $greedy --json --draft off
    expect '--json, without drafts' 0 '"The capital of Norway is Oslo\."' ''
    given '' generate $demo "$question" $greedy --json --numerics int8 --kv q8
    expect '--numerics and --kv' 0 '"numerics":"int8","kv":"q8"' ''
    given '' generate $demo "$question" $greedy --json
    ids=$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$work/out")
    given "$ids" tokenize $demo --decode
    expect 'its ids are its text' 0 '^The capital of Norway is Oslo\.$' ''

    given '' generate $demo 'What is 268 + 57?' $greedy --thinking on --effort high
    expect 'thinking apart' 0 '^268 + 57 = ' 'carry 1'
    given '' generate $demo 'What is 268 + 57?' $greedy --thinking on --json
    expect 'thinking in JSON' 0 '"reasoning":".*carry 1' ''
    given '' generate $demo 'What do you sell?' $greedy --system 'You are a cook.' --max-tokens 4
    expect '--system' 0 . .
    given '' generate $demo --raw 'In the beginning' $greedy --max-tokens 12
    expect '--raw' 0 '^ [a-z]' 'ended by length'
    given '' generate $demo --ids 4062,4064,4067,2202,0,4068,4081,4082 $greedy
    expect '--ids' 0 '^[0-9][0-9 ]*$' 'ended by eos'

    # however few experts are kept
    given '' generate $demo "$question" $greedy --experts-resident 10% --json
    expect 'residency' 0 '"residency":{"hits":[0-9]*,"misses":[1-9][0-9]*,"bytes_read":[1-9][0-9]*,"waited_seconds":' ''
    given '' generate $demo "$question" $greedy --experts-resident 10% && same 'few experts' "$work/answer"
    given '' generate $demo "$question" $greedy --prefill-chunk 4096 && same 'long passes' "$work/answer"

    # the same seed is the same text: threads, streamed or not
    story='Tell me a story about a fox.'
    given '' generate $demo "$story" --seed 11 --threads 1 && cp "$work/out" "$work/story"
    given '' generate $demo "$story" --seed 11 --threads 3 && same 'seed, 3 threads' "$work/story"
    given '' generate $demo "$story" --seed 11 --json && tail -c +1 "$work/out" | grep -q -F "$(head -c 40 "$work/story")"
    code=$?
    expect 'seed, not streamed' 0 . ''
    given '' generate $demo "$story" --seed 12
    checked=$((checked + 1))
    ! cmp -s "$work/story" "$work/out" || { failed=$((failed + 1)); echo 'FAIL: another seed, the same story'; }

    # mistakes
    given '' generate $demo
    expect 'an empty pipe' 2 '' '^weir: the prompt is empty'
    given '' generate $demo ''
    expect 'an empty prompt' 2 '' '^weir: the prompt is empty'
    given '' generate $demo a --prompt b
    expect 'two prompts' 2 '' '^weir: give the prompt once'
    given '' generate $demo a --ids 1
    expect 'text and ids' 2 '' '^weir: give the prompt once'
    given '' generate $demo --ids 1,4096
    expect 'an id without a token' 2 '' '^weir: number 2 of the ids, 4096, has no token; the ids end at 4095'
    given '' generate $demo --raw a --system b
    expect '--raw --system' 2 '' '^weir: --system has no effect with --raw'
    given '' generate $demo --ids 1 --raw
    expect '--ids --raw' 2 '' '^weir: --raw has no effect on a prompt of token ids'
    given '' generate $demo a --effort high
    expect '--effort alone' 2 '' '^weir: --effort has an effect with --thinking on only'
    given '' generate $demo a --repetition-penalty 0
    expect 'a penalty of 0' 2 '' '^weir: --repetition-penalty'
    given '' generate $demo a --top-k 5000
    expect 'top-k' 2 '' 'top_k: 5000 is more than the vocabulary'
    given 'ok \377' generate $demo
    expect 'a pipe that is not UTF-8' 2 '' '^weir: standard input: the text is not valid UTF-8 at byte 3 (0xff)'
    printf 'ok \377' >"$work/bad"
    given '' generate $demo --prompt-file "$work/bad"
    expect 'a file that is not UTF-8' 2 '' 'bad: the text is not valid UTF-8 at byte 3 (0xff)'
    given '' generate $demo --prompt-file "$work/nowhere"
    expect 'no such file' 2 '' 'nowhere: cannot open'
    given '' generate $demo "$(printf 'a\377b')" $greedy --max-tokens 1
    expect 'an argument that is not UTF-8' 0 . .
    head -c 40000 tests/fixtures/demo/eval.jsonl >"$work/long"
    given '' generate $demo --prompt-file "$work/long"
    expect 'a prompt that is too long' 2 '' '^weir: the prompt has [0-9]* tokens and the context holds 4096, .*--context-length'

    mkdir "$work/model"
    given '' generate "$work/nowhere" a
    expect 'no such model' 4 '' '^weir: .*nowhere'
    cp $demo/*.json $demo/*.safetensors "$work/model"
    rm "$work/model/tokenizer.json"
    given '' generate "$work/model" a
    expect 'no tokenizer' 4 '' 'tokenizer.json: cannot open'
    given '' generate "$work/model" --ids 4062,4064,4067,2202,0,4068,4081,4082 $greedy
    expect 'ids need no tokenizer' 0 '^[0-9][0-9 ]*$' 'ended by eos'
    echo '{' >"$work/model/tokenizer.json"
    given '' generate "$work/model" a
    expect 'a broken tokenizer' 4 '' '^weir: .*tokenizer.json: byte'

    # what a run used is remembered, unless it is not to be
    for choice in off on; do
        code=0
        env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" XDG_STATE_HOME="$work/state" "$weir" generate $demo --ids 1,2,3 --max-tokens 1 \
            --usage-history $choice >"$work/out" 2>"$work/err" || code=$?
        expect "--usage-history $choice" 0 '^[0-9]*$' 'ended by length'
        histories=$(find "$work/state" -name 'usage-*' 2>"$work/none" | wc -l)
        [ "$choice $histories" = 'off 0' ] || [ "$choice $histories" = 'on 1' ] || {
            failed=$((failed + 1))
            echo "FAIL: --usage-history $choice leaves $histories files"
        }
    done
    given '' generate $demo a --usage-history
    expect '--usage-history alone' 2 '' '^weir: --usage-history needs a value'

    # score
    printf 'In the beginning' >"$work/text"
    given '' score $demo --text-file "$work/text" --json
    expect 'score a text' 0 '^{"tokens":6,"scored":5,' ''
    cp "$work/out" "$work/scored"
    given '' score $demo --ids "$("$weir" tokenize $demo '[gMASK]<sop>In the beginning')" --json && same 'score its ids' "$work/scored"
    given '' score $demo --text-file "$work/text" --json --numerics int8
    expect 'score in int8' 0 '"numerics":"int8","kv":"f32"' ''
    ! cmp -s "$work/out" "$work/scored" || { failed=$((failed + 1)); echo "FAIL: int8 scores what exact scores"; }
    given '' score $demo --text-file "$work/text" --numerics int8 && expect 'score in int8, as text' 0 ', numerics int8$' ''
    given '' score $demo --text-file "$work/text" --numerics int7 && expect 'other numerics' 2 '' "there is no 'int7'"
    printf '[gMASK]<sop>In the beginning' >"$work/text"
    given '' score $demo --text-file "$work/text" --json && same 'score with its own prefix' "$work/scored"
    given 'In the beginning' score $demo --text-file - --json && same 'score a pipe' "$work/scored"
    given '' score $demo --text-file "$work/text" --ids 1
    expect 'text and ids to score' 2 '' '^weir: give either --text-file or token ids'
    given '' score $demo --text-file "$work/bad"
    expect 'score what is not UTF-8' 2 '' 'not valid UTF-8 at byte 3'
    given '' score $demo --text-file "$work/long"
    expect 'score what is too long' 2 '' 'tokens and the context holds 4096'
    given '' score $demo
    expect 'score nothing' 2 '' '^weir: give'
}

# Ctrl-C: what was said stands, the program ends in order. Waits until the answer has begun.
set -m 2>/dev/null # a background process ignores SIGINT otherwise
"$weir" generate $demo 'Tell me a story about a fox.' --ignore-eos --max-tokens 4000 >"$work/out" 2>"$work/err" &
pid=$!
tries=0
while [ ! -s "$work/out" ] && [ $tries -lt 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -INT $pid
code=0
wait $pid || code=$?
checked=$((checked + 1))
{ [ "$code" -eq 130 ] && grep -q 'ended by cancelled' "$work/err" && [ -s "$work/out" ]; } || {
    failed=$((failed + 1))
    echo "FAIL: Ctrl-C: exit code $code"
    cat "$work/err"
}
echo "$checked checked, $failed failed"
[ "$failed" -eq 0 ]
