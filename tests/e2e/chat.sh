#!/bin/sh
# usage: chat.sh PATH_OF_WEIR
# `weir chat` through a pipe: answers on stdout, everything else on stderr; turns, commands, files, mistakes.
set -u
weir=$1
demo=models/demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checked=0

# typed TEXT ARGUMENT...   what is typed is a format, for its escapes
typed() {
    text=$1
    shift
    code=0
    # shellcheck disable=SC2059
    printf "$text" | env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" HOME="$work" "$weir" chat "$@" \
        >"$work/out" 2>"$work/err" || code=$?
}
# expect NAME CODE PATTERN_OF_STDOUT PATTERN_OF_STDERR...
expect() {
    checked=$((checked + 1))
    name=$1
    bad=
    [ "$code" -eq "$2" ] || bad="exit code $code, not $2"
    grep -q -e "$3" "$work/out" || [ -z "$3" ] || bad="$bad; stdout lacks '$3'"
    [ -n "$3" ] || [ ! -s "$work/out" ] || bad="$bad; stdout is not empty"
    shift 3
    for pattern; do
        grep -q -e "$pattern" "$work/err" || bad="$bad; stderr lacks '$pattern'"
    done
    [ -z "$bad" ] && return
    failed=$((failed + 1))
    echo "FAIL: $name: $bad"
    sed 's/^/    /' "$work/out" "$work/err" | head -n 20
}
zero='--temperature 0'

