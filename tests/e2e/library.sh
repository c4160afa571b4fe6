#!/bin/sh
# usage: library.sh PATH_OF_WEIR
# libweir as it is installed: its header is C99 and C++, the shared and the static library have no symbols but their own,
# and the example programs build with what pkg-config says and answer with the bundled model.
set -u
build=$(dirname "$1")
demo=models/demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checked=0

say_failed() {
    failed=$((failed + 1))
    echo "FAIL: $1"
}
# must NAME COMMAND...
must() {
    name=$1
    shift
    checked=$((checked + 1))
    "$@" >"$work/said" 2>&1 && return
    say_failed "$name"
    head -n 20 "$work/said"
}
# answers NAME PATTERN FILE
answers() {
    checked=$((checked + 1))
    grep -q -e "$2" "$3" && return
    say_failed "$1: '$2' is not in: $(cat "$3")"
}
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

cc=$(cached CMAKE_C_COMPILER)
sanitizers=$(cached WEIR_SANITIZE)
flags="-O1 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror${sanitizers:+ -fsanitize=$sanitizers}"

# The header alone.
echo '#include <weir/weir.h>' >"$work/header.c"
cp "$work/header.c" "$work/header.cc"
for standard in c99 c11 c17; do
    must "the header is $standard" "$cc" -std=$standard -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -Iinclude \
        -fsyntax-only "$work/header.c"
done
for standard in c++11 c++17; do
    must "the header is $standard" g++ -std=$standard -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only \
        "$work/header.cc"
done

# Symbols. What is declared is there, and nothing else is: also seen with a library that has more.
declared=$(grep -v typedef include/weir/weir.h | grep -o 'weir_[a-z_]*(' | tr -d '(' | sort -u)
exports() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u; }
statics() { nm -g --defined-only "$1" 2>/dev/null | awk 'NF == 3 && $2 != "A" { print $3 }' | sort -u; }
for kind in so a; do
    checked=$((checked + 1))
    case $kind in
    so) exports "$build/libweir.so" ;;
    a) statics "$build/libweir.a" ;;
    esac >"$work/all_symbols"
    pattern='^$'
    [ -z "$sanitizers" ] || pattern='^__' # a sanitizer adds its own
    grep -v "$pattern" "$work/all_symbols" >"$work/symbols"
    missing=$(printf '%s\n' "$declared" | comm -23 - "$work/symbols")
    extra=$(grep -v '^weir_' "$work/symbols")
    [ -z "$missing$extra" ] || say_failed "libweir.$kind lacks: $missing; has besides: $extra"
    [ "$(wc -l <"$work/symbols")" -gt 40 ] || say_failed "libweir.$kind has hardly any symbols, so nothing was checked"
done
checked=$((checked + 1))
statics "$build/libweir_core.a" | grep -qv '^weir_' || say_failed "the check sees no other symbols where there are some"

