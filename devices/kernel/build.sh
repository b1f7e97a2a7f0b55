#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds the lab's kernel with graph-ordered suspend and resume.
#
#   build.sh <linux source: tarball or linux-source package> <work directory> <output directory>
#            [-jN] [config fragment...]
#
# Leaves bzImage, config and release in the output directory. Run it again after a change: only
# what changed is built. Says what it is doing in lines that begin with "==> "; everything goes to
# <work directory>/build.log, of which the end is shown on an error.

set -eu

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib/patched-build.sh
. "$here/../../scripts/lib/patched-build.sh"

if [ $# -lt 3 ]; then
	sed -n '4,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
source=$(realpath "$1")
begin "$2" "$3"
shift 3
jobs=-j$(nproc)
case "${1:-}" in
-j*)
	jobs=$1
	shift
	;;
esac

tree=$work/linux
need gcc ld make patch flex bison bc tar xz

tarball() {
	case "$source" in
	*.deb) dpkg-deb --fsys-tarfile "$source" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' ;;
	*) cat "$source" ;;
	esac
}

# Without what no x86 kernel is built from: it is half of the source. All Kconfig files stay.
unpack() {
	echo "==> unpacking the source"
	rm -rf "$tree"
	mkdir -p "$tree"
	tarball | tar -xJ -C "$tree" --strip-components=1 --wildcards --wildcards-match-slash \
		--exclude='*/drivers/gpu/drm/*.[ch]' --exclude='*/arch/[a-t]*/*.[chS]' \
		--exclude='*/arch/[a-t]*/*.dts' --exclude='*/arch/[a-t]*/*.dtsi' \
		--exclude='*/Documentation/*.rst' --exclude='*/Documentation/*.yaml' \
		--exclude='*/Documentation/*.txt' 2>>"$log" || fail "cannot unpack $source"
	[ -f "$tree/drivers/base/power/main.c" ] || fail "$source is not a Linux source tree"
}

# Hooks are applied to copies of the files as the source has them, and only what came out different goes
# to the tree.
apply_hooks() {
	echo "==> applying the hooks"
	patched=$work/patched
	mkdir -p "$work/pristine"
	sed -n 's|^+++ b/||p' "$here"/hooks/*.patch | sort -u | while read -r file; do
		mkdir -p "$work/pristine/$(dirname "$file")"
		[ -f "$work/pristine/$file" ] || cp "$tree/$file" "$work/pristine/$file"
	done
	rm -rf "$patched"
	cp -R "$work/pristine" "$patched"
	apply_hooks_to "$patched" Linux
	replace_from "$patched"
}

# Files of a folder that differ from the tree's, so that make sees what changed.
replace_from() {
	(cd "$1" && find . -type f) | while read -r file; do
		mkdir -p "$tree/$(dirname "$file")"
		cmp -s "$1/$file" "$tree/$file" || cp "$1/$file" "$tree/$file"
	done
}

# Another source: a new tree.
wanted=$(stat -c '%n %s' "$source" | sed 's|.*/||')
if [ ! -f "$work/stamp" ] || [ "$(cat "$work/stamp")" != "$wanted" ]; then
	rm -rf "$work/stamp" "$work/pristine"
	unpack
	echo "$wanted" >"$work/stamp"
fi
apply_hooks
replace_from "$here/files"

compiler=gcc
if command -v ccache >/dev/null; then
	compiler="ccache gcc"
fi

# The build's time and place must not change its result.
export KBUILD_BUILD_TIMESTAMP=@1 KBUILD_BUILD_USER=dormouse KBUILD_BUILD_HOST=dormouse LC_ALL=C

configure() {
	echo "==> configuring"
	cat "$here/config" "$@" >"$work/config.wanted"
	if ! cmp -s "$work/config.wanted" "$work/config.used" || [ ! -f "$tree/.config" ]; then
		rm -f "$work/config.used"
		make -C "$tree" CC="$compiler" KCONFIG_ALLCONFIG="$work/config.wanted" \
			allnoconfig >>"$log" 2>&1 || fail "Linux's Kconfig failed"
		cp "$work/config.wanted" "$work/config.used"
	fi
	lost=$(lost_option "$work/config.wanted" "$tree/.config")
	if [ -n "$lost" ]; then
		rm -f "$work/config.used"
		fail "this Linux does not take $lost"
	fi
}
configure "$@"

echo "==> compiling"
make -C "$tree" CC="$compiler" "$jobs" bzImage >>"$log" 2>&1 || fail "Linux does not build"

cp "$tree/arch/x86/boot/bzImage" "$output/bzImage"
cp "$tree/.config" "$output/config"
make -C "$tree" -s CC="$compiler" kernelrelease >"$output/release"
