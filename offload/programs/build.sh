#!/usr/bin/env bash
# Builds the kernel's own tests of lib/ as programs, from the distribution's source: for the executor as A32 and
# T32, and natively for a Cortex-M3.
#
#   [LOG=1] offload/programs/build.sh WORK OUT [-jN]
#
# WORK: as of kernel/build.sh, whose unpacked source is used; it is kept. Leaves OUT/a32/TEST.elf, OUT/t32/TEST.elf
# and OUT/m3/TEST.elf for every object of lib/ that is a test by its name (test or kunit), compiles and links with
# lib/, arch/arm/lib and fakes.c, and the first two at the small core's own addresses in OUT/a32-identity and
# OUT/t32-identity. What it refers to besides is replaced by absent(), so that a call of it is noticed. Everything
# goes to WORK/programs.log. Exit codes: 2 wrong arguments; 3 something is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=offload/kernel/common.sh
. "$here/../kernel/common.sh"
need 2 $#
jobs=${3:--j$(nproc)}
begin "$1" "$2" programs
prepare
export KBUILD_BUILD_TIMESTAMP=@1 KBUILD_BUILD_USER=dormouse KBUILD_BUILD_HOST=dormouse LC_ALL=C

# Options of objects whose names say that they are tests; not those that change how everything else is compiled.
test_options() {
	find "$tree/lib" -name Makefile -print0 |
		xargs -0 sed -nE 's/^obj-\$\((CONFIG_[A-Z0-9_]+)\)[ \t]*\+?=.*(kunit|test)[^ ]*\.o.*/\1=y/p' | sort -u |
		grep -vE 'LOCKING_API|UBSAN|KPROBES|FPROBE|DYNAMIC_DEBUG|TEST_HMM|TEST_FIRMWARE'
}

# What lib/ calls of the rest of the kernel, and is as independent of it as lib/.
besides=(kernel/time/time.o kernel/time/timeconv.o drivers/base/swnode.o drivers/base/property.o)