# shellcheck disable=SC2086 # lists of words
{
    typed 'What is the capital of Norway?\n' $demo $zero
    expect 'one question' 0 '^The capital of Norway is Oslo\.$' '4096 tokens of context, thinking off; /help'
    [ "$(wc -l <"$work/out")" -eq 1 ] || { failed=$((failed + 1)); echo 'FAIL: more than the answer on stdout'; }
    typed 'What is the capital of Norway?' $demo $zero
    expect 'a last line without its end' 0 '^The capital of Norway is Oslo\.$' .
    typed '' $demo
    expect 'nothing' 0 '' 'thinking off'
    typed '\n  \n/quit\nHello!\n' $demo
    expect 'quit' 0 '' .

    typed 'My name is Robert.\nWhat is my name?\n/stats\n' $demo $zero
    expect 'it remembers, and reads only what is new' 0 '^Your name is Robert\.$' \
        '^last answer: 9 prompt tokens read .*, [1-9][0-9]* reused' '^all 2 answers: 23 prompt tokens read .*, 22 reused' '^4 messages'
    typed 'My name is Robert.\n/reset\n/stats\n' $demo $zero
    expect 'reset' 0 . '^a new conversation' '^0 messages'
    typed 'What is \\\n2 + 3?\n/save '"$work"'/lines.json\n' $demo $zero
    expect 'a backslash joins lines' 0 . '2 messages saved'
    grep -q -F '"What is \n2 + 3?"' "$work/lines.json" || { failed=$((failed + 1)); echo 'FAIL: lines are not joined'; }
    typed '//help\n/save '"$work"'/slash.json\n' $demo $zero --max-tokens 1
    grep -q -F '"content": "/help"' "$work/slash.json" || { failed=$((failed + 1)); echo 'FAIL: // is no slash'; }

    typed 'My name is Robert.\n/save '"$work"'/a.json\n/reset\n/load '"$work"'/a.json\nWhat is my name?\n' $demo $zero
    expect 'save and load' 0 '^Your name is Robert\.$' '^2 messages saved to' '^2 messages loaded from'
    typed '/load '"$work"'/a.json\nWhat is my name?\n' $demo $zero
    expect 'load in another process' 0 '^Your name is Robert\.$' .
    "$weir" template $demo --json <"$work/a.json" | grep -q 'My name is Robert' ||
        { failed=$((failed + 1)); echo 'FAIL: template does not read what chat saves'; }
    cp "$work/a.json" "$work/e.json" # messages without a state beside them
    # what a conversation computed is found on disk by the next process, which loads its messages and reads what is new
    for first in yes no; do
        typed '/load '"$work"'/e.json\nWhat is my name?\n/stats\n' $demo $zero --ssd-cache "$work/states"
        if [ $first = yes ]; then
            expect 'a cache on disk' 0 '^Your name is Robert\.$' '^last answer: [1-9][0-9] prompt tokens read '
        else
            expect 'a cache on disk, found again' 0 '^Your name is Robert\.$' '^last answer: 1 prompt tokens read .*, [1-9][0-9]* reused'
        fi
    done
    [ -n "$(ls "$work/states")" ] || { failed=$((failed + 1)); echo 'FAIL: nothing is on disk'; }
    typed '/load '"$work"'/a.json\nWhat is my name?\n/stats\n' $demo $zero
    expect 'a state is loaded, and only what is new is read' 0 '^Your name is Robert\.$' \
        '^the state of 2[0-9] tokens loaded from' '^all 1 answers: 9 prompt tokens read .*, 22 reused'
    cp "$work/a.json" "$work/d.json"
    { head -c 3000 "$work/a.json.weirkv"; printf X; tail -c +3002 "$work/a.json.weirkv"; } >"$work/d.json.weirkv"
    typed '/load '"$work"'/d.json\nWhat is my name?\n/stats\n' $demo $zero
    expect 'a damaged state is refused, and the conversation goes on' 0 '^Your name is Robert\.$' \
        '^weir: .*d.json.weirkv: damaged at offset .*; the conversation is read again' ', 0 reused'
    typed '/load '"$work"'/a.json\nWhat is my name?\n' $demo $zero --kv f16
    expect 'a state of another storage is refused' 0 '^Your name is Robert\.$' 'was made with other --numerics or --kv'
    echo '[{"role": "user", "content": "My name is Robert."}, {"role": "assistant", "content": "Noted."}]' >"$work/b.json"
    typed '/load '"$work"'/b.json\nWhat is my name?\n' $demo $zero
    expect 'a bare array' 0 '^Your name is Robert\.$' .

    typed '/think on\nWhat is 268 + 57?\n/think off\n/think high\n/think max\n/think\n' $demo $zero
    expect 'think' 0 '^268 + 57' '^thinking is on, with most effort' 'carry 1' '^thinking is off' '^thinking is on, with high effort'
    typed '/system\n/system Be brief.\n/system\n/system -\n/system\n' $demo --system 'You are a cook.'
    expect 'system' 0 '' '^You are a cook\.$' '^Be brief\.$' '^(no system message)$'
    typed '/help\n' $demo
    for command in help system think save load stats reset quit; do expect "help $command" 0 '' "^  /$command "; done
    typed 'Tell me a story about a fox.\n' $demo $zero --max-tokens 3
    expect 'cut' 0 . '^(cut after 3 tokens: --max-tokens)'
    typed 'Tell me a story about a fox.\n' $demo $zero --context-length 24
    expect 'context full' 0 . '^(cut: the context is full'

    # a script learns of mistakes by the exit code, and nothing behind them is done
    typed '/sav x\nHello!\n' $demo
    expect 'no such command' 2 '' "^weir: there is no /sav; the nearest is /save"
    typed '/save\n' $demo
    expect 'save without a name' 2 '' '^weir: /save needs the name of a file'
    typed '/save /nowhere/at/all.json\n' $demo
    expect 'save where it cannot be' 1 '' '^weir: /nowhere/at/all.json'
    typed '/think hard\n' $demo
    expect 'think hard' 2 '' "^weir: /think: 'hard' is none of"
    typed '/reset now\n' $demo
    expect 'reset now' 2 '' '^weir: /reset takes nothing'
    typed '/load '"$work"'/nowhere.json\n' $demo
    expect 'load nothing' 4 '' 'nowhere.json: cannot open'
    echo '{"messages": [{"role": "robot", "content": "x"}]}' >"$work/c.json"
    typed '/load '"$work"'/c.json\n' $demo
    expect 'load a wrong role' 4 '' 'c.json: messages\[0\]'
    echo '{"messages": 7}' >"$work/c.json"
    typed '/load '"$work"'/c.json\n' $demo
    expect 'load no messages' 4 '' 'c.json: neither'
    echo '{"messages": [' >"$work/c.json"
    typed '/load '"$work"'/c.json\n' $demo
    expect 'load half a file' 4 '' 'c.json: byte'
    typed 'one two three four five six seven eight nine ten eleven twelve\n' $demo --context-length 16
    expect 'a question that does not fit' 2 '' '^weir: the prompt has [0-9]* tokens and the context holds 16'
    typed 'caf\303\nx\n' $demo $zero --max-tokens 1
    expect 'bytes that are not UTF-8' 0 . .
    typed 'x\n' "$work/nowhere"
    expect 'no such model' 4 '' '^weir: .*nowhere'
}
[ ! -e "$work/.local/state/weir/chat_history" ] || { failed=$((failed + 1)); echo 'FAIL: a pipe leaves a history'; }
echo "$checked checked, $failed failed"
[ "$failed" -eq 0 ]
