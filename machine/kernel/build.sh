#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds dormouse.ko against kernel headers that were unpacked (dpkg -x), not installed.
#
#   build.sh EXTRACTED-ROOT KERNEL-RELEASE WORK-DIR OUTPUT-DIR
#
# EXTRACTED-ROOT holds usr/src/linux-headers-KERNEL-RELEASE, the matching
# linux-headers-*-common and usr/lib/linux-kbuild-*. Nothing there is changed: the
# headers' Makefile is one line that includes the common one by its installed path,
# so make is given that file directly (-f), and everything else follows from where
# that file lies.
set -eu

if [ $# -ne 4 ]; then
	echo "usage: $0 EXTRACTED-ROOT KERNEL-RELEASE WORK-DIR OUTPUT-DIR" >&2
	exit 2
fi
root=$(realpath "$1")
release=$2
mkdir -p "$3" "$4"
work=$(realpath "$3")
output=$(realpath "$4")
here=$(dirname "$(realpath "$0")")

headers=$root/usr/src/linux-headers-$release
common=$(sed -n 's/^include \(.*\)/\1/p' "$headers/Makefile")
if [ ! -f "$root$common" ]; then
	echo "$0: $headers has no common headers at $root$common" >&2
	exit 1
fi

make --no-print-directory -C "$here" dkms-tree DEST="$work"
# No BTF for the module: nothing reads it, and it would need pahole.
make --no-print-directory -C "$headers" -f "$root$common" M="$work" \
	CONFIG_DEBUG_INFO_BTF_MODULES= modules
strip --strip-debug -o "$output/dormouse.ko" "$work/dormouse.ko"
