// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Compares one run of translated code with the oracle's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "differential.h"

/*
 * Whether a guest address, taken for a linear-mapped one, is the executor's own memory in the
 * host: translated code does not see that nothing is there (docs/explanation/offload.md, Limits).
 */
static bool is_executors_own(const struct oracle *oracle, uint32_t address)
{
	uint32_t host = address - oracle->base + TEST_HOST_BASE;

	return host < 0x400000 || host - TEST_CACHE_BASE < TEST_CACHE;
}

/*
 * Whether the oracle has branched to where there is no code, and the target table's entry for that T32 address is
 * the one of an address in memory: an entry is at twice the distance (docs/explanation/offload.md, Limitations).
 */
static bool is_aliased_branch(const struct oracle *oracle, const struct edge *edge, const struct offload_cpu *end)
{
	return edge->job.layout.thumb && (edge->job.layout.options & OPTION_TABLE) && (end->control & 0x20) &&
		end->r[PC] - oracle->base - 0x80000000 < TEST_MEMORY;
}

static void describe(const char *what, const struct offload_cpu *a, const struct offload_cpu *b,
		     const struct offload_cpu *start)
{
	fprintf(stderr, "%s\n", what);
	for (int i = 0; i < 16; i++)
		if (a->r[i] != b->r[i])
			fprintf(stderr, "  r%-2d was %08x: oracle %08x, translated %08x\n", i, start->r[i],
				a->r[i], b->r[i]);
	for (int i = 0; i < 16; i++)
		fprintf(stderr, "%s%08x", i ? " " : "  start ", start->r[i]);
	fprintf(stderr, "\n  flags were %08x: oracle %08x, translated %08x; GE %x %x, control %x %x\n",
		start->flags, a->flags, b->flags, a->ge, b->ge, a->control, b->control);
}

/* What registers point to and the stack, and their bytes before a block ran on the oracle. */
enum { DATA_BEGIN = TEST_DATA - 0x4000, DATA_BYTES = 0x10000 };
enum { STACK_BEGIN = TEST_STACK - 0x2000, STACK_BYTES = 0x2800 };
static uint8_t data_before[DATA_BYTES], stack_before[STACK_BYTES];

/*
 * Memory below the guest's stack pointer is undefined: an interrupt may write there, and translated code keeps
 * registers there. That is so wherever it points to, as a block may load it from memory: what is just below it, then or
 * at the end, and the guest itself did not write.
 */
static bool excused(const struct oracle *oracle, uint32_t at, uint8_t before, uint32_t sp)
{
	uint32_t address = oracle->base + at;

	if (sp - 1 - address < BELOW_STACK_BYTES)
		return true;
	if (oracle->memory[at] != before)
		return false;
	for (uint32_t i = 0; i < oracle_stack_count; i++)
		if (oracle_stacks[i] - 1 - address < BELOW_STACK_BYTES)
			return true;
	return false;
}

static bool same_memory(const struct oracle *oracle, struct edge *edge, uint32_t sp)
{
	uint32_t offset = sp - oracle->base;

	if (memcmp(oracle->memory + DATA_BEGIN, edge->memory + DATA_BEGIN, DATA_BYTES))
		for (uint32_t i = DATA_BEGIN; i < DATA_BEGIN + DATA_BYTES; i++)
			if (oracle->memory[i] != edge->memory[i] && !excused(oracle, i, data_before[i - DATA_BEGIN], sp))
				return false;
	if (offset - STACK_BEGIN > STACK_BYTES)
		return true;
	for (uint32_t i = offset; i < STACK_BEGIN + STACK_BYTES; i++)
		if (oracle->memory[i] != edge->memory[i] && !excused(oracle, i, stack_before[i - STACK_BEGIN], sp))
			return false;
	return true;
}

static bool same(const struct offload_cpu *a, const struct offload_cpu *b)
{
	return !memcmp(a->r, b->r, sizeof(a->r)) && a->flags == b->flags && a->ge == b->ge &&
		!((a->control ^ b->control) & 0x3ff);
}

