#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds dormouse.ko and dormouse_snapshot.ko against kernel headers that were unpacked (dpkg -x), not installed.
#
#   build.sh EXTRACTED-ROOT KERNEL-RELEASE WORK-DIR OUTPUT-DIR [TOOLS-ROOT]
#
# EXTRACTED-ROOT holds usr/src/linux-headers-KERNEL-RELEASE, the matching
# linux-headers-*-common and usr/lib/linux-kbuild-*. Nothing there is changed: the
# headers' Makefile includes the common one by its installed path, so make is given
# that file directly (-f), and everything else follows from where that file lies.
#
# TOOLS-ROOT holds the compiler, make and C library of the kernel's own release, which
# kbuild's programs may need; make runs with it as its root. Mounts are made in a mount
# namespace of their own, and end with it.
#
# MODULE_SOURCE and MODULE_TREE name another folder with a Makefile, and the target of it that
# stages the sources (devices/kernel/module/build.sh).
set -eu

if [ $# -lt 4 ] || [ $# -gt 5 ]; then
	echo "usage: $0 EXTRACTED-ROOT KERNEL-RELEASE WORK-DIR OUTPUT-DIR [TOOLS-ROOT]" >&2
	exit 2
fi
root=$(realpath "$1")
release=$2
mkdir -p "$3" "$4"
work=$(realpath "$3")
output=$(realpath "$4")
source=${MODULE_SOURCE:-$(dirname "$(realpath "$0")")}

headers=$root/usr/src/linux-headers-$release
common=$(sed -n 's/^include \(.*\)/\1/p' "$headers/Makefile")
if [ ! -f "$root$common" ]; then
	echo "$0: $headers has no common headers at $root$common" >&2
	exit 1
fi

# shellcheck disable=SC2086 # a target and its variables
make --no-print-directory -C "$source" ${MODULE_TREE:-dkms-tree} DEST="$work"
# No BTF for the module: nothing reads it, and it would need pahole.
if [ $# -eq 5 ]; then
	tools=$(realpath "$5")
	as_root=
	[ "$(id -u)" -eq 0 ] || as_root=--map-root-user
	# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; empty or one option
	unshare --mount $as_root sh -euc '
		mount --rbind /dev "$1/dev"
		mount --rbind /proc "$1/proc"
		mount --bind "$2" "$1/kernel"
		mount --bind "$3" "$1/build"
		PATH=/usr/sbin:/usr/bin exec chroot "$1" make --no-print-directory \
			-C "/usr/src/linux-headers-$4" M=/build CONFIG_DEBUG_INFO_BTF_MODULES= modules
	' sh "$tools" "$root" "$work" "$release"
else
	make --no-print-directory -C "$headers" -f "$root$common" M="$work" \
		CONFIG_DEBUG_INFO_BTF_MODULES= modules
fi
for module in "$work"/*.ko; do
	strip --strip-debug -o "$output/${module##*/}" "$module"
done