# What a program that uses it has to load: neither a server nor a database.
checked=$((checked + 1))
needed=$(readelf -d "$build/libweir.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libjson-c|libcrypto|libxxhash|liburing|ld-linux.*|libasan|libubsan|libgcc_s)\.so' | tr '\n' ' ')
[ -z "$needed" ] || say_failed "libweir.so needs $needed"
must "the soname" sh -c "readelf -d '$build/libweir.so' | grep -q 'SONAME.*libweir.so.0'"

# Installed, found by pkg-config, used.
must "install" cmake --install "$build" --prefix "$work/there"
PKG_CONFIG_PATH=$(dirname "$(find "$work/there" -name weir.pc)")
export PKG_CONFIG_PATH
must "pkg-config finds it" pkg-config --exists --print-errors weir
libdir=$(pkg-config --variable=libdir weir)
for example in ask talk; do
    source=$(find "$work/there" -name $example.c)
    # shellcheck disable=SC2046,SC2086 # lists of words
    must "$example builds" "$cc" -std=c99 -pedantic $flags "$source" -o "$work/$example" $(pkg-config --cflags --libs weir) \
        "-Wl,-rpath,$libdir"
done
# The static library: its name takes the place of the shared one's.
# shellcheck disable=SC2046,SC2086 # lists of words
must "ask builds without a shared library" "$cc" -std=c99 $flags examples/ask.c -o "$work/ask_static" \
    $(pkg-config --cflags weir) "$libdir/libweir.a" $(pkg-config --static --libs-only-l weir | sed 's/-lweir //')
must "no libweir.so is loaded then" sh -c "! readelf -d '$work/ask_static' | grep -q libweir"

question='What is the capital of Norway?'
for program in ask ask_static; do
    must "$program answers" sh -c "'$work/$program' $demo '$question' >'$work/answer'"
    answers "$program" '^The capital of Norway is Oslo\.$' "$work/answer"
done
checked=$((checked + 1))
"$work/ask" /nowhere "$question" >"$work/answer" 2>&1 && say_failed "ask succeeds without a model"
answers "ask without a model" '^ask: /nowhere: cannot open: No such file' "$work/answer"

# A conversation in two processes: the second one goes on with what the first one saved.
printf 'What is the capital of Norway?\n' >"$work/first"
printf 'What is the capital of Norway?\nWhat is 12 times 7?\n' >"$work/second"
must "talk answers" sh -c "'$work/talk' $demo '$work/state' <'$work/first' >'$work/answer' 2>'$work/figures'"
answers "talk" '^The capital of Norway is Oslo\.$' "$work/answer"
answers "talk shows the plan" ' MB  expert slots$\| MB  .*slots' "$work/figures"
answers "talk saves" '^\[[0-9]* tokens saved to' "$work/figures"
must "talk goes on" sh -c "'$work/talk' $demo '$work/state' <'$work/second' >'$work/answer2' 2>'$work/figures'"
answers "talk restores" '^\[[0-9]* tokens restored from' "$work/figures"
answers "what was restored is not read again" '^\[1 tokens read, ' "$work/figures"
must "the same answer after a restart" sh -c "head -n 1 '$work/answer2' | cmp - '$work/answer'"
checked=$((checked + 1))
printf 'damaged' >"$work/state"
"$work/talk" $demo "$work/state" <"$work/first" >"$work/answer" 2>"$work/figures" && say_failed "talk takes a damaged state"
answers "a damaged state is refused" "^talk: $work/state: " "$work/figures"

# From C++, linked.
if [ -z "$sanitizers" ]; then
    cat >"$work/plus.cc" <<'END'
#include <cstdio>
#include <weir/weir.h>
int main(int, char **argv)
{
    weir_error error;
    weir_model *model;
    weir_settings settings;
    weir_plan *plan;
    weir_plan_facts facts = {};
    weir_settings_init(&settings, sizeof settings);
    settings.context_tokens = 256;
    facts.size = sizeof facts;
    if (weir_model_open(&model, argv[1], &error) != WEIR_OK) return 1;
    if (weir_plan_make(&plan, model, &settings, UINT64_C(8) << 30, 0, &error) != WEIR_OK) return 1;
    weir_plan_describe(plan, &facts, &error);
    std::printf("%u slots\n", facts.n_slots);
    weir_plan_free(plan);
    return weir_model_close(model, &error);
}
END
    # shellcheck disable=SC2046 # lists of words
    must "C++ builds" g++ -std=c++11 -pedantic -Wall -Wextra -Werror "$work/plus.cc" -o "$work/plus" \
        $(pkg-config --cflags --libs weir) "-Wl,-rpath,$libdir"
    must "C++ runs" sh -c "'$work/plus' $demo >'$work/answer'"
    answers "C++" '^[1-9][0-9]* slots$' "$work/answer"
fi

echo "$checked checked, $failed failed"
[ "$failed" -eq 0 ]
