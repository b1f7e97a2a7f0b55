// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The kernel's other functions of cache-v7.S, by address and by the first level alone, under the model. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "trial.h"

static uint8_t memory[TEST_MEMORY], kept[TEST_MEMORY];

static bool call(struct big_core *big, bool thumb, uint32_t function, uint32_t start, uint32_t bytes, uint32_t way)
{
	struct offload_cpu cpu = { .control = 0xd3 | thumb << 5, .exclusive = 1 };

	cpu.r[0] = start;
	cpu.r[1] = bytes;
	cpu.r[2] = way;
	cpu.r[SP] = PROGRAM_BASE + PROGRAM + PROGRAM_BYTES;
	cpu.r[LR] = PROGRAM_BASE + TEST_TEXT + thumb;
	cpu.r[PC] = function & ~1u;
	return big_core_run(big, &cpu, 1000000) && cpu.r[PC] - PROGRAM_BASE - TEST_TEXT < 4;
}

/* What the core reads there is what memory has, and that is what it was for the core or for memory before. */
static bool agrees(const struct big_core *big, uint32_t offset, uint32_t bytes, const uint8_t *expected)
{
	for (uint32_t i = offset; i < offset + bytes; i++)
		if (memory[i] != expected[i] || hierarchy_byte(&big->caches, PROGRAM_BASE + i) != expected[i])
			return false;
	return true;
}

static const char *check_one(bool thumb, int which)
{
	struct big_core *big = trial_big_core(thumb, memory);
	const struct program_head *head = (struct program_head *)big->program;
	uint32_t offset = (TEST_DATA + 0x2000 + below(0x1000)) & ~63u, bytes = 64 * (1 + below(16));
	static uint8_t view[TEST_MEMORY];

	/* Otherwise a line that has just been invalidated may come in again. */
	big->speculates = false;
	if (which == 3)
		big->caches.levels = 1;
	memcpy(view, memory, TEST_MEMORY);
	big_core_warm(big);
	memcpy(kept, memory, TEST_MEMORY);
	switch (which) {
	case 0:
		if (!call(big, thumb, head->flush_area, PROGRAM_BASE + offset, bytes, 0) ||
		    !agrees(big, offset, bytes, view))
			return "v7_flush_kern_dcache_area() leaves memory old";
		/* Nothing of it is left. */
		for (uint32_t i = offset; i < offset + bytes; i++)
			memory[i] = kept[i] = dice();
		return agrees(big, offset, bytes, kept) ? NULL : "v7_flush_kern_dcache_area() leaves lines";
	case 1:
		if (!call(big, thumb, head->map_area, PROGRAM_BASE + offset, bytes, 1) ||
		    !agrees(big, offset, bytes, view))
			return "v7_dma_map_area() leaves memory old";
		return NULL;
	case 2:
		/* What was dirty is lost. A line may have been written back before. */
		if (!call(big, thumb, head->unmap_area, PROGRAM_BASE + offset, bytes, 2))
			return "v7_dma_unmap_area() fails";
		return agrees(big, offset, bytes, memory) ? NULL : "v7_dma_unmap_area() leaves lines";
	default:
		if (!call(big, thumb, head->invalidate_first, 0, 0, 0))
			return "v7_invalidate_l1() fails";
		return agrees(big, offset, bytes, memory) ? NULL : "v7_invalidate_l1() leaves lines";
	}
}

int check_maintenance(uint32_t rounds)
{
	uint32_t bad = 0;

	for (uint32_t i = 0; i < 4 * rounds; i++) {
		bool thumb = below(2);
		const char *why = check_one(thumb, i % 4);

		if (!why)
			continue;
		fprintf(stderr, "%s: %s\n", thumb ? "T32" : "A32", why);
		bad++;
	}
	printf("caches: %u calls of the kernel's other maintenance, %u differences\n", 4 * rounds, bad);
	return bad != 0;
}
