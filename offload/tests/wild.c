// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Wild stores: a guest that writes where the executor's own memory is in the host must stop. */
#include <stdio.h>
#include <string.h>

#include "differential.h"

enum { CODE = TEST_TEXT + 0x4000, BASE = 1, INDEX = 2 };

/* A host address that is not in guest memory: mostly the executor's, mostly what it can write. */
static uint32_t wild_host_address(void)
{
	uint32_t host;

	switch (below(8)) {
	case 0:
	case 1:
	case 2:
		return TEST_STATE - 8 + below(STATE_WINDOW_BYTES + 16);
	case 3:
		return TEST_STATE + below(sizeof(struct offload_state));
	case 4:
		return TEST_TABLE_BASE + TEST_TEXT + below(TEST_MEMORY);
	case 5:
		return TEST_CACHE_BASE + below(TEST_CACHE);
	case 6:
		return TEST_HOST_BASE + TEST_MEMORY + below(64);
	default:
		do
			host = dice();
		while (host - TEST_HOST_BASE + 256 < TEST_MEMORY + 512);
		return host;
	}
}

/* A store to [r1 + r2] or near r1; *offset is how far its lowest address is from r1. */
static uint32_t random_store(uint32_t index, int32_t *offset)
{
	uint32_t up = below(2), before = below(2), write_back = before ? below(2) : 0, t = 4 + below(5);
	uint32_t modes = 0xe0000000 | before << 24 | up << 23 | write_back << 21 | BASE << 16;
	int32_t by = below(64) * 4, sign = up ? 1 : -1;
	uint32_t list, count;

	switch (below(6)) {
	case 0:
		*offset = before ? sign * by : 0;
		return modes | 0x04000000 | t << 12 | by;	/* str */
	case 1:
		*offset = before ? sign * by : 0;
		return modes | 0x04400000 | t << 12 | by;	/* strb */
	case 2:
		*offset = before ? sign * (int32_t)index : 0;
		return modes | 0x06000000 | t << 12 | INDEX;	/* str, by register */
	case 3:
		by &= 0xff;
		*offset = before ? sign * by : 0;
		return modes | 0x004000b0 | t << 12 | (by & 0xf0) << 4 | (by & 15);	/* strh */
	case 4:
		by &= 0xff;
		*offset = before ? sign * by : 0;
		return modes | 0x004000f0 | (t & ~1u) << 12 | (by & 0xf0) << 4 | (by & 15);	/* strd */
	default:
		list = (dice() & 0x1ff0) | 1 << t;
		count = count_bits(list);
		*offset = up ? 4 * (int32_t)before : 4 * (int32_t)(!before) - 4 * (int32_t)count;
		return 0xe8000000 | before << 24 | up << 23 | below(2) << 21 | BASE << 16 | list;
	}
}

static bool is_noticed(enum offload_stop stop)
{
	return stop == OFFLOAD_UNMAPPED_WRITE || stop == OFFLOAD_WILD_STORE ||
		stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_CODE_WRITTEN;
}

/*
 * What reads and writes a register of the guest's, in ways that the translator treats apart; other: another register,
 * address: one that holds the address of guest memory.
 */
static uint32_t random_use(uint32_t number, uint32_t other, uint32_t address)
{
	uint32_t cond = below(4) ? 0xe : below(14);

	switch (below(9)) {
	case 0:
		return cond << 28 | 0x02800000 | number << 16 | number << 12 | below(256);	/* add n, n, #x */
	case 1:
		return cond << 28 | 0x00200000 | number << 16 | number << 12 | other;	/* eor n, n, other */
	case 2:
		return cond << 28 | 0x01a00000 | number << 12 | other;	/* mov n, other */
	case 3:
		return cond << 28 | 0x01a00000 | other << 12 | number;	/* mov other, n */
	case 4:
		return cond << 28 | 0x03a00000 | number << 12 | below(256);	/* mov n, #x */
	case 5:
		return cond << 28 | 0x05900000 | address << 16 | number << 12;	/* ldr n, [address] */
	case 6:
		return cond << 28 | 0x05800000 | address << 16 | number << 12;	/* str n, [address] */
	case 7:
		return cond << 28 | 0x00800080 | other << 16 | other << 12 | number;	/* add other, other, n, lsl #1 */
	default:
		return cond << 28 | 0x02800000 | other << 16 | other << 12 | below(256);	/* add other, other, #x */
	}
}