# The same big core for all: with division, as a Cortex-A15 has it and a Cortex-M3.
for set in a32 t32 m3; do
	objects=$work/programs-$set
	mkdir -p "$objects"
	common="-ffunction-sections -fdata-sections"
	assembler=
	case $set in
	a32) option="# CONFIG_THUMB2_KERNEL is not set" flags="-marm -march=armv7ve" ;;
	t32) option=CONFIG_THUMB2_KERNEL=y flags="-mthumb -march=armv7ve" ;;
	m3) option=CONFIG_THUMB2_KERNEL=y flags="-mthumb -mcpu=cortex-m3" ;;
	esac
	case $set in
	m3) common+=" -march=armv7-m -include $here/m3.h" assembler=-march=armv7-m ;;
	*) common+=" -march=armv7ve" ;;
	esac
	flags_of_set=("KCFLAGS=$common" "KAFLAGS=$assembler")
	{
		cat "$here/../kernel/config" "$here/config"
		test_options
		echo "$option"
	} >"$objects/config.wanted"
	if ! cmp -s "$objects/config.wanted" "$objects/config.used"; then
		echo "==> configuring lib/ for $set"
		build "${flags_of_set[@]}" KCONFIG_ALLCONFIG="$objects/config.wanted" allnoconfig || fail "Linux's Kconfig failed"
		cp "$objects/config.wanted" "$objects/config.used"
	fi
	echo "==> compiling lib/ for $set"
	# What an instruction set lacks (64-bit exclusives, on a Cortex-M3) is left out, and the tests that need it.
	# That is why its exit code says nothing; one object, made anew, says that the compiler works.
	rm -f "$objects/lib/sort.o" "$objects/lib/.sort.o.cmd"
	build "${flags_of_set[@]}" -k "$jobs" lib/ arch/arm/lib/ "${besides[@]}" || true
	[ -e "$objects/lib/.sort.o.cmd" ] || fail "lib/ does not build"

	command=$(sed -n 's/^savedcmd_[^:]*:= //p' "$objects/lib/.sort.o.cmd" |
		sed 's/ -c -o .*//; s/-Wp,-MMD,[^ ]*//; s/^ccache //')
	for file in run kernel; do
		(cd "$objects" && eval "$command ${LOG:+-DPROGRAM_LOG} -c -o $file-program.o '$here/$file.c'") >>"$log" 2>&1 ||
			fail "$file.c does not build"
	done
	read -ra flag_words <<<"$flags -O2 -ffreestanding -fno-builtin -fno-short-enums -mabi=aapcs-linux -mfloat-abi=soft"
	"${prefix}gcc" "${flag_words[@]}" -ffunction-sections -fdata-sections -c "$here/fakes.c" \
		-o "$objects/fakes.o" >>"$log" 2>&1 || fail "fakes.c does not build"
	# kernel.c has what is called of kobject_uevent.o, which needs 64-bit exclusives.
	rm -f "$objects/library.a"
	find "$objects/lib" "$objects/arch/arm/lib" "${besides[@]/#/$objects/}" -name '*.o' ! -name 'built-in*' ! -path '*/raid6/*' \
		! -path '*/kunit/*' ! -name '*test*' ! -name '*kunit*' ! -name kobject_uevent.o -print0 | sort -z |
		xargs -0 "${prefix}ar" rcs "$objects/library.a"
	words=("$objects/run-program.o" "$objects/kernel-program.o" "$objects/fakes.o")
	layouts=("$set:0xc0000000" "$set-identity:0x21000000")
	# Before the script, which asks for VECTORS.
	symbols=()
	if [ $set = m3 ]; then
		layouts=("$set:0x21000000")
		symbols=(--defsym VECTORS=0)
		# The kernel's assembly says for itself that it is for another profile.
		"${prefix}objcopy" -R .ARM.attributes "$objects/library.a"
		"${prefix}gcc" "${flag_words[@]}" -DONE_PROGRAM=run_program -include "$here/../guest/shim/kernel.h" \
			-I"$here/../guest" -I"$here/../guest/shim" -c "$here/../guest/native.c" -o "$objects/native.o" \
			>>"$log" 2>&1 || fail "native.c does not build"
		words+=("$objects/native.o")
	fi
	for layout in "${layouts[@]}"; do
		mkdir -p "$out/${layout%:*}"
		rm -f "$out/${layout%:*}"/*.elf
	done
	# A self-test is called by what it tests: an object of lib/, which is linked by one of its functions, or as it is
	# if it has none.
	declare -A callers=()
	while IFS=: read -r caller symbol; do
		function=$("${prefix}nm" -g --defined-only --format=posix "$caller" | sed 's/ .*//;q')
		callers[${symbol##* }]=${function:+-u $function}
		[ "$function" ] || callers[${symbol##* }]=$caller
	done < <(find "$objects/lib" -name '*.o' ! -name 'built-in*' ! -path '*/kunit/*' ! -name '*test*' \
		-exec "${prefix}nm" -A -u {} + | grep -E 'self_?test')
	while IFS= read -r object; do
		name=$(basename "$object" .o)
		link=("${prefix}ld" --no-warn-rwx-segments --no-enum-size-warning --no-wchar-size-warning --gc-sections
			-u run_program "${symbols[@]}")
		inputs=(-T "$here/program.ld" "${words[@]}" "$object" "$objects/library.a")
		while IFS= read -r symbol; do
			read -ra caller <<<"${callers[$symbol]:-}"
			inputs+=("${caller[@]}")
		done < <("${prefix}nm" -g --defined-only --format=posix "$object" | sed 's/ .*//')
		mapfile -t absent < <("${link[@]}" --defsym "BASE=${layouts[0]#*:}" "${inputs[@]}" --noinhibit-exec \
			--warn-unresolved-symbols -o "$objects/program.elf" 2>&1 |
			sed -n "s/.*undefined reference to .\([^']*\)'.*/\1=absent/p" | sort -u)
		for layout in "${layouts[@]}"; do
			elf=$out/${layout%:*}/$name.elf
			"${link[@]}" --defsym "BASE=${layout#*:}" "${inputs[@]}" "${absent[@]/#/--defsym=}" -o "$elf" \
				>>"$log" 2>&1 || rm -f "$elf"
		done
	done < <(find "$objects/lib" \( -name '*test*.o' -o -name '*kunit*.o' \) ! -path '*/lib/kunit/*' | sort)
done
