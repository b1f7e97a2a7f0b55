/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ramstage: page tables of our own, in ramstage's memory, which is never given to
 * the OS. The board's tables may lie in low memory or map only the first 4 GiB.
 */

#include <cpu/cpu.h>
#include <cpu/x86/cr.h>
#include <types.h>

#include "dormouse.h"

#define PRESENT_WRITABLE	0x3ULL
#define LARGE			0x80ULL
#define ENTRIES			512
/* As far as SMM maps too: what one side cannot reach is no use to the other. */
#define MAP_GIB			CONFIG_CPU_PT_ROM_MAP_GB
#define DIRECTORIES		((MAP_GIB + ENTRIES - 1) / ENTRIES)

static uint64_t top[ENTRIES] __aligned(4096);
static uint64_t directory[DIRECTORIES * ENTRIES] __aligned(4096);

_Static_assert(DIRECTORIES <= ENTRIES, "four levels of tables");

uint64_t dormouse_map_end(void)
{
	return (uint64_t)MAP_GIB * GiB;
}

bool dormouse_map_memory(void)
{
	if (!(cpuid_edx(0x80000001) & (1 << 26)))
		return false;
	for (size_t i = 0; i < MAP_GIB; i++)
		directory[i] = i * GiB | PRESENT_WRITABLE | LARGE;
	for (size_t i = 0; i < DIRECTORIES; i++)
		top[i] = (uintptr_t)&directory[i * ENTRIES] | PRESENT_WRITABLE;
	write_cr3((uintptr_t)top);
	return true;
}
