#!/bin/sh
# usage: isolate.sh PATH_OF_WEIR
# The engine in a process of its own: it is killed in the middle of answers, the front tells its clients why and goes on.
set -u
weir=$1
command -v curl >/dev/null || { echo "no curl: skipped"; exit 77; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT
checked=0
failed=0

check() { # WHAT, then a command that must succeed
    what=$1
    shift
    checked=$((checked + 1))
    "$@" || { failed=$((failed + 1)); echo "FAIL: $what"; tail -n 5 "$work/log"; }
}

until_true() { # a command, within 30 s
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 0.05
    done
}

start() {
    "$weir" serve models/demo --isolate --port 0 --temperature 0 --threads 1 --context-length 32768 >"$work/out" 2>"$work/log" &
    server=$!
    until_true grep -q event=ready "$work/log" || { cat "$work/log"; echo "FAIL: it does not start"; exit 1; }
    url=$(head -n 1 "$work/out")
}

ask() { # BODY: prints status and answer
    curl -s -m 60 -w '\n%{http_code}\n' -H 'content-type: application/json' -d "$1" "$url/v1/chat/completions"
}

engine() { curl -s "$url/stats" | sed -n 's/.*"engine":{"pid":\([0-9]*\).*/\1/p'; }
is_new_engine() { pid=$(engine); [ -n "$pid" ] && [ "$pid" != 0 ] && [ "$pid" != "$1" ]; }
is_healthy() { [ "$(curl -s -m 5 "$url/health")" = '{"status":"ok"}' ]; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }
has() { grep -qE -e "$2" "$1"; }

hi='"messages":[{"role":"user","content":"What is the capital of France?"}]'
long="{$hi,\"stream\":true,\"ignore_eos\":true,\"max_tokens\":32000}"

start
ask "{$hi}" >"$work/first"
check 'an answer' has "$work/first" 'Paris'
check 'with 200' has "$work/first" '^200$'
ask "{$hi,\"max_tokens\":60,\"response_format\":{\"type\":\"json_object\"}}" >"$work/form"
check 'a form' has "$work/form" '"content":"[{]'

# Killed in the middle of a stream, in three ways.
for signal in 9 11 6; do
    # A sanitizer turns the second one into an exit of its own.
    case $signal in
        11) end="(was killed by signal 11|ended with code)" ;;
        *) end="was killed by signal $signal" ;;
    esac
    pid=$(engine)
    curl -sN -m 60 -H 'content-type: application/json' -d "$long" "$url/v1/chat/completions" >"$work/stream" &
    client=$!
    check "signal $signal: the stream begins" until_true has "$work/stream" '"content":"[^"]'
    kill -"$signal" "$pid"
    wait $client
    check "signal $signal: the client is told why" has "$work/stream" "engine_unavailable: the engine.s process $end"
    check "signal $signal: and sees no good end" sh -c "! grep -q DONE '$work/stream'"
    check "signal $signal: another engine" until_true is_new_engine "$pid"
    check "signal $signal: and health" until_true is_healthy
    ask "{$hi}" >"$work/again"
    check "signal $signal: the same answer" has "$work/again" 'Paris'
done

# The fourth end within a minute is the last one.
kill -9 "$(engine)"
check 'it stays down' until_true has "$work/log" 'event=engine_down'
ask "{$hi}" >"$work/down"
check 'requests get 502' has "$work/down" '^502$'
check 'with the reason' has "$work/down" 'is not started again'
curl -s "$url/health" >"$work/health"
check 'health says so' has "$work/health" '"status":"error"'
kill "$server"
check 'a clean end' wait "$server"
server=

# Who stops the front stops all of it, however it is stopped.
for signal in TERM KILL; do
    start
    pid=$(engine)
    kill -$signal "$server"
    wait "$server" 2>/dev/null
    check "SIG$signal: the engine ends too" until_true is_gone "$pid"
    server=
done

# A model that does not open is the same error as without.
"$weir" serve models/demo --isolate --port 0 --ram-budget 1M >"$work/out" 2>"$work/log"
isolated=$?
"$weir" serve models/demo --port 0 --ram-budget 1M >"$work/out" 2>"$work/log-plain"
plain=$?
check "exit code $isolated, and $plain without" [ $isolated -eq $plain ]
grep '^weir:' "$work/log" >"$work/said"
grep '^weir:' "$work/log-plain" >"$work/said-plain"
check 'the same words' cmp "$work/said" "$work/said-plain"

echo "$checked checked, $failed failed"
[ $failed -eq 0 ]
