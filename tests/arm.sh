#!/usr/bin/env bash
# Operators on Linux on ARM, without such a machine: build them with a cross compiler, and run them below qemu-user, at
# each CPU capability: as a wheel, as a thin wheel, and with develop on an emulated Python.
#
# usage: tests/arm.sh [FOLDER PROGRAM]     by default the folder of the README, and a program that calls its operator
#
# It needs Python 3.11, g++-aarch64-linux-gnu and qemu-user-static of Debian 12, and 12 GB in build/arm. It runs for 15
# minutes on 2 cores.
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

# The official torch with what it needs. This machine's pip is faster than an emulated one.
make_environment() {
    local pip="python3.11 -m pip install -q --only-binary=:all: --python-version=3.11 --platform=manylinux2014_aarch64"
    pip+=$(printf -- ' --platform=manylinux_2_%d_aarch64' {17..28})
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

# Runs the program in an environment, at each capability.
run() {
    local vectors capability check="import runpy, sys, torch; found = torch.backends.cpu.get_cpu_capability()
assert found == sys.argv.pop(1), found
runpy.run_path(sys.argv[1], run_name='__main__')"
    for capability in DEFAULT SVE128 SVE256; do
        vectors=max
        [ $capability = DEFAULT ] || vectors+=,sve-default-vector-length=$((${capability#SVE} / 8))
        QEMU_CPU=$vectors "$1/bin/python" -c "$check" $capability "$2"
        echo "arm: $3: passed with $capability"
    done
}

# Sets $copy to a copy of the environment with the files of a wheel.
copy_with() {
    copy=$place/copy
    rm -rf "$copy" && cp -al "$environment" "$copy"
    case $1 in */torch-*) rm -r "$copy/$packages"/torch "$copy/$packages"/torch-* ;; esac
    python3.11 -m zipfile -e "$1" "$copy/$packages"
}

rm -rf "$place/out"
make patch-and-build PYTHON=python3.11 PIN=$pin NATIVE="$1" OUT="$place/out"
copy_with "$place"/out/torch-*.whl
run "$copy" "$2" wheel
make thin-wheel PYTHON=python3.11 PIN=$pin NATIVE="$1" OUT="$place/out" NAME=arm_ops
copy_with "$place"/out/arm_ops-*.whl
run "$copy" "$2" "thin wheel"
rm -rf "$copy" && cp -al "$environment" "$copy"
PYTHONPATH=$PWD/scripts:$place/builder "$copy/bin/python" -m graft develop --native "$1" --python "$copy/bin/python"
run "$copy" "$2" develop
