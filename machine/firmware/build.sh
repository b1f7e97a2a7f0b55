#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds coreboot with the Suspend-to-CXL driver for the laboratory's machine.
#
#   build.sh <coreboot source: directory or tarball> <work directory> <output directory> [-jN]
#
# Leaves coreboot.rom (no payload) and cbfstool in the output directory. Run it
# again after a change: only what changed is built. Says little; everything goes
# to <work directory>/build.log, of which the end is shown on an error.

set -eu

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib/patched-build.sh
. "$here/../../scripts/lib/patched-build.sh"

if [ $# -lt 3 ] || [ $# -gt 4 ]; then
	sed -n '4,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
source=$1
jobs=${4:--j$(nproc)}
begin "$2" "$3"
tree=$work/coreboot
need gcc ld nasm iasl make patch pkg-config python3

# What the tree was made from. Another source or other hooks: a new tree.
stamp() {
	if [ -d "$source" ]; then
		(cd "$source" && pwd && stat -c %Y Makefile)
	else
		stat -c '%n %s %Y' "$source"
	fi
	cat "$here"/hooks/*.patch | cksum
}

unpack() {
	rm -rf "$tree"
	mkdir -p "$tree"
	if [ -d "$source" ]; then
		cp -a "$source/." "$tree/" || fail "cannot copy $source"
	else
		tar -xf "$source" -C "$tree" --strip-components=1 2>>"$log" ||
			fail "cannot unpack $source"
	fi
	[ -f "$tree/src/Kconfig" ] || fail "$source is not a coreboot source tree"
}

wanted=$(stamp)
if [ ! -f "$work/stamp" ] || [ "$(cat "$work/stamp")" != "$wanted" ]; then
	rm -f "$work/stamp"
	unpack
	apply_hooks_to "$tree" coreboot
	echo "$wanted" >"$work/stamp"
fi

# Our files: replaced only where they differ, so that make sees what changed.
driver=$tree/src/drivers/dormouse
sync_files() {
	mkdir -p "$2"
	for file in "$1"/*; do
		[ -f "$file" ] || continue
		to=$2/$(basename "$file")
		cmp -s "$file" "$to" || cp "$file" "$to"
	done
	for file in "$2"/*; do
		[ -f "$file" ] || continue
		[ -f "$1/$(basename "$file")" ] || rm "$file"
	done
}
sync_files "$here/driver" "$driver"
sync_files "$here/../image/src" "$driver/image/src"
sync_files "$here/../image/include" "$driver/image/include"

configure() {
	cp "$here/config" "$work/config.wanted"
	if command -v ccache >/dev/null; then
		echo CONFIG_CCACHE=y >>"$work/config.wanted"
	fi
	if ! cmp -s "$work/config.wanted" "$tree/config.used"; then
		cp "$work/config.wanted" "$tree/.config"
		make -C "$tree" olddefconfig >>"$log" 2>&1 || fail "coreboot's Kconfig failed"
		cp "$work/config.wanted" "$tree/config.used"
	fi
	lost=$(lost_option "$work/config.wanted" "$tree/.config")
	[ -z "$lost" ] || fail "this coreboot does not take $lost (file config)"
}
configure

# The build's time and place must not change its result.
export SOURCE_DATE_EPOCH=1 LC_ALL=C
# The host's compiler and C library may be newer than this coreboot, and warn of its tools (vboot's
# Makefile has WERROR); the firmware itself is compiled with warnings as errors.
make -C "$tree" "$jobs" UPDATED_SUBMODULES=1 BUILD_TIMELESS=1 WERROR= >>"$log" 2>&1 ||
	fail "coreboot does not build"

cp "$tree/build/coreboot.rom" "$output/coreboot.rom"
cp "$tree/build/cbfstool" "$output/cbfstool"
