#!/bin/sh
# usage: install.sh PATH_OF_WEIR
# What an installation consists of, below another root; and that the installed program works from there.
set -u
build=$(dirname "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
DESTDIR=$work cmake --install "$build" --prefix /opt/weir >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for file in bin/weir share/man/man1/weir.1 share/bash-completion/completions/weir share/zsh/vendor-completions/_weir \
    share/fish/vendor_completions.d/weir.fish lib/systemd/system/weir.service lib/sysusers.d/weir.conf \
    share/doc/weir/README.md share/doc/weir/LICENSE share/doc/weir/docs/ARCHITECTURE.md include/weir/weir.h \
    share/doc/weir/examples/ask.c share/doc/weir/examples/talk.c; do
    [ -s "$work/opt/weir/$file" ] || { echo "FAIL: $file is not installed"; failed=$((failed + 1)); }
done
[ -z "$(find "$work" -maxdepth 1 -mindepth 1 ! -name opt ! -name log)" ] || { echo "FAIL: files outside the prefix"; failed=1; }
"$work/opt/weir/bin/weir" help --man | cmp - "$work/opt/weir/share/man/man1/weir.1" ||
    { echo "FAIL: the manual page is another program's"; failed=$((failed + 1)); }
echo "$failed failed"
[ "$failed" -eq 0 ]
