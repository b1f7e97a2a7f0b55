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
	/* sub r0, sp, #20; mov r9, r7; strb r9, [r9, #8], by way of r0, which is no address of the stack then. */
	{ "a stack address that is renamed to", 0, 0, 3, { 0xe24d0014, 0xe1a09007, 0xe5c99008 } },
	/* add r0, sp, #8; str r1, [r0]; mov r0, r6; str r2, [r0, #4], which is no address of the stack any more. */
	{ "a stack address that changes in a pair", 0, 0, 4, { 0xe28d0008, 0xe5801000, 0xe1a00006, 0xe5802004 } },
	/* str r6, [sp, #8]; add r0, sp, #8; ldr r0, [r0]; ldr r2, [r0, #4] */
	{ "a stack address that a pair loads over", 0, 0, 4, { 0xe58d6008, 0xe28d0008, 0xe5900000, 0xe5902004 } },
	/* ldr r1, [r6]; rsc r4, r3, #8; ldr r2, [r6, #4] */
	{ "what is not translated in a pair", 0, 0, 3, { 0xe5961000, 0xe2e34008, 0xe5962004 } },
	/* mov r0, r6; mov r9, r7; str r9, [r9, #8]; str r1, [r0, #12], the third by way of another register: r0. */
	{ "no pair of one that is renamed", 0, 0, 4, { 0xe1a00006, 0xe1a09007, 0xe5899008, 0xe580100c } },
	/* mov r8, #9; 1: ldr r2, [r5]; add r4, r4, #1; ldr r3, [r5, #4]; add r0, r0, r2; subs r8, r8, #1; bne 1b */
	{ "a pair that is not aligned, which it is once", 0, 0, 7,
	  { 0xe3a08009, 0xe5952000, 0xe2844001, 0xe5953004, 0xe0800002, 0xe2588001, 0x1afffff9 } },
	/* ldr r2, [r6]; add r6, r6, #4; ldr r3, [r6, #4]; str r2, [r7]; mov r3, r2; str r3, [r7, #4]: no pairs. */
	{ "what cannot follow a pair", 0, 0, 6,
	  { 0xe5962000, 0xe2866004, 0xe5963004, 0xe5872000, 0xe1a03002, 0xe5873004 } },
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
			uint32_t before;
			bool fine;

			random_state(&cpu, base);
			cpu.flags = d->flags;
			cpu.control = (cpu.control & ~0x20u) | d->thumb << 5;
			cpu.r[5] = base + TEST_DATA + 2;
			cpu.r[6] = base + TEST_DATA + 0x2000;
			cpu.r[7] = base + TEST_DATA + 0x3000;
			cpu.r[LR] = (base ^ 0x80000000) + CODE + d->thumb;
			cpu.r[PC] = base + CODE;
			load_code(&oracles[world], edges[world], d->words, d->count, CODE);
			before = edges[world]->executor.faults;
			fine = compare(&oracles[world], edges[world], &cpu, 4 * d->count, 100);
			/* A fault takes as long as a thousand instructions. */
			if (fine && edges[world]->executor.faults - before < 3)
				continue;
			fprintf(stderr, "%s, base %x, scratch r%u\n", d->what, base, worlds[world].scratch);
			bad++;
		}
	}
	printf("directed: %u, %u differences\n", total, bad);
	return bad ? 1 : 0;
}
