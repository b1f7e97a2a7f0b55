// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A code cache that is kept from job to job: each block is run as it is, from another state of memory, and with a word
 * of it or of the constants around it changed. What was translated before the change must not run behind it.
 */
#include <stdio.h>
#include <string.h>

#include "differential.h"

bool keeping;
static uint32_t unchanged, reused;

/* An instruction of the block, or a word behind it that it may load. */
static void change_a_word(struct oracle *oracle, const struct offload_cpu *start, uint32_t bytes)
{
	uint32_t offset = start->r[PC] - oracle->base;

	if (below(2)) {
		/* Where T32 has instructions is only known of the first. */
		if (!(start->control & 0x20))
			offset += 4 * below(bytes / 4);
		put_half(oracle->memory, offset, MARKER & 0xffff);
		put_half(oracle->memory, offset + 2, MARKER >> 16);
	} else {
		put_word(oracle->memory, ((offset + bytes + 7) & ~3u) + 4 * below(64), dice());
	}
}

static bool compare_again(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start, uint32_t bytes,
			  uint32_t max_instructions)
{
	randomise_memory(oracle->memory);
	memcpy(edge->memory, oracle->memory, TEST_MEMORY);
	return compare(oracle, edge, start, bytes, max_instructions);
}

bool compare_block(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start, uint32_t bytes,
		   uint32_t max_instructions)
{
	if (!compare(oracle, edge, start, bytes, max_instructions))
		return false;
	if (!keeping)
		return true;
	if (!compare_again(oracle, edge, start, bytes, max_instructions))
		return false;
	unchanged++;
	reused += !edge->executor.cache.translated_regions;
	change_a_word(oracle, start, bytes);
	return compare_again(oracle, edge, start, bytes, max_instructions);
}

enum { CODE = TEST_TEXT + 0x4000, CONSTANT = 0x40 };

static bool run_again(const struct offload_cpu *start, uint32_t bytes)
{
	memcpy(edges[0]->memory, oracles[0].memory, TEST_MEMORY);
	return compare(&oracles[0], edges[0], start, bytes, 100);
}

/* Worlds of an instruction set, and a processor that begins at the code. */
static void begin_at_code(struct offload_cpu *cpu, bool thumb)
{
	make_worlds(thumb, OPTIONS_ALL, TEST_CACHE);
	random_state(cpu, oracles[0].base);
	cpu->r[PC] = oracles[0].base + CODE;
	cpu->control = (cpu->control & ~0x20u) | thumb << 5;
	cpu->it = 0;
}

/* A constant that the code loads changes, which is not in the region of the code. */
static int check_constant(bool thumb)
{
	/* ldr r0, [pc, #CONSTANT] */
	uint32_t load = thumb ? 0x4800 | CONSTANT / 4 : 0xe59f0000 | CONSTANT;
	struct offload_cpu cpu;
	int bad = 0;

	begin_at_code(&cpu, thumb);
	put_word(oracles[0].memory, CODE, thumb ? load | (MARKER & 0xffff) << 16 : load);
	for (uint32_t i = 0; i < 4; i++) {
		put_word(oracles[0].memory, CODE + (thumb ? 4 : 8) + CONSTANT, dice());
		bad |= !run_again(&cpu, thumb ? 2 : 4);
	}
	return bad;
}

/* A job hands back where the one before it, or the one behind it, goes on. */
static int check_link(void)
{
	static const uint32_t words[] = { 0xe2800001, 0xe2811001, 0xe2822001 };	/* add r0, r0, #1 … */
	uint32_t before = handed_back;
	struct offload_cpu cpu;
	int bad = 0;

	begin_at_code(&cpu, false);
	load_code(&oracles[0], edges[0], words, 3, CODE);
	for (uint32_t i = 0; i < 6; i++) {
		edges[0]->job.link = i % 2 ? cpu.r[PC] + 4 * (i / 2) : 0;
		bad |= !run_again(&cpu, sizeof(words));
	}
	edges[0]->job.link = 0;
	return bad || handed_back - before != 3;
}

/* An instruction of a function that is inlined changes, or a job hands back there. */
static int check_inlined(bool thumb)
{
	uint32_t before = handed_back, function = CODE + CONSTANT;
	struct offload_cpu cpu;
	int bad = 0;

	begin_at_code(&cpu, thumb);
	load_code(&oracles[0], edges[0], NULL, 0, TEST_TEXT);
	/* bl function; add r0, r0, #i; bx lr */
	put_word(oracles[0].memory, CODE, thumb ? 0xf81ef000 : 0xeb00000e);
	put_word(oracles[0].memory, function + 4, thumb ? MARKER : 0xe12fff1e);
	for (uint32_t i = 0; i < 8; i++) {
		put_word(oracles[0].memory, function, (thumb ? 0x47703000 : 0xe2800000) | (i + 1) / 2);
		edges[0]->job.link = i % 4 == 2 ? oracles[0].base + function + thumb : 0;
		bad |= !run_again(&cpu, 4);
	}
	edges[0]->job.link = 0;
	return bad || handed_back - before != 2;
}

int check_kept(uint32_t wanted, uint32_t options, uint32_t cache_size)
{
	int bad;

	keeping = true;
	unchanged = reused = 0;
	bad = check_constant(false) | check_constant(true);
	bad |= check_link();
	bad |= check_inlined(false) | check_inlined(true);
	printf("constants and hand-backs: %s; ", bad ? "wrong" : "right");
	bad |= check_blocks(wanted, options, cache_size, false);
	bad |= check_thumb_blocks(wanted, options, cache_size, false);
	bad |= check_loops(wanted, options, cache_size, false);
	bad |= check_loops(wanted, options, cache_size, true);
	keeping = false;
	printf("kept: %u of %u unchanged blocks ran without translation\n", reused, unchanged);
	/* All but those that end in a stop, behind which nothing is kept, and branches to elsewhere. */
	return bad || reused < unchanged / 2;
}
