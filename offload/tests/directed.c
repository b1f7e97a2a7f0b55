// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What random blocks and loops have hit upon only once: each for all base addresses and scratch registers. */
#include <stdio.h>

#include "differential.h"

enum { CODE = TEST_TEXT + 0x4000 };

struct directed {
	const char *what;
	uint32_t thumb, flags, count;
	uint32_t words[8];
};

static const struct directed directed[] = {
	/*
	 * ldr r3, [r7]; bmi 1f; ldrcc r2, [r6, #36]; 1: nop; strhcc r0, [r6, #32]!: behind the branch the scratch
	 * register does not hold r6's address, though there is no code between the two that are under a condition.
	 */
	{ "a label without code", 0, FLAG_N, 5,
	  { 0xe5973000, 0x4a000000, 0x35962024, 0xe320f000, 0x31e602b0 } },
	{ "a label without code", 1, FLAG_N, 7,
	  { 0x3000f8d7, 0x8003f100, 0xf8d6bf38, 0xf3af2024, 0xbf388000, 0x0f20f826, MARKER } },
	/* ldrexmi r2, [r5]; addmi r4, r4, #1, of which the first faults; what is next is not under its condition. */
	{ "a fault under a condition", 0, FLAG_N, 2, { 0x41952f9f, 0x42844001 } },
	{ "what follows that", 0, 0, 2, { 0xe2800001, 0xe2822001 } },
	{ "a fault under a condition", 1, FLAG_N, 3, { 0xe855bf44, 0xf1042f00, 0xbf000401 } },
	{ "what follows that", 1, 0, 3, { 0x0001f100, 0x0201f102, MARKER } },
	/* 1: bpl 2f; cmp r0, r0; bx lr; 2: to where there is no code, but twice the address is that of label 1. */
	{ "a return 2 GiB away", 1, FLAG_N, 2, { 0x4280d501, 0xdefe4770 } },
};

int check_directed(uint32_t wanted, uint32_t options, uint32_t cache_size)
{
	uint32_t bad = 0, total = 0;

	for (size_t i = 0; i < sizeof(directed) / sizeof(*directed); i++) {
		const struct directed *d = &directed[i];

		if (!i || d->thumb != d[-1].thumb)
			make_worlds(d->thumb, options, cache_size);
		for (uint32_t j = 0; j < wanted * WORLDS; j++, total++) {
			uint32_t world = j % WORLDS, base = worlds[world].base;
			struct offload_cpu cpu;

			random_state(&cpu, base);
			cpu.flags = d->flags;
			cpu.control = (cpu.control & ~0x20u) | d->thumb << 5;
			cpu.r[5] = base + TEST_DATA + 2;
			cpu.r[6] = base + TEST_DATA + 0x2000;
			cpu.r[7] = base + TEST_DATA + 0x3000;
			cpu.r[LR] = (base ^ 0x80000000) + CODE + d->thumb;
			cpu.r[PC] = base + CODE;
			load_code(&oracles[world], edges[world], d->words, d->count, CODE);
			if (compare(&oracles[world], edges[world], &cpu, 4 * d->count, 100))
				continue;
			fprintf(stderr, "%s, base %x, scratch r%u\n", d->what, base, worlds[world].scratch);
			bad++;
		}
	}
	printf("directed: %u, %u differences\n", total, bad);
	return bad ? 1 : 0;
}
