#!/bin/sh
# usage: reference.sh PATH_OF_WEIR
# Help, manual page, completions, configuration keys, environment names and the documents speak of the same commands and
# the same options.
set -u
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAIL: $1"
    failed=$((failed + 1))
}

# same NAME FILE: the same words as the help's, which are in $work/options
same() {
    cmp -s "$work/options" "$2" && return
    fail "$1 and the help have different options"
    diff "$work/options" "$2" | head -n 10
}

# The bash completion has one line for each command, `NAME|ALIAS) words='--a --b' ;;`.
bash_options() { sed -n "s/^ *$1[|a-z]*) words='\(--[^']*\)'.*/\1/p" "$work/bash" | tr ' ' '\n' | sort; }

commands=$("$weir" --help | sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p')
[ "$(echo "$commands" | grep -c .)" -ge 10 ] || fail "the help lists too few commands"
for shell in bash zsh fish; do "$weir" completion $shell >"$work/$shell" || fail "completion $shell"; done
"$weir" help --man >"$work/man" || fail "help --man"

: >"$work/all"
for command in $commands; do
    "$weir" "$command" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | sort >"$work/options"
    cat "$work/options" >>"$work/all"
    bash_options "$command" >"$work/got"
    same "$command: bash completion" "$work/got"
    sed -n "/^    ${command}[|a-z]*) _arguments/,/;;/s/^ *'*\(--[a-z-]*\).*/\1/p" "$work/zsh" | sort >"$work/got"
    same "$command: zsh completion" "$work/got"
    { # fish has --help in no line: it is the same for all programs
        echo --help
        sed -n "s/^complete -c weir -n '__fish_seen_subcommand_from ${command}[ a-z]*' -l \([a-z-]*\).*/--\1/p" "$work/fish"
    } | sort >"$work/got"
    same "$command: fish completion" "$work/got"
    grep -q "^\.B $command\( \|\$\)" "$work/man" || fail "the manual page lacks $command"
    grep -q "^complete -c weir -n __fish_use_subcommand -a $command " "$work/fish" || fail "fish lacks $command"
done

sort -u "$work/all" >"$work/options"
sed -n 's/^\.B \(\\-\\-[^ ]*\).*/\1/p' "$work/man" | sed 's/\\-/-/g' | sort >"$work/got"
same "the manual page" "$work/got"
"$weir" help config --man | sed -n 's/^\.B \([^ ]*\) =.*/--\1/p' | sed 's/\\-/-/g' | sort >"$work/got"
printf '%s\n' --config --help | sort - "$work/got" -o "$work/got"
same "the manual page of the configuration" "$work/got"
[ "$(grep -c . "$work/options")" -ge 40 ] || fail "too few options to prove anything"

# A wrong value, so that it is clear that the name is known. Texts take any value but an empty one.
while read -r option; do
    name=${option#--}
    case $name in help | config) continue ;; esac
    printf '%s =\n' "$name" >"$work/weir.ini"
    "$weir" version --config "$work/weir.ini" >/dev/null 2>"$work/err"
    ! grep -q 'there is no option' "$work/err" || fail "$name is no key of the configuration file"
    variable=WEIR_$(echo "$name" | tr a-z- A-Z_)
    env "$variable=" "$weir" version >/dev/null 2>"$work/err"
    ! grep -q 'there is no such option' "$work/err" || fail "$variable is no variable"
done <"$work/options"

# What documents name must exist. An option counts as weir's when the line speaks of weir or is a document for users.
for file in README.md docs/*.md; do
    grep -o '\(build/\)*weir [a-z]\{1,\} *[^`|]*' "$file" | grep -v 'weir is\|weir [a-z]* [a-z]*ed ' |
        grep -o -e '--[a-z][a-z-]*' | sort -u | while read -r option; do
        grep -qx -e "$option" "$work/options" || echo "$file names $option"
    done
    # shellcheck disable=SC2016 # `weir COMMAND` in back quotes
    grep -o '`\(build/\)*weir [a-z]\{1,\}' "$file" | sed 's/.*weir //' | sort -u | while read -r command; do
        echo "$commands" | grep -qx "$command" || echo "$file names the command $command"
    done
done >"$work/unknown"
[ ! -s "$work/unknown" ] || fail "$(cat "$work/unknown")"

# The shells themselves, where they are.
for shell in bash zsh fish; do
    command -v $shell >/dev/null || { echo "no $shell here, its syntax was not checked"; continue; }
    $shell -n "$work/$shell" || fail "$shell does not read its completion"
done
if command -v bash >/dev/null; then
    # shellcheck disable=SC2016 # for bash
    got=$(bash -c '. "$1"; COMP_WORDS=(weir generate --kv f) COMP_CWORD=3; _weir; echo "${COMPREPLY[*]}"
        COMP_WORDS=(weir gen --dir) COMP_CWORD=2; _weir; echo "${COMPREPLY[*]}"
        COMP_WORDS=(weir doc) COMP_CWORD=1; _weir; echo "${COMPREPLY[*]}"
        COMP_WORDS=(weir help sel) COMP_CWORD=2; _weir; echo "${COMPREPLY[*]}"' - "$work/bash" 2>&1 | grep -v '^bash: ')
    want='f32 f16
--direct-io
doctor
selftest'
    [ "$got" = "$want" ] || fail "bash completes to: $got"
fi
echo "$failed failed"
[ "$failed" -eq 0 ]
