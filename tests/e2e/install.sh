#!/bin/sh
# usage: install.sh PATH_OF_WEIR
# What an installation consists of, below another root; and that the installed program works from there.
set -u
build=$(dirname "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
DESTDIR=$work cmake --install "$build" --prefix /opt/weir >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for file in bin/weir share/man/man1/weir.1 share/man/man5/weir-config.5 share/bash-completion/completions/weir share/zsh/vendor-completions/_weir \
    share/fish/vendor_completions.d/weir.fish lib/systemd/system/weir.service lib/sysusers.d/weir.conf \
    share/doc/weir/README.md share/doc/weir/LICENSE share/doc/weir/docs/ARCHITECTURE.md include/weir/weir.h \
    share/doc/weir/examples/ask.c share/doc/weir/examples/talk.c; do
    [ -s "$work/opt/weir/$file" ] || { echo "FAIL: $file is not installed"; failed=$((failed + 1)); }
done
[ -z "$(find "$work" -maxdepth 1 -mindepth 1 ! -name opt ! -name log)" ] || { echo "FAIL: files outside the prefix"; failed=1; }
"$work/opt/weir/bin/weir" help --man | cmp - "$work/opt/weir/share/man/man1/weir.1" ||
    { echo "FAIL: the manual page is another program's"; failed=$((failed + 1)); }

# From any folder, through a link, with blanks and letters beyond ASCII in every path.
odd="$work/ä b/ключ"
mkdir -p "$odd/bin" "$odd/home"
cp "$work/opt/weir/bin/weir" "$odd/bin/"
cp -r models/demo "$odd/ein Modell"
ln -s "$odd/bin/weir" "$work/linked"
linked() { (cd / && env -i ASAN_OPTIONS="${ASAN_OPTIONS:-}" HOME="$odd/home" "$work/linked" "$@") >"$work/log" 2>&1; }
# anywhere ARGUMENT...
anywhere() {
    linked "$@" && return
    failed=$((failed + 1))
    echo "FAIL: weir $* through a link from another folder"
    cat "$work/log"
}
anywhere version
anywhere scan "$odd"
anywhere models
for command in inspect fit verify; do anywhere "$command" 'ein Modell'; done
linked doctor 'ein Modell' || true # what this machine lacks is no matter
grep -q '^0 problems, ' "$work/log" || { echo 'FAIL: doctor has problems'; cat "$work/log"; failed=$((failed + 1)); }
anywhere generate 'ein Modell' 'What is 12 times 7?'
grep -q '84' "$work/log" || { echo 'FAIL: no answer'; cat "$work/log"; failed=$((failed + 1)); }

# What stands in the way is named, with what to do. A cmake of ours fails at the step that is wanted.
mkdir "$work/bin"
# expect CODE PATTERN FAILS_AT COMMAND...
expect() {
    code=$1 pattern=$2 got=0
    printf '#!/bin/sh\ncase "$*" in *"%s"*) exit 1 ;; esac\n' "$3" >"$work/bin/cmake"
    chmod +x "$work/bin/cmake"
    shift 3
    env -u MAKEFLAGS -u MAKELEVEL PATH="$work/bin:$PATH" "$@" >"$work/log" 2>&1 || got=$?
    { [ $got -eq "$code" ] && grep -q -e "$pattern" "$work/log"; } && return
    failed=$((failed + 1))
    echo "FAIL: $*: exit code $got, not $code, or no '$pattern'"
    cat "$work/log"
}
if command -v make >/dev/null; then
    expect 2 'is something missing? try: scripts/install_deps.sh build' --preset make release
    expect 2 'is something missing? try: scripts/install_deps.sh build' --preset make install PREFIX=/opt/weir
    expect 2 '/nowhere/opt/weir cannot be written: sudo make install, or make install PREFIX=' --install \
        make install DESTDIR=/nowhere PREFIX=/opt/weir
    expect 0 'cmake --install build' 'nothing at all' make install DESTDIR=/nowhere PREFIX=/opt/weir
fi
ln -s "$(command -v dirname)" "$work/bin/dirname"
expect 1 'make_deb: needs debhelper: apt-get install debhelper' --preset env PATH="$work/bin" /bin/sh scripts/make_deb.sh
echo "$failed failed"
[ "$failed" -eq 0 ]