enum { USES = 4, WORDS = USES + 3 };

static enum offload_stop run_words(struct edge *edge, const uint32_t *words, struct offload_cpu *cpu)
{
	edge_forget(edge);
	for (uint32_t i = 0; i < WORDS; i++)
		put_word(edge->memory, CODE + 4 * i, words[i]);
	return edge_run(edge, cpu, 1000);
}

/* Whether what runs behind the store ends as if nothing had been stored: it wrote what was there. */
static bool changed_nothing(struct edge *edge, uint32_t *words, struct offload_cpu start, const struct offload_cpu *end)
{
	uint32_t store = words[1];
	enum offload_stop stop;

	for (uint32_t i = 1; i < 4; i++)
		if (words[i] == store || words[i] == store + 4)
			words[i] = 0xe1a00000;	/* nop */
	stop = run_words(edge, words, &start);
	start.r[BASE] = end->r[BASE];
	return stop == OFFLOAD_UNDEFINED && !memcmp(start.r, end->r, sizeof(start.r)) && start.flags == end->flags;
}

/*
 * Each of the stores is followed by instructions that use the register whose guest value is in the executor's
 * memory; whatever they do to it, the executor must notice the store when it is called next.
 */
int check_wild_stores(uint32_t wanted)
{
	uint32_t bad = 0, late = 0, equal = 0;

	make_worlds(false, OPTIONS_ALL, TEST_CACHE);
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		int world = below(WORLDS);
		struct edge *edge = edges[world];
		uint32_t base = worlds[world].base, index = below(64) * 4, host = wild_host_address();
		uint32_t scratch_register = worlds[world].scratch, words[WORDS], store;
		uint32_t other = scratch_register == 4 ? 5 : 4, address = scratch_register == 6 ? 5 : 6;
		struct offload_state kept;
		struct offload_cpu cpu, start;
		enum offload_stop stop;
		int32_t offset;

		words[0] = random_use(scratch_register, other, address);
		words[1] = store = random_store(index, &offset);
		for (uint32_t j = 0; j < USES; j++)
			words[2 + j] = random_use(scratch_register, other, address);
		/* The first of two neighbouring words, or the second. */
		if ((store & 0x0f600000) == 0x05000000 && (store & 0xfff) < 0xff8 && below(2))
			words[below(2) ? 2 : 3] = store + 4;
		words[WORDS - 1] = MARKER;
		random_state(&cpu, base);
		cpu.r[INDEX] = index;
		cpu.r[address] = base + TEST_TEXT + 0x8000;
		cpu.r[BASE] = host - TEST_HOST_BASE + base - offset;
		cpu.r[PC] = base + CODE;
		start = cpu;
		kept = *edge->executor.state;
		stop = run_words(edge, words, &cpu);
		if (stop == OFFLOAD_WILD_STORE)
			late++;
		if (memcmp((uint8_t *)&kept + STATE_WINDOW_BYTES, (uint8_t *)edge->executor.state + STATE_WINDOW_BYTES,
			   offsetof(struct offload_state, control) - STATE_WINDOW_BYTES) ||
		    memcmp(kept.tlb, edge->executor.state->tlb, sizeof(kept.tlb))) {
			fprintf(stderr, "store %u: %08x changed the executor's state\n", i, store);
			bad++;
			continue;
		}
		if (is_noticed(stop))
			continue;
		if (stop == OFFLOAD_UNDEFINED && host - TEST_STATE < STATE_WINDOW_BYTES &&
		    changed_nothing(edge, words, start, &cpu)) {
			equal++;
			continue;
		}
		fprintf(stderr, "store %u: %08x to host address %x, world %d, stop %d, scratch %08x was %08x\n",
			i, store, host, world, stop, cpu.r[scratch_register], start.r[scratch_register]);
		bad++;
	}
	printf("wild stores: %u, %u noticed by the executor's next call, %u that changed nothing, %u not noticed\n",
	       wanted, late, equal, bad);
	return bad ? 1 : 0;
}
