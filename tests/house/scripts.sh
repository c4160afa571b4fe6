#!/bin/sh
# usage: scripts.sh PATH_OF_WEIR
# The checks of `make check` see what they are for: each is given a small tree with one thing wrong, and must name it;
# and the same tree without it, and must be silent.
set -u
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fresh() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/src/base" "$work/tree/src/plat" "$work/tree/scripts" "$work/tree/tests" "$work/tree/.ci"
    cp .clang-format "$work/tree/"
    printf 'base:\nplat: base\n' >"$work/tree/src/LAYERS"
    printf '#include <stddef.h>\nsize_t a(void);\n' >"$work/tree/src/base/a.h"
    printf '#include "base/a.h"\n\nsize_t a(void)\n{\n    return 1;\n}\n' >"$work/tree/src/base/a.c"
    printf '#include "plat/b.h"\n#include "base/a.h"\n' >"$work/tree/src/plat/b.c"
    printf 'int b(void);\n' >"$work/tree/src/plat/b.h"
    # shellcheck disable=SC2016 # the script is meant to hold the dollar
    printf '#!/bin/sh\necho "$1"\n' >"$work/tree/scripts/a.sh"
    cp "$work/tree/scripts/a.sh" "$work/tree/.ci/run"
    : >"$work/tree/scripts/long_functions.txt"
}

# expect silent|PATTERN CHECK...
expect() {
    want=$1
    shift
    status=0
    said=$("$@" "$work/tree" 2>&1) || status=$?
    if [ "$want" = silent ]; then
        [ "$status" -eq 0 ] && [ -z "$said" ] && return
    else
        [ "$status" -ne 0 ] && printf '%s' "$said" | grep -q -e "$want" && return
    fi
    failed=$((failed + 1))
    echo "FAIL: $* should say $want; status $status: $said"
}

fresh
for check in layers headers format complexity shell; do
    command -v pmccabe >/dev/null || [ $check != complexity ] || continue
    command -v shellcheck >/dev/null || [ $check != shell ] || continue
    command -v clang-format-14 >/dev/null || [ $check != format ] || continue
    expect silent "scripts/check_$check.sh"
done

echo '#include "plat/b.h"' >>"$work/tree/src/base/a.c"
expect 'not allowed by src/LAYERS: ./base/a.c:7' scripts/check_layers.sh
fresh
echo '#include "a.h"' >>"$work/tree/src/base/a.c"
expect 'not allowed' scripts/check_layers.sh
fresh
echo '#include "base/a.c"' >>"$work/tree/src/base/a.c"
expect 'a .c file is included' scripts/check_layers.sh

fresh
printf 'cli: base plat\ncli/c.c: base cli\n' >>"$work/tree/src/LAYERS"
mkdir "$work/tree/src/cli"
echo '#include "base/a.h"' >"$work/tree/src/cli/c.h"
echo '#include "cli/c.h"' >"$work/tree/src/cli/c.c"
expect silent scripts/check_layers.sh
echo '#include "plat/b.h"' >>"$work/tree/src/cli/c.h"
expect 'cli/c.c sees plat/b.h through cli/c.h' scripts/check_layers.sh
rm -r "$work/tree/src/cli"
expect 'there is no cli/c.c' scripts/check_layers.sh

fresh
echo 'uint32_t b2(void);' >>"$work/tree/src/plat/b.h"
expect 'does not compile alone: src/plat/b.h' scripts/check_headers.sh

fresh
echo 'int  x ;' >>"$work/tree/src/base/a.c"
expect 'src/base/a.c' scripts/check_format.sh

fresh
awk 'BEGIN { print "int big(int x)\n{"; for (i = 0; i < 75; i++) print "    x++;"; print "    return x;\n}" }' >>"$work/tree/src/base/a.c"
expect 'src/base/a.c:big: 79 lines' scripts/check_complexity.sh
echo 'src/base/a.c:big 78' >"$work/tree/scripts/long_functions.txt"
expect 'grew from 78 to 79' scripts/check_complexity.sh
echo 'src/base/a.c:big 79' >"$work/tree/scripts/long_functions.txt"
expect silent scripts/check_complexity.sh
echo 'src/base/a.c:gone 90' >>"$work/tree/scripts/long_functions.txt"
expect 'take src/base/a.c:gone off' scripts/check_complexity.sh
fresh
awk 'BEGIN { print "int big(int x)\n{"; for (i = 0; i < 51; i++) print "    if (x == " i ") return 2;"; print "    return x;\n}" }' >>"$work/tree/src/base/a.c"
expect 'branch complexity 52' scripts/check_complexity.sh

fresh
# shellcheck disable=SC2016 # the script is meant to hold the dollar
echo 'rm -rf $1/*' >>"$work/tree/scripts/a.sh"
expect 'SC2086' scripts/check_shell.sh

# The banned calls do not compile, with both compilers if both are here.
for compiler in gcc clang-14; do
    command -v $compiler >/dev/null || continue
    for call in 'strcpy(t, "x")' 'free(t)' 'sprintf(t, "x")' '(void)malloc(1)' 'printf("x")' '(void)getenv("X")' 'exit(1)' \
        '(void)atoi(t)' '(void)gmtime(0)' '(void)strtok(t, "x")'; do
        printf '#include <stdlib.h>\n#include <stdio.h>\n#include <string.h>\n#include <time.h>\nvoid f(char *t);\nvoid f(char *t) { (void)t; %s; }\n' "$call" >"$work/banned.c"
        if $compiler -std=c17 -D_GNU_SOURCE -include src/base/banned.h -fsyntax-only "$work/banned.c" 2>"$work/said"; then
            failed=$((failed + 1))
            echo "FAIL: $compiler accepts $call"
        fi
        grep -q 'banned here' "$work/said" || { failed=$((failed + 1)); echo "FAIL: $compiler does not say why: $call"; }
    done
    printf '#include <stdlib.h>\nvoid f(char *t);\nvoid f(char *t) { free(t); }\n' >"$work/banned.c"
    $compiler -std=c17 -D_GNU_SOURCE -DBANNED_ALLOW_malloc -include src/base/banned.h -fsyntax-only "$work/banned.c" ||
        { failed=$((failed + 1)); echo "FAIL: $compiler refuses what is allowed"; }
done

# Results are counted right: passes, failures, skips, and tests that could not start.
mkdir "$work/build"
cat >"$work/build/CTestTestfile.cmake" <<'END'
add_test(good true)
add_test(good2 true)
add_test(bad false)
add_test(absent /nowhere/program)
add_test(skips sh -c "exit 77")
set_tests_properties(skips PROPERTIES SKIP_RETURN_CODE 77)
END
said=$(cd "$work" && "$root/scripts/run_tests.sh" build 2>&1 | tail -n 1)
[ "$said" = "2 passed, 2 failed, 1 skipped" ] || { failed=$((failed + 1)); echo "FAIL: run_tests says $said"; }
: >"$work/build/CTestTestfile.cmake"
said=$(cd "$work" && "$root/scripts/run_tests.sh" build 2>&1 | tail -n 1)
[ "$said" = "0 passed, 1 failed, 0 skipped" ] || { failed=$((failed + 1)); echo "FAIL: run_tests without tests says $said"; }

[ "$failed" -eq 0 ] && echo "every check sees what it is for"
[ "$failed" -eq 0 ]
