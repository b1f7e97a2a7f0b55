#!/usr/bin/env bash
# Builds an ARMv7-A Linux from the distribution's source, for the executor to run parts of.
#
#   offload/kernel/build.sh WORK OUT SET [-jN]
#
# WORK: a folder that is kept, so that only what changed is built again; the distribution's package of
# the source is fetched into it, unless the lab has it. SET: a32 or t32, the instruction set of its code; with
# -real behind it, the drivers of the board's devices, too.
# Leaves vmlinux, zImage, board.dtb and config in OUT. Says what it is doing in lines that begin with
# "==> "; everything goes to WORK/build-SET.log, of which the end is shown on an error. Exit codes: 2 wrong
# arguments; 3 something is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=offload/kernel/common.sh
. "$here/common.sh"
need 3 $#
set=$3
jobs=${4:--j$(nproc)}
begin "$1" "$2" "build-$set"
objects=$work/$set
mkdir -p "$objects"

case $set in
a32 | a32-real) option="# CONFIG_THUMB2_KERNEL is not set" ;;
t32 | t32-real) option=CONFIG_THUMB2_KERNEL=y ;;
*) code=2 fail "$set is no instruction set: a32 or t32, with or without -real" ;;
esac
prepare
cmp -s "$here/dormouse_dummy.c" "$tree/drivers/misc/dormouse_dummy.c" ||
	cp "$here/dormouse_dummy.c" "$tree/drivers/misc/"

# The page size of the board: binutils 2.44 take 64 KiB, put the first segment at address 0 for
# it, and Linux does not run that.
"${prefix}gcc" -marm -march=armv7-a -mfloat-abi=soft -Os -Wall -Werror -ffreestanding -nostdlib \
	-Wl,-z,max-page-size=4096 -static "$here/init.c" "$here/output.c" "$here/devices.c" -lgcc -o "$work/init" >>"$log" 2>&1 ||
	fail "init does not build"
printf '%s\n' 'dir /sys 0755 0 0' 'dir /dev 0755 0 0' 'nod /dev/console 0600 0 0 c 5 1' 'nod /dev/kmsg 0600 0 0 c 1 11' \
	"file /init $work/init 0755 0 0" >"$work/initramfs.list"

# The build's time and place must not change its result.
export KBUILD_BUILD_TIMESTAMP=@1 KBUILD_BUILD_USER=dormouse KBUILD_BUILD_HOST=dormouse LC_ALL=C

{
	cat "$here/config"
	case $set in *-real) cat "$here/config-real" ;; esac
	echo "$option"
	echo "CONFIG_INITRAMFS_SOURCE=\"$work/initramfs.list\""
} >"$objects/config.wanted"
if ! cmp -s "$objects/config.wanted" "$objects/config.used" || [ ! -f "$objects/.config" ]; then
	echo "==> configuring"
	rm -f "$objects/config.used"
	build KCONFIG_ALLCONFIG="$objects/config.wanted" allnoconfig || fail "Linux's Kconfig failed"
	# An option that Kconfig dropped would silently build another kernel.
	while read -r option; do
		grep -qxF "$option" "$objects/.config" || fail "this Linux does not take $option"
	done < <(grep -v -e '^#' -e '^$' "$objects/config.wanted")
	cp "$objects/config.wanted" "$objects/config.used"
fi
echo "==> compiling"
build "$jobs" zImage arm/vexpress-v2p-ca9.dtb || fail "Linux does not build"
cp "$objects/vmlinux" "$objects/arch/arm/boot/zImage" "$out/"
cp "$objects/.config" "$out/config"
cp "$objects/arch/arm/boot/dts/arm/vexpress-v2p-ca9.dtb" "$out/board.dtb"
