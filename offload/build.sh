#!/usr/bin/env bash
# Builds the executor for the Cortex-M3 and the guest programs from the distribution's Linux source.
#
#   offload/build.sh OUT     writes into OUT: offload.elf (the executor), offload-forward.elf (the same,
#                            forwarding accesses to devices); dormouse-stm32mp1.elf, dormouse-imx7d.elf (firmware for
#                            remoteproc); guest-kernel-*.elf and
#                            guest-identity-*.elf (the programs at 0xc0000000, and at the small core's
#                            own addresses; in A32 and T32); native-a15.elf, native-a15-t32.elf,
#                            native-m3.elf; guest.o (relocatable); count.so (counts what an emulated core executes)
#
# The files of Linux that are needed are kept in the user's cache.
set -euo pipefail
cd "$(dirname "$0")"
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
gcc=arm-none-eabi-gcc
command -v $gcc >/dev/null || {
	echo "offload: $gcc is missing: install gcc-arm-none-eabi (scripts/setup.sh does)" >&2
	exit 3
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/offload-linux-6.12
headers=(list list_sort sort rbtree rbtree_augmented rbtree_types kfifo glob poison crc32poly ctype)
sources=(glob kfifo sort list_sort rbtree crc32 string ctype gen_crc32table)
wanted=(lib/crc32defs.h arch/arm/include/asm/word-at-a-time.h)
for name in "${headers[@]}"; do wanted+=("include/linux/$name.h"); done
for name in "${sources[@]}"; do wanted+=("lib/$name.c"); done
./linux-source.sh "$cache" "${wanted[@]}"

work=$out/work
rm -rf "$work"
mkdir -p "$work"/{real/asm,real/linux,empty,lib,include/linux,include/generated}

# --- the executor ---
# For speed what every translated instruction needs, for size the rest.
flags=(-std=c11 -Wall -Wextra -Werror -mthumb -mcpu=cortex-m3 -ffreestanding
	-fno-tree-loop-distribute-patterns -fno-delete-null-pointer-checks -DOFFLOAD_TARGET
	-I. -Iinclude -Isrc -ffunction-sections -fdata-sections)
edge=(target/start.S target/main.c target/output.c target/time.c)
local=(target/device_local.c target/interrupt_timer.c)
forward=(target/device_forward.c target/interrupt_board.c)
edges=("${edge[@]}" "${local[@]}" "${forward[@]}")
for source in "${edges[@]}" $(find src -name '*.c' | sort); do
	case $source in
	src/cache/cache.c | src/runtime/executor.c | src/runtime/keep.c | src/runtime/registers.c | \
		src/translate/body.c | src/translate/extent.c | src/translate/instruction.c | \
		src/translate/region.c | src/translate/runs.c) level=-O2 ;;
	*) level=-Os ;;
	esac
	object=${source%.*}
	$gcc "${flags[@]}" $level -c "$source" -o "$work/${object//\//-}.o"
done
# Two executors: the guest's devices and interrupts are the small core's, or they are the board's.
for variant in offload:forward:board offload-forward:local:timer; do
	IFS=: read -r name device interrupt <<<"$variant"
	others=$(find "$work" -maxdepth 1 -name '*.o' ! -name "target-device_$device.o" \
		! -name "target-interrupt_$interrupt.o" | sort)
	# shellcheck disable=SC2086
	$gcc "${flags[@]}" -nostdlib -Wl,--gc-sections -T target/boards/mps2-an385.ld $others -lgcc \
		-o "$out/$name.elf"
