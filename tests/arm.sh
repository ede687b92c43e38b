#!/usr/bin/env bash
# Operators on Linux on ARM, without such a machine: build them with a cross compiler, and run them below qemu-user.
#
# usage: tests/arm.sh [FOLDER PROGRAM]           as a wheel, as a thin wheel, and with develop on an emulated Python, at
#                                                each CPU capability; by default the folder of the README, and a program
#                                                that calls its operator
#        tests/arm.sh --tests CAPABILITY [ARG]   the tests of the shipped operators, with arguments for pytest
#
# It needs Python 3.11, g++-aarch64-linux-gnu and qemu-user-static of Debian 12, and 12 GB in build/arm. On 2 cores, the
# first takes 15 minutes, the tests an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/build/arm root=$PWD/build/arm/root environment=$PWD/build/arm/environment pin=2.13.0
packages=lib/python3.11/site-packages
export CXX=aarch64-linux-gnu-g++ CUDA_ARCHS=none ARGS= MAKEFLAGS=
for needed in python3.11 $CXX qemu-aarch64-static; do
    command -v $needed >/dev/null || { echo "error: $needed: program not found" >&2; exit 2; }
done

# Debian's packages for arm64, unpacked. apt's state is in a folder of its own, so nothing of this machine changes.
make_root() {
    local apt=$place/apt options
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial} "$root/proc"
    touch "$apt/state/status"
    options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
        -o Dir::State="$apt/state" -o Dir::State::status="$apt/state/status" -o Dir::Cache="$apt/cache")
    apt-get "${options[@]}" update
    apt-get "${options[@]}" -y --no-install-recommends --download-only install \
        python3.11 python3.11-venv libpython3.11-dev libstdc++-12-dev libgomp1
    for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
    # What starts this Python, its own subprocesses too, gets the emulator.
    mv "$root/usr/bin/python3.11" "$root/usr/bin/python3.11.elf"
    printf '#!/bin/sh\nexec qemu-aarch64-static -L %s -0 "$0" %s "$@"\n' "$root" "$root/usr/bin/python3.11.elf" \
        >"$root/usr/bin/python3.11"
    chmod +x "$root/usr/bin/python3.11"
    # A compiler for ARM that runs on this machine finds it only there.
    ln -s ../aarch64-linux-gnu "$root/usr/include/python3.11/aarch64-linux-gnu"
    # Of a Neoverse V1. Without it, torch does not start.
    cat >"$root/proc/cpuinfo" <<'END'
processor	: 0
Features	: fp asimd evtstrm aes atomics fphp asimdhp cpuid asimdrdm asimddp sve asimdfhm svei8mm svebf16 i8mm bf16
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x1
CPU part	: 0xd40
CPU revision	: 1

END
}

# This machine's pip is faster than an emulated one.
pip="python3.11 -m pip install -q --only-binary=:all: --python-version=3.11 --platform=manylinux2014_aarch64"
pip+=$(printf -- ' --platform=manylinux_2_%d_aarch64' {17..28})

# The official torch with what it needs.
make_environment() {
    "$root/usr/bin/python3.11" -m venv --without-pip "$environment"
    $pip --target="$environment/$packages" "torch==$pin" numpy
    # Without bytecode, torch takes minutes to import.
    python3.11 -m compileall -q "$environment/$packages" || true
    # The builder, for develop; the ninja that runs is this machine's.
    $pip --target="$place/builder" --requirement=scripts/requirements.txt
    python3.11 -m venv "$place/tools"
    "$place/tools/bin/pip" install -q ninja
    cp "$place/tools/bin/ninja" "$environment/bin"
}

[ -x "$root/usr/bin/python3.11" ] || make_root
[ -d "$environment/$packages/torch" ] || make_environment

# Runs the Python of an environment with a CPU capability.
run() {
    local python=$1/bin/python capability=$2 vectors=max
    shift 2
    [ "$capability" = DEFAULT ] || vectors+=,sve-default-vector-length=$((${capability#SVE} / 8))
    QEMU_CPU=$vectors "$python" "$@"
}

# Builds a folder. Sets $copy to a copy of the environment with the files of the wheel.
build() {
    local wheel
    rm -rf "$place/out"
    make "$1" PYTHON=python3.11 PIN=$pin NATIVE="$2" OUT="$place/out" NAME=arm_ops
    wheel=$(echo "$place"/out/*.whl)
    make_copy
    case $wheel in */torch-*) rm -r "$copy/$packages"/{torch,torchgen,functorch} "$copy/$packages"/torch-* ;; esac
    python3.11 -m zipfile -e "$wheel" "$copy/$packages"
}

make_copy() {
    copy=$place/copy
    rm -rf "$copy" && cp -al "$environment" "$copy"
}

if [ "${1-}" = --tests ]; then
    capability=$2
    shift 2
    [ -d "$place/tests" ] || $pip --target="$place/tests" --requirement=tests/requirements.txt
    build patch-and-build "$PWD/native"
    export GRAFT_NATIVE=$PWD/native GRAFT_BASE_FOLDER=$PWD/build/$pin/cp311-aarch64/base GRAFT_STOCK=$environment/$packages
    export PYTHONPATH=$PWD/scripts:$place/tests GRAFT_TESTED_WHEEL
    GRAFT_TESTED_WHEEL=$(echo "$place"/out/*.whl)
    # What sanitizers leave out needs a compiler, several processes or the stock torch, or calls no operator.
    run "$copy" "$capability" -m pytest -q -p no:cacheprovider -m "not unsanitized and not slow" \
        tests/wheel/any tests/wheel/shipped "$@"
    exit
fi

if [ $# = 0 ]; then
    rm -rf "$place/my_ops"
    python3.11 tests/readme_folder.py "$place/my_ops"
    cat >"$place/program.py" <<'END'
import torch

x = torch.randn(5, dtype=torch.double, requires_grad=True)
torch.testing.assert_close(torch.soft_clip(x, 2), 2 * torch.tanh(x / 2))
assert torch.autograd.gradcheck(torch.soft_clip, (x, 2.0), check_forward_ad=True)
compiled = torch.compile(torch.soft_clip, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(compiled(x, 2), x.soft_clip(2))
END
    set -- "$place/my_ops" "$place/program.py"
fi

# Runs the program at each capability.
run_program() {
    local capability check="import runpy, sys, torch; found = torch.backends.cpu.get_cpu_capability()
assert found == sys.argv.pop(1), found
runpy.run_path(sys.argv[1], run_name='__main__')"
    for capability in DEFAULT SVE128 SVE256; do
        run "$copy" $capability -c "$check" $capability "$1"
        echo "arm: $2: passed with $capability"
    done
}

build patch-and-build "$1"
run_program "$2" wheel
build thin-wheel "$1"
run_program "$2" "thin wheel"
make_copy
PYTHONPATH=$PWD/scripts:$place/builder "$copy/bin/python" -m graft develop --native "$1" --python "$copy/bin/python"
run_program "$2" develop
