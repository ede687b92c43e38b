#!/usr/bin/env bash
# The README's two commands on a bare Debian of another release, with its Python, compiler and make.
#
# usage: tests/debian.sh SUITE [ARG...]          testing or stable; with arguments for make test
#
# It needs root, debootstrap and 12 GB in build/debian. On 2 cores it takes 40 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1 root=$PWD/build/debian/$1
shift
packages=python3,python3-venv,python3-dev,g++,make,git,ca-certificates
for needed in debootstrap unshare; do
    command -v $needed >/dev/null || { echo "error: $needed: program not found" >&2; exit 2; }
done
if [ ! -f "$root/ready" ]; then
    rm -rf "$root"
    # It fetches the keys of a newer suite than this machine's, so signatures cannot be checked.
    debootstrap --no-check-gpg --variant=minbase --include=$packages "$suite" "$root"
    touch "$root/ready"
fi
# How this machine reaches a package index.
for file in /etc/pip.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    [ ! -f $file ] || cp $file "$root$file"
done
rm -rf "$root/graft"
git clone --quiet . "$root/graft"
# The mounts end with the process.
# shellcheck disable=SC2016
exec unshare --mount --pid --fork --kill-child bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
    cd "$root"
    exec chroot "$root" env --unset=PYTHON --unset=VIRTUAL_ENV HOME=/root PATH=/usr/bin:/bin \
        bash -c "cd /graft && make patch-and-build && make test ARGS=\"\$*\"" debian "$@"' debian "$root" "$@"
