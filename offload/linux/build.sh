#!/usr/bin/env bash
# Builds the module of the hand-over against the distribution's Linux source, configured for the two chips.
#
#   offload/linux/build.sh WORK OUT SET [-jN]
#
# WORK: as of kernel/build.sh, whose unpacked source is used; it is kept. SET: a32 or t32, the instruction set of the
# kernel's code. Leaves dormouse_handover.ko in OUT. Everything goes to WORK/module-SET.log. Exit codes: 2 wrong
# arguments; 3 something is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=offload/kernel/common.sh
. "$here/../kernel/common.sh"
need 3 $#
set=$3
jobs=${4:--j$(nproc)}
begin "$1" "$2" "module-$set"
objects=$work/module-$set
mkdir -p "$objects"

case $set in
a32) option="# CONFIG_THUMB2_KERNEL is not set" ;;
t32) option=CONFIG_THUMB2_KERNEL=y ;;
*) code=2 fail "$set is no instruction set: a32 or t32" ;;
esac
prepare
# Nothing more is written into the source.
flock -u 9

{
	cat "$here/config"
	echo "$option"
} >"$objects/config.wanted"
if ! cmp -s "$objects/config.wanted" "$objects/config.used"; then
	echo "==> configuring"
	build KCONFIG_ALLCONFIG="$objects/config.wanted" allnoconfig || fail "Linux's Kconfig failed"
	# An option that Kconfig dropped would silently build against another kernel.
	while read -r wanted; do
		grep -qxF "$wanted" "$objects/.config" || fail "this Linux does not take $wanted"
	done < <(grep -v -e '^# [^C]' -e '^$' "$objects/config.wanted")
	cp "$objects/config.wanted" "$objects/config.used"
fi
echo "==> preparing"
build "$jobs" modules_prepare || fail "the kernel's headers do not build"
echo "==> compiling"
# Nothing of third parties is changed, so the module's source is copied beside what is built of it.
rm -rf "$objects/dormouse"
mkdir -p "$objects/dormouse"
cp -r "$here" "$objects/dormouse/linux"
cp -r "$here/../include" "$here/../isa" "$objects/dormouse/"
# The kernel itself is not built, so there are no versions of its symbols to check.
build KBUILD_MODPOST_WARN=1 KCFLAGS=-Werror M="$objects/dormouse/linux" modules || fail "the module does not build"
module=$objects/dormouse/linux/dormouse_handover.ko
# Without such a list the kernel's source says whether it exports what the module needs.
while read -r symbol; do
	grep -rqE "EXPORT_SYMBOL(_GPL)?\($symbol\)" --include='*.[cS]' \
		"$tree"/{kernel,lib,mm,arch/arm,drivers/{base,of,remoteproc}} || fail "the kernel does not export $symbol"
done < <("${prefix}nm" -u "$module" | sed -n 's/^ *U //; /^param_ops_/!p')
cp "$module" "$out/"
