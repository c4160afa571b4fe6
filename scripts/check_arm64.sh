#!/bin/sh
# usage: check_arm64.sh
# Builds the kernels for 64-bit Arm, with a cross compiler, and checks every one against its reference, guard pages and
# all, in an emulator: all of them on a processor that has everything, and those for each instruction set on the least
# that it needs, where what comes after it must not be chosen.
set -eu
cd "$(dirname "$0")/.."
if [ "$(uname -m)" = aarch64 ]; then
    echo "arm64: this machine runs these kernels itself, in the other tests"
    exit 0
fi
build="build-arm64"
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v $tool >/dev/null || { echo "arm64: $tool is missing; try scripts/install_deps.sh test"; exit 1; }
done
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
{ cmake -S tests/arm64 -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64.cmake" &&
    cmake --build $build; } </dev/null >"$logs/build" 2>&1 || {
    grep -E -A 12 'error:|warning:|FAILED' "$logs/build" || tail -n 40 "$logs/build"
    exit 1
}

# run CPU FEATURES PROGRAM [ARGUMENT...]   The features are what the program must see, or the run proves nothing.
run() {
    cpu=$1 features=$2 program=$3 log=$logs/$1.$3
    shift 3
    status=0
    qemu-aarch64-static -cpu "$cpu" "$build/$program" "$@" >"$log" 2>&1 || status=$?
    case $program in
    kern_check_test)
        grep -q "usable:$features\$" "$log" || status=1
        grep -q "[1-9][0-9]* kernels checked, 0 failed, 0 skipped" "$log" || status=1
        ;;
    esac
    if [ $status -eq 0 ]; then
        echo "arm64: $cpu, $program $*: ok; $(sed -n 's/.*\(seed.*usable.*\)/\1/p; /kernels checked/p' "$log" | tr '\n' ' ')"
    else
        echo "arm64: $cpu, $program $*: FAILED, status $status"
        tail -n 30 "$log"
    fi
    return $status
}

run max " neon neon-dotprod neon-i8mm" kern_check_test &
all=$!
failed=0
run cortex-a53 " neon" kern_check_test --isa neon || failed=1
run cortex-a76 " neon neon-dotprod" kern_check_test --isa dotprod || failed=1
run cortex-a53 "" exp_test || failed=1
run max "" select_test || failed=1
wait $all || failed=1
exit $failed
