#!/usr/bin/env bash
# Builds the program that the big core runs under a model of its caches: the hand-over of offload/linux and the
# kernel's own cache-v7.S.
#
#   offload/tests/caches/big/build.sh OUT     writes a32.bin and t32.bin into OUT
set -euo pipefail
out=$(realpath "$1")
cd "$(dirname "$0")"
gcc=arm-none-eabi-gcc
command -v $gcc >/dev/null || {
	echo "offload: $gcc is missing: install gcc-arm-none-eabi (scripts/setup.sh does)" >&2
	exit 3
}
offload=../../..
linux=$offload/linux
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/offload-linux-6.12-big-core
$offload/linux-source.sh "$cache" arch/arm/mm/cache-v7.S

work=$out/work
mkdir -p "$work/empty"
sources=("$cache/arch/arm/mm/cache-v7.S" "$linux/caches.S" "$linux/switch.S" "$linux/call.c" "$linux/rendezvous.c"
	program.c)
# Linux' headers are empty: kernel.h has what is needed of them.
grep -hoE '#include (<(linux|asm)/[^>]+>|"proc-macros.S")' "${sources[@]}" $linux/rendezvous.h |
	sed -E 's/.*[<"]([^<>"]+)[>"].*/\1/' | sort -u | while read -r header; do
	mkdir -p "$work/empty/$(dirname "$header")"
	: >"$work/empty/$header"
done
for set in a32 t32; do
	mode=(-marm)
	# As the kernel's own makefile has it.
	[ $set = a32 ] || mode=(-mthumb "-Wa,-mthumb" "-Wa,-mimplicit-it=always")
	objects=()
	for source in "${sources[@]}"; do
		object=$work/$set-$(basename "$source").o
		$gcc -Wall -Wextra -Werror -std=gnu11 -O2 -mcpu=cortex-a7 -mfloat-abi=soft "${mode[@]}" -ffreestanding \
			-fno-tree-loop-distribute-patterns -mno-unaligned-access -mabi=aapcs-linux -D__KERNEL__ \
			-include kernel.h -I. -I"$work/empty" -I$linux -I$offload -I$offload/include \
			-c "$source" -o "$object"
		objects+=("$object")
	done
	arm-none-eabi-ld -T program.ld "${objects[@]}" -o "$work/$set.elf"
	arm-none-eabi-objcopy -O binary --set-section-flags .data=alloc,load,contents "$work/$set.elf" "$out/$set.bin"
done