static void show_code(const struct edge *edge, const struct offload_cpu *start, uint32_t bytes)
{
	uint32_t at = start->r[PC] | (start->control >> 5 & 1), end = at + bytes, it = start->it;

	while (at < end) {
		struct instruction in;
		char text[80];

		if (!translator_fetch(&edge->executor.translator, at, it, &in))
			break;
		instruction_disassemble(&in, text, sizeof(text));
		fprintf(stderr, "  %08x  %08x  %s\n", at & ~1u, in.raw, text);
		if (in.op == A32_IT)
			it = in.value;
		else
			it = (it & 7) ? (it & 0xe0) | (it << 1 & 0x1f) : 0;
		at = in.next;
	}
}

/* So many instructions that a loop that moves a pointer has left memory. */
enum { GOES_ROUND = TEST_MEMORY };

/*
 * To the end. A result of one instruction that is an address in code: translated code goes on there. A block has
 * instructions enough to do so by itself, unless it goes around in itself.
 */
static bool run_oracle(struct oracle *oracle, struct offload_cpu *cpu, uint32_t max_instructions)
{
	bool fine = oracle_run(oracle, cpu, max_instructions);

	oracle_ran_out &= cpu->r[PC] - oracle->base - TEST_TEXT < TEST_TEXT_BYTES;
	return fine && oracle_ran_out ? oracle_run(oracle, cpu, GOES_ROUND) : fine;
}

uint32_t handed_back;
bool interrupting;

/* Where the executor hands back, the big core goes on: with its registers and its memory. */
static bool go_on_with_big_core(struct oracle *oracle, struct edge *edge, struct offload_cpu *cpu,
				uint32_t max_instructions)
{
	static uint8_t kept[TEST_MEMORY];
	bool fine;

	handed_back++;
	memcpy(kept, oracle->memory, TEST_MEMORY);
	memcpy(oracle->memory, edge->memory, TEST_MEMORY);
	fine = run_oracle(oracle, cpu, max_instructions);
	memcpy(edge->memory, oracle->memory, TEST_MEMORY);
	memcpy(oracle->memory, kept, TEST_MEMORY);
	return fine;
}

void hand_back_at(struct edge *edge, uint32_t address)
{
	edge->job.natives = address != 0;
	edge->job.native[0] = (struct offload_native){ address, NATIVE_FALLBACK };
}

/* Whether the instruction that stopped it accesses more than one word. */
static bool accesses_many(const struct edge *edge, const struct offload_cpu *cpu)
{
	struct instruction in;

	return !translator_fetch(&edge->executor.translator, cpu->r[PC] | (cpu->control >> 5 & 1),
				 cpu->it, &in) || in.op == A32_UNDEFINED ||
		a32_table[in.op].family == MULTIPLE || a32_table[in.op].family == DOUBLE;
}

