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

/*
 * Whether a store's only two words are equal: at the address of the scratch value it writes both copies,
 * and nothing else shows that it happened (docs/explanation/offload.md, Limitations).
 */
static bool stores_twins(uint32_t word, const struct offload_cpu *cpu)
{
	uint32_t list = word & 0xffff, t = word >> 12 & 15;

	if ((word & 0x0e0000f0) == 0x000000f0)
		return cpu->r[t] == cpu->r[t + 1];
	if ((word & 0x0e000000) != 0x08000000 || count_bits(list) != 2)
		return false;
	for (t = 0; !(list >> t & 1); t++)
		;
	list &= list - 1;
	for (word = 0; !(list >> word & 1); word++)
		;
	return cpu->r[t] == cpu->r[word];
}

static bool is_noticed(enum offload_stop stop)
{
	return stop == OFFLOAD_UNMAPPED_WRITE || stop == OFFLOAD_WILD_STORE ||
		stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_CODE_WRITTEN;
}

int check_wild_stores(uint32_t wanted)
{
	const uint32_t scratch_value = TEST_STATE + offsetof(struct offload_state, scratch);
	uint32_t bad = 0, late = 0, equal = 0, twins = 0;

	make_worlds(false, OPTIONS_ALL, TEST_CACHE);
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		int world = below(WORLDS);
		struct edge *edge = edges[world];
		uint32_t base = worlds[world].base, index = below(64) * 4, host = wild_host_address();
		uint32_t scratch_register = worlds[world].scratch, words[4];
		struct offload_state kept;
		struct offload_cpu cpu, start;
		enum offload_stop stop;
		int32_t offset;

		words[0] = 0xe1a00000 | scratch_register << 12 | scratch_register;	/* mov: read, written */
		words[1] = random_store(index, &offset);
		/* Not the scratch register: writing it makes its value whole again (Limitations). */
		words[2] = scratch_register == 3 ? 0xe28aa001 : 0xe2833001;	/* add r10 or r3, #1 */
		words[3] = MARKER;
		random_state(&cpu, base);
		cpu.r[INDEX] = index;
		cpu.r[BASE] = host - TEST_HOST_BASE + base - offset;
		cpu.r[PC] = base + CODE;
		start = cpu;
		edge_forget(edge);
		for (int j = 0; j < 4; j++)
			put_word(edge->memory, CODE + 4 * j, words[j]);
		kept = *edge->executor.state;
		stop = edge_run(edge, &cpu, 1000);
		if (stop == OFFLOAD_WILD_STORE)
			late++;
		/* It wrote what was there. */
		if (stop == OFFLOAD_UNDEFINED && host - TEST_STATE < STATE_WINDOW_BYTES &&
		    cpu.r[scratch_register] == start.r[scratch_register]) {
			equal++;
			stop = OFFLOAD_WILD_STORE;
		}
		if (stop == OFFLOAD_UNDEFINED && host == scratch_value && stores_twins(words[1], &start)) {
			twins++;
			stop = OFFLOAD_WILD_STORE;
		}
		if (is_noticed(stop) &&
		    !memcmp((uint8_t *)&kept + STATE_WINDOW_BYTES,
			    (uint8_t *)edge->executor.state + STATE_WINDOW_BYTES,
			    offsetof(struct offload_state, control) - STATE_WINDOW_BYTES) &&
		    !memcmp(kept.tlb, edge->executor.state->tlb, sizeof(kept.tlb)))
			continue;
		fprintf(stderr, "store %u: %08x to host address %x, world %d, stop %d, scratch %08x was %08x\n",
			i, words[1], host, world, stop, cpu.r[scratch_register],
			start.r[scratch_register]);
		bad++;
	}
	printf("wild stores: %u, %u noticed by the executor's next call, %u of an equal value, "
	       "%u of two equal words to both copies, %u not noticed\n",
	       wanted, late, equal, twins, bad);
	return bad ? 1 : 0;
}