done
rm "$work"/*.o
# For a board with 128 KiB of RAM: all for size, and a smaller index of the code cache.
flags+=(-mcpu=cortex-m4 -DTARGET_BOARD='"target/boards/netduinoplus2.h"' -DCACHE_REGIONS=256 -DCACHE_OUTSIDE=512)
for source in "${edge[@]}" "${local[@]}" $(find src -name '*.c' | sort); do
	object=${source%.*}
	$gcc "${flags[@]}" -Os -c "$source" -o "$work/${object//\//-}.o"
done
others=$(find "$work" -maxdepth 1 -name '*.o' | sort)
# shellcheck disable=SC2086
$gcc "${flags[@]}" -nostdlib -Wl,--gc-sections -T target/boards/netduinoplus2.ld $others -lgcc \
	-o "$out/offload-netduinoplus2.elf"
rm "$work"/*.o

# Firmware of chips with both cores, which remoteproc loads: as above, but with the hand-over instead of the report.
for board in stm32mp1 imx7d; do
	firmware=("${flags[@]}" "-UTARGET_BOARD" -DTARGET_BOARD="\"target/boards/$board.h\"")
	for source in "${edge[@]}" target/handover.c target/trace.c target/device_bus.c target/interrupt_timer.c $(find src -name '*.c' | sort); do
		object=${source%.*}
		$gcc "${firmware[@]}" -Os -c "$source" -o "$work/${object//\//-}.o"
	done
	$gcc "${firmware[@]}" -nostdlib -Wl,--gc-sections -Ltarget/boards -T target/boards/$board.ld "$work"/*.o -lgcc \
		-o "$out/dormouse-$board.elf"
	rm "$work"/*.o
done

# --- what counts the instructions of an emulated core, a plugin of the emulator on this machine ---
cc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -o "$out/count.so" model/count.c

# --- Linux' files: data structures' headers are real, every other header is empty ---
cp "$cache"/include/linux/*.h "$work/real/linux/"
cp "$cache/arch/arm/include/asm/word-at-a-time.h" "$work/real/asm/"
cp "$cache"/lib/* "$work/lib/"
cp "$cache/include/linux/crc32poly.h" "$work/include/linux/"
: >"$work/include/generated/autoconf.h"
grep -hoE '#include <[^>]+>' "$work"/lib/*.c "$work"/real/*/*.h | sed 's/.*<//; s/>//' | sort -u |
	while read -r header; do
		case $header in
		std*.h | inttypes.h) ;;
		*)
			[ -e "$work/real/$header" ] || {
				mkdir -p "$work/empty/$(dirname "$header")"
				: >"$work/empty/$header"
			}
			;;
		esac
	done
cc -w -o "$work/gen_crc32table" -I"$work/lib" "$work/lib/gen_crc32table.c"
"$work/gen_crc32table" >"$work/lib/crc32table.h"

# compile FOLDER FLAGS…: all programs, as a kernel is compiled
compile() {
	local folder=$work/$1 name flags
	shift
	mkdir -p "$folder"
	flags=(-std=gnu11 -O2 -ffreestanding -fno-builtin -fno-common -mabi=aapcs-linux
		-fno-short-enums -fno-strict-aliasing -fomit-frame-pointer -mfloat-abi=soft
		-include guest/shim/kernel.h -Iguest -Iguest/shim -isystem "$work/real" -isystem "$work/empty"
		-I"$work/lib" "$@")
	for name in glob kfifo sort list_sort rbtree crc32 string callback; do
		$gcc -Wall -Wextra -Werror "${flags[@]}" -c guest/$name.c -o "$folder/run_$name.o"
	done
	for name in glob kfifo sort list_sort rbtree crc32 string ctype; do
		# Linux' own code, with its own warnings.
		$gcc -w "${flags[@]}" -c "$work/lib/$name.c" -o "$folder/lib_$name.o"
	done
	$gcc -Wall -Wextra "${flags[@]}" -c guest/native.c -o "$folder/native.o"
	arm-none-eabi-ld -r "$folder"/run_*.o "$folder"/lib_*.o -o "$folder/all.o"
}

link_native() {
	arm-none-eabi-ld --no-warn-rwx-segments --defsym "BASE=$3" --defsym "VECTORS=$4" \
		-T guest/native.ld "$work/$1/native.o" "$work/$1/all.o" -o "$out/$2"
}

compile a32 -marm -march=armv7ve
compile t32 -mthumb -march=armv7ve
compile m3 -mthumb -mcpu=cortex-m3
link_native a32 native-a15.elf 0x40010000 0x4000ff00
link_native t32 native-a15-t32.elf 0x40010000 0x4000ff00
link_native m3 native-m3.elf 0x20000000 0
for world in kernel:0xc0000000 identity:0x21000000; do
	for state in a32 t32; do
		# What only the halves of kfifo that nothing calls need.
		arm-none-eabi-ld --no-warn-rwx-segments --defsym "BASE=${world#*:}" \
			--defsym copy_from_user=0 --defsym copy_to_user=0 --defsym kfree=0 \
			--defsym kmalloc_array=0 -T guest/guest.ld "$work/$state/all.o" -o "$out/guest-${world%:*}-$state.elf"
	done
done
cp "$work/a32/all.o" "$out/guest.o"
cp guest/guest.ld "$out/guest.ld"
rm -rf "$work"