bool compare(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start,
	     uint32_t bytes, uint32_t max_instructions)
{
	struct offload_cpu one = *start, two = *start;
	enum offload_stop stop;
	uint32_t missed;
	bool fine;

	if (keeping)
		edge_keep(edge);
	else
		edge_forget(edge);
	oracle_stack_count = 0;
	oracle_exposed = false;
	memcpy(data_before, oracle->memory + DATA_BEGIN, DATA_BYTES);
	memcpy(stack_before, oracle->memory + STACK_BEGIN, STACK_BYTES);
	fine = run_oracle(oracle, &one, max_instructions);
	missed = oracle_missed;
	edge->interrupt_in = interrupting ? 1 + below(4 * bytes + 32) : 0;
	stop = edge_run(edge, &two, 1000);
	if (keeping)
		edge_leave(edge);
	/* Around in itself, on both. */
	if (fine && stop == OFFLOAD_BUDGET && oracle_ran_out)
		return true;
	/* An address of 16 bits, say, is the executor's in the host: translated code reads there. */
	if (!fine && (is_executors_own(oracle, missed) || is_aliased_branch(oracle, edge, &one)))
		return true;
	if (stop == OFFLOAD_FALLBACK && go_on_with_big_core(oracle, edge, &two, max_instructions) != fine) {
		show_code(edge, start, bytes);
		fprintf(stderr, "  handed back at %08x\n", edge->job.native[0].address);
		describe("one of them faults behind the hand-back:", &one, &two, start);
		return false;
	}
	/* Both fault there. */
	if (stop == OFFLOAD_FALLBACK && !fine)
		return true;
	/* It hit upon the executor's own return address. */
	if (stop == OFFLOAD_RETURNED)
		return true;
	if (!fine) {
		/* A fault there must be a stop here, with registers as they were. */
		fine = stop == OFFLOAD_UNMAPPED_READ || stop == OFFLOAD_UNMAPPED_WRITE ||
			stop == OFFLOAD_UNMAPPED_CODE || stop == OFFLOAD_CODE_WRITTEN ||
			stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_STACK_OVERFLOW ||
			stop == OFFLOAD_UNPREDICTABLE ||
			/* Only where a branch went into the instruction itself: a half of it, in Thumb. */
			(stop == OFFLOAD_UNDEFINED && oracle_undefined && same(&one, &two));
		/* Of several words some may have been accessed, and others may fault there. */
		fine = fine && (stop > OFFLOAD_UNMAPPED_WRITE || stop < OFFLOAD_UNMAPPED_READ ||
				accesses_many(edge, &two) || (same(&one, &two)));
		/* Behind a branch to nowhere, all but the place are the guest's. */
		if (stop == OFFLOAD_UNMAPPED_CODE)
			fine = !memcmp(one.r, two.r, PC * sizeof(one.r[0]));
		if (fine)
			return true;
	} else if (stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_UNPREDICTABLE) {
		/* The oracle does not mind; a stop is never a wrong result. */
		return true;
	}
	/* The marker's upper half, which the oracle has not executed yet. */
	if ((one.control & 0x20) && half_at(oracle, one.r[PC]) == MARKER >> 16)
		one.r[PC] -= 2;
	if (fine && same(&one, &two) && same_memory(oracle, edge, two.r[SP]))
		return true;
	/* An interrupt writes there at any time, and translated code keeps registers there. */
	if (oracle_exposed)
		return true;
	for (uint32_t i = 0; i < TEST_MEMORY; i++)
		if (oracle->memory[i] != edge->memory[i]) {
			fprintf(stderr, "  memory differs at %08x: %02x, %02x translated, %02x before\n", oracle->base + i, oracle->memory[i], edge->memory[i], i >= DATA_BEGIN && i < DATA_BEGIN + DATA_BYTES ? data_before[i - DATA_BEGIN] : 0);
			break;
		}
	show_code(edge, start, bytes);
	fprintf(stderr, "  translated ended with stop %d\n", stop);
	describe("they differ:", &one, &two, start);
	return false;
}

/* Both get the same memory and code. */
void load_code(struct oracle *oracle, struct edge *edge, const uint32_t *words,
		      uint32_t count, uint32_t offset)
{
	for (uint32_t i = 0; i < TEST_TEXT_BYTES; i += 4)
		put_word(oracle->memory, TEST_TEXT + i, MARKER);
	for (uint32_t i = 0; i < count; i++)
		put_word(oracle->memory, offset + 4 * i, words[i]);
	randomise_memory(oracle->memory);
	memcpy(edge->memory, oracle->memory, TEST_MEMORY);
}

const struct world worlds[] = {
	{ 0xc0000000, 9, false }, { 0x21000000, 9, false }, { 0xc0000000, 11, false },
	{ 0x21000000, 7, false }, { 0xc0000000, 12, false }, { 0x21000000, 0, false },
	{ 0xc0000000, 3, false }, { 0xc0000000, 11, true },
};

struct edge *edges[WORLDS];

struct oracle oracles[WORLDS];

/*
 * Whether it reads what is below SP, or makes it part of the stack without writing it: memory that
 * an interrupt may use at any time, and the translator does.
 */
bool exposes_stack(enum a32_op op, uint32_t word)
{
	bool up = bit(word, 23), before = bit(word, 24), moves = !before || bit(word, 21);
	bool load = a32_table[op].family == DOUBLE ? !bit(word, 5) : bit(word, 20);

	switch (a32_table[op].family) {
	case EXCLUSIVE:
	case SWAP:
		return false;
	case MULTIPLE:
		return !up && (load || !before || !bit(word, 21));
	default:
		return moves ? !up || !load || before : !up;
	}
}

void make_worlds(bool thumb, uint32_t options, uint32_t cache_size)
{
	for (int world = 0; world < WORLDS; world++) {
		if (edges[world]) {
			edge_free(edges[world]);
			uc_close(oracles[world].core);
			free(oracles[world].memory);
		}
		edges[world] = edge_new(worlds[world].base, worlds[world].scratch,
					thumb != worlds[world].other_table, options, cache_size);
		oracles[world] = oracle_new(worlds[world].base);
		memset(oracles[world].memory, 0, TEST_MEMORY);
		load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
	}
}
