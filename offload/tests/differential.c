// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Compares translated code with an oracle: Unicorn's Cortex-A15 runs the guest's instructions,
 * Unicorn's Cortex-M3 what the translator made of them; registers, flags and memory must agree.
 *
 *   differential instructions COUNT SEED    each line of the table, so many encodings and states
 *   differential blocks COUNT SEED          random blocks of 1 to 40 instructions
 *   differential words WORD…                one after the other, from one random state
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge.h"

static uint64_t dice_state;

static uint32_t dice(void)
{
	/* xorshift64* */
	dice_state ^= dice_state >> 12;
	dice_state ^= dice_state << 25;
	dice_state ^= dice_state >> 27;
	return (dice_state * 0x2545f4914f6cdd1dull) >> 32;
}

static uint32_t below(uint32_t limit)
{
	return dice() % limit;
}

struct oracle {
	uc_engine *core;
	uint8_t *memory;
	uint32_t base;
};

static const int ids[16] = {
	UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_R4, UC_ARM_REG_R5,
	UC_ARM_REG_R6, UC_ARM_REG_R7, UC_ARM_REG_R8, UC_ARM_REG_R9, UC_ARM_REG_R10, UC_ARM_REG_R11,
	UC_ARM_REG_R12, UC_ARM_REG_SP, UC_ARM_REG_LR, UC_ARM_REG_PC,
};

static const uint32_t marker = 0xe7ffffff;	/* udf */

static int oracle_interrupt;

static void on_oracle_interrupt(uc_engine *core, uint32_t number, void *user)
{
	(void)user;
	oracle_interrupt = number;
	uc_emu_stop(core);
}

static struct oracle oracle_new(uint32_t base)
{
	struct oracle oracle = { .base = base };
	uc_hook hook;

	oracle.memory = aligned_alloc(4096, TEST_MEMORY);
	uc_open(UC_ARCH_ARM, UC_MODE_ARM, &oracle.core);
	uc_ctl_set_cpu_model(oracle.core, UC_CPU_ARM_CORTEX_A15);
	uc_mem_map_ptr(oracle.core, base, TEST_TEXT, UC_PROT_READ | UC_PROT_WRITE, oracle.memory);
	uc_mem_map_ptr(oracle.core, base + TEST_TEXT, TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_EXEC,
		       oracle.memory + TEST_TEXT);
	uc_mem_map_ptr(oracle.core, base + TEST_TEXT + TEST_TEXT_BYTES,
		       TEST_MEMORY - TEST_TEXT - TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_WRITE,
		       oracle.memory + TEST_TEXT + TEST_TEXT_BYTES);
	uc_hook_add(oracle.core, &hook, UC_HOOK_INTR, on_oracle_interrupt, NULL, 1, 0);
	return oracle;
}

/* Runs until an instruction that stops; true: it stopped by the marker. */
static bool oracle_run(struct oracle *oracle, struct offload_cpu *cpu, uint32_t count)
{
	uint32_t status = cpu->flags | cpu->ge | cpu->control | 0xc0;
	uc_err error;

	for (int i = 0; i < 15; i++)
		uc_reg_write(oracle->core, ids[i], &cpu->r[i]);
	uc_reg_write(oracle->core, UC_ARM_REG_CPSR, &status);
	oracle_interrupt = -1;
	uc_ctl_remove_cache(oracle->core, oracle->base + TEST_TEXT,
			    oracle->base + TEST_TEXT + TEST_TEXT_BYTES - 1);
	error = uc_emu_start(oracle->core, cpu->r[15], 0xfffffffc, 0, count);
	for (int i = 0; i < 16; i++)
		uc_reg_read(oracle->core, ids[i], &cpu->r[i]);
	uc_reg_read(oracle->core, UC_ARM_REG_CPSR, &status);
	cpu->flags = status & 0xf8000000;
	cpu->ge = status & 0xf0000;
	if (status & 0x20)
		cpu->r[15] |= 1;
	/* At the marker it stops with an exception of its own. */
	memcpy(&status, oracle->memory + ((cpu->r[15] - oracle->base) & (TEST_MEMORY - 4)), 4);
	return !error || (cpu->r[15] - oracle->base < TEST_MEMORY && status == marker);
}


static void put_word(uint8_t *memory, uint32_t offset, uint32_t word)
{
	memcpy(memory + offset, &word, 4);
}

/* A word of a line of the table, with fields at random. */
static uint32_t random_word(enum a32_op op)
{
	const struct a32_line *line = &a32_table[op];
	uint32_t word = (dice() & ~line->mask) | line->value;

	if (line->pattern[0] == 'c')
		word = (word & 0x0fffffff) | (below(2) ? COND_AL : below(14)) << 28;
	return word;
}

static bool is_transfer(enum a32_op op)
{
	switch (a32_table[op].family) {
	case SINGLE:
	case EXTRA:
	case DOUBLE:
	case MULTIPLE:
	case EXCLUSIVE:
	case SWAP:
		return true;
	default:
		return false;
	}
}

/*
 * What the comparison leaves out beside UNPREDICTABLE words. docs/offload.md names them.
 */
static bool is_excluded(enum a32_op op, uint32_t word)
{
	uint32_t family = a32_table[op].family;

	if (family == REFUSED || family == COPROCESSOR || family == STATUS || family == HINT)
		return true;
	/* Old and new processors differ in what a stored PC is; it is +8 here and there. */
	if (op == A32_BX && field_m(word) == PC)
		return true;
	/* movs pc, …: a return from an exception. */
	if (family <= DATA_SHIFTED && field_set_flags(word) && field_d(word) == PC &&
	    !opcode_compares(field_opcode(word)))
		return true;
	/* The host's SP is always a multiple of four. */
	if (bit(a32_writes(op, word), SP) && !(family == MULTIPLE && field_n(word) == SP &&
					       !bit(word & 0xffff, SP)) && !(is_transfer(op) && field_n(word) == SP &&
					       field_d(word) != SP && family != MULTIPLE))
		return true;
	return false;
}

static void random_state(struct offload_cpu *cpu, uint32_t base)
{
	memset(cpu, 0, sizeof(*cpu));
	for (int i = 0; i < 15; i++) {
		switch (below(6)) {
		case 0:
			cpu->r[i] = base + TEST_DATA + below(0x1000) * 4;
			break;
		case 1:
			cpu->r[i] = below(40);
			break;
		case 2:
			/* Not the executor's own return addresses. */
			cpu->r[i] = -below(40);
			if (cpu->r[i] == RETURN_ADDRESS || cpu->r[i] == INTERRUPT_RETURN_ADDRESS)
				cpu->r[i]++;
			break;
		case 3:
			cpu->r[i] = 0x80000000u + below(3) - 1;
			break;
		default:
			cpu->r[i] = dice();
		}
	}
	cpu->r[SP] = base + TEST_STACK - 0x100 - below(64) * 8;
	cpu->flags = dice() & 0xf8000000;
	cpu->ge = dice() & 0xf0000;
	cpu->control = 0x13;
	cpu->exclusive = 1;
}

/* Makes the addresses of a load or store likely to be good ones. */
static void aim(struct offload_cpu *cpu, enum a32_op op, uint32_t word, uint32_t base)
{
	uint32_t n = field_n(word), m = field_m(word);

	if (!is_transfer(op) || n == PC)
		return;
	if (n != SP)
		cpu->r[n] = base + TEST_DATA + 0x2000 + below(0x400) * 8;
	if (op >= A32_STRT_reg && op <= A32_LDRB_reg && m != n && m != PC)
		cpu->r[m] = below(0x400) & ~3u;
	if (a32_table[op].family >= EXTRA && a32_table[op].family <= DOUBLE && !bit(word, 22) &&
	    m != n && m != PC)
		cpu->r[m] = below(0x80) * 8;
}

static void randomise_memory(uint8_t *memory)
{
	for (uint32_t i = 0; i < 0x8000; i += 4)
		put_word(memory, TEST_DATA + i, below(4) ? dice() : below(100));
	for (uint32_t i = 0; i < 0x1000; i += 4)
		put_word(memory, TEST_STACK - 0x800 + i, dice());
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
	fprintf(stderr, "\n  flags were %08x: oracle %08x, translated %08x; GE %x %x\n",
		start->flags, a->flags, b->flags, a->ge, b->ge);
}

/* Below the guest's stack pointer memory is nobody's. */
static bool same_memory(const struct oracle *oracle, struct edge *edge, uint32_t sp)
{
	uint32_t offset = sp - oracle->base;

	if (memcmp(oracle->memory + TEST_DATA - 0x4000, edge->memory + TEST_DATA - 0x4000, 0x10000))
		return false;
	if (offset > TEST_STACK + 0x800 || offset < TEST_STACK - 0x2000)
		return true;
	return !memcmp(oracle->memory + offset, edge->memory + offset, TEST_STACK + 0x800 - offset);
}

static bool same(const struct offload_cpu *a, const struct offload_cpu *b)
{
	return !memcmp(a->r, b->r, sizeof(a->r)) && a->flags == b->flags && a->ge == b->ge;
}

/* Runs both from one state; false: they differ. */
static bool compare(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start,
		    const uint32_t *words, uint32_t count, uint32_t most)
{
	struct offload_cpu one = *start, two = *start;
	enum offload_stop stop;
	char text[80];
	bool fine;

	edge_forget(edge);
	fine = oracle_run(oracle, &one, most);
	stop = edge_run(edge, &two, 1000);
	/* It hit upon the executor's own return address. */
	if (stop == OFFLOAD_RETURNED)
		return true;
	if (!fine) {
		/* A fault there must be a stop here, with registers as they were. */
		fine = stop == OFFLOAD_UNMAPPED_READ || stop == OFFLOAD_UNMAPPED_WRITE ||
			stop == OFFLOAD_UNMAPPED_CODE || stop == OFFLOAD_CODE_WRITTEN ||
			stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_STACK_OVERFLOW ||
			stop == OFFLOAD_REFUSED || stop == OFFLOAD_UNPREDICTABLE;
		if (fine)
			return true;
	} else if (stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_REFUSED ||
		   stop == OFFLOAD_UNPREDICTABLE) {
		/* The oracle does not mind; a stop is never a wrong result. */
		return true;
	} else if (one.r[PC] & 1) {
		return stop == OFFLOAD_REFUSED;
	}
	one.r[PC] &= ~1u;
	if (fine && same(&one, &two) && same_memory(oracle, edge, two.r[SP]))
		return true;
	for (uint32_t i = 0; i < count; i++) {
		a32_disassemble(words[i], start->r[PC] + 4 * i, text, sizeof(text));
		fprintf(stderr, "  %08x  %08x  %s\n", start->r[PC] + 4 * i, words[i], text);
	}
	fprintf(stderr, "  translated ended with stop %d\n", stop);
	describe("they differ:", &one, &two, start);
	return false;
}

/* Both get the same memory and code. */
static void load_code(struct oracle *oracle, struct edge *edge, const uint32_t *words,
		      uint32_t count, uint32_t offset)
{
	for (uint32_t i = 0; i < TEST_TEXT_BYTES; i += 4)
		put_word(oracle->memory, TEST_TEXT + i, marker);
	for (uint32_t i = 0; i < count; i++)
		put_word(oracle->memory, offset + 4 * i, words[i]);
	randomise_memory(oracle->memory);
	memcpy(edge->memory, oracle->memory, TEST_MEMORY);
}

static const struct {
	uint32_t base, scratch;
} worlds[] = {
	{ 0xc0000000, 11 }, { 0x21000000, 11 }, { 0xc0000000, 10 }, { 0x21000000, 7 },
	{ 0xc0000000, 12 }, { 0x21000000, 0 }, { 0xc0000000, 3 },
};
enum { WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

static struct edge *edges[WORLDS];
static struct oracle oracles[WORLDS];

static int check_instructions(uint32_t wanted, uint32_t options)
{
	uint64_t total = 0, bad = 0;
	uint32_t lines = 0;

	for (int world = 0; world < WORLDS; world++) {
		edges[world] = edge_new(worlds[world].base, worlds[world].scratch, options, TEST_CACHE);
		oracles[world] = oracle_new(worlds[world].base);
		memset(oracles[world].memory, 0, TEST_MEMORY);
		load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
	}
	for (int op = 0; op < A32_COUNT; op++) {
		uint32_t done = 0, bad_here = 0, tries = 0;

		while (done < wanted && tries++ < 100 * wanted && bad_here < 3) {
			int world = below(4) ? below(2) : below(WORLDS);
			uint32_t base = worlds[world].base, word = random_word(op);
			struct offload_cpu cpu;

			if (a32_decode(word) != (enum a32_op)op || a32_unpredictable(op, word) ||
			    is_excluded(op, word))
				continue;
			random_state(&cpu, base);
			aim(&cpu, op, word, base);
			cpu.r[PC] = base + TEST_TEXT + 0x4000;
			if (done % 16 == 0)
				load_code(&oracles[world], edges[world], &word, 1, TEST_TEXT + 0x4000);
			put_word(oracles[world].memory, TEST_TEXT + 0x4000, word);
			memcpy(edges[world]->memory, oracles[world].memory, TEST_MEMORY);
			if (!compare(&oracles[world], edges[world], &cpu, &word, 1, 1)) {
				bad_here++;
				memcpy(oracles[world].memory, edges[world]->memory, TEST_MEMORY);
			}
			done++;
		}
		if (done)
			lines++;
		if (done && done < wanted && !bad_here)
			fprintf(stderr, "%s: only %u encodings\n", a32_table[op].name, done);
		if (bad_here)
			fprintf(stderr, "%s: %u bad\n", a32_table[op].name, bad_here);
		total += done;
		bad += bad_here;
	}
	printf("instructions: %u lines, %llu encodings and states, %llu differences\n", lines,
	       (unsigned long long)total, (unsigned long long)bad);
	return bad ? 1 : 0;
}

/* --- blocks --- */

enum { BLOCK_MOST = 40, COUNTER = 8, BASE_ONE = 6, BASE_TWO = 9 };

/*
 * Whether it reads what is below SP, or makes it part of the stack without writing it: memory that
 * an interrupt may use at any time, and the translator does.
 */
static bool exposes_stack(enum a32_op op, uint32_t word)
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

/* One instruction of a block; branches go forward within it. */
static uint32_t block_word(uint32_t index, uint32_t count)
{
	for (;;) {
		enum a32_op op = below(A32_COUNT);
		uint32_t word, writes, n = 0;

		if (below(8) == 0)
			op = below(5) ? A32_B : A32_BL;
		else if (below(3) == 0)
			op = below(2) ? A32_LDR_imm + below(3) : A32_STMDA + below(8);
		word = random_word(op);
		if (op == A32_B || op == A32_BL) {
			uint32_t to = index + 1 + below(count - index);

			return (word & 0xff000000) | ((to - index - 2) & 0xffffff);
		}
		if (is_transfer(op)) {
			n = below(3) == 0 ? SP : below(2) ? BASE_ONE : BASE_TWO;
			word = (word & ~0x000f0000u) | n << 16;
			if (a32_table[op].family == SINGLE && !bit(word, 25))
				word &= ~0xe00u;	/* near */
			if (a32_table[op].family == SINGLE && bit(word, 25))
				continue;
			if (a32_table[op].family >= EXTRA && a32_table[op].family <= DOUBLE &&
			    !bit(word, 22))
				continue;
			if (a32_table[op].family == DOUBLE)
				word &= ~7u;
			/* Bases stay aligned. */
			if (a32_table[op].family != MULTIPLE && (!bit(word, 24) || bit(word, 21)))
				word &= a32_table[op].family == SINGLE ? ~7u : ~7u;
		}
		if (a32_decode(word) != op || a32_unpredictable(op, word) || is_excluded(op, word))
			continue;
		if (a32_is_branch(op, word))
			continue;
		if (is_transfer(op) && n == SP && exposes_stack(op, word))
			continue;
		/* A store of another size or place than its load's may fail or not. */
		if (a32_table[op].family == EXCLUSIVE && !bit(word, 20))
			continue;
		writes = a32_writes(op, word);
		if (is_transfer(op))
			writes &= ~(1u << field_n(word));
		if (a32_table[op].family == MULTIPLE && bit(word, 20))
			writes |= word & 0xffff;
		else if (is_transfer(op))
			writes |= bit(a32_writes(op, word & ~0x00200000u), field_d(word)) << field_d(word);
		if (writes & (1u << COUNTER | 1u << BASE_ONE | 1u << BASE_TWO))
			continue;
		return word;
	}
}

/* Shows the shortest beginning of a block that differs. */
static void shorten(struct oracle *oracle, struct edge *edge, const struct offload_cpu *cpu,
		    const uint32_t *words, uint32_t length)
{
	uint32_t offset = cpu->r[PC] - oracle->base;

	for (uint32_t count = 1; count < length; count++) {
		randomise_memory(oracle->memory);
		for (uint32_t i = 0; i < length; i++)
			put_word(oracle->memory, offset + 4 * i, i < count ? words[i] : marker);
		memcpy(edge->memory, oracle->memory, TEST_MEMORY);
		fprintf(stderr, "shortened to %u:\n", count);
		if (!compare(oracle, edge, cpu, words, count, 5000))
			return;
	}
}

static int check_blocks(uint32_t wanted, uint32_t options, uint32_t cache_size)
{
	uint32_t bad = 0;
	uint64_t instructions = 0;

	for (int world = 0; world < WORLDS; world++) {
		edges[world] = edge_new(worlds[world].base, worlds[world].scratch, options, cache_size);
		oracles[world] = oracle_new(worlds[world].base);
		memset(oracles[world].memory, 0, TEST_MEMORY);
		load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
	}
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		uint32_t count = 1 + below(BLOCK_MOST), words[BLOCK_MOST + 2], base, length = count;
		int world = below(3) ? below(2) : below(WORLDS);
		struct offload_cpu cpu;

		base = worlds[world].base;
		for (uint32_t j = 0; j < count; j++)
			words[j] = j ? block_word(j, count) : 0xf57ff01f;	/* clrex */
		/* A third of them are loops. */
		if (below(3) == 0) {
			words[length++] = 0xe2500001 | COUNTER << 16 | COUNTER << 12;
			words[length] = 0x1a000000 | ((0u - length - 2) & 0xffffff);
			length++;
		}
		random_state(&cpu, base);
		cpu.r[BASE_ONE] = base + TEST_DATA + 0x2000 + 8 * below(0x100);
		cpu.r[BASE_TWO] = base + TEST_DATA + 0x4000 + 8 * below(0x100);
		cpu.r[COUNTER] = 1 + below(4);
		cpu.r[PC] = base + TEST_TEXT + 0x4000 + 4 * below(16);
		if (i % 64 < WORLDS) {
			randomise_memory(oracles[world].memory);
			for (uint32_t j = 0; j < TEST_TEXT_BYTES; j += 4)
				put_word(oracles[world].memory, TEST_TEXT + j, marker);
		}
		for (uint32_t j = 0; j < BLOCK_MOST + 32; j++)
			put_word(oracles[world].memory, TEST_TEXT + 0x4000 + 4 * j, marker);
		for (uint32_t j = 0; j < length; j++)
			put_word(oracles[world].memory, cpu.r[PC] - base + 4 * j, words[j]);
		memcpy(edges[world]->memory, oracles[world].memory, TEST_MEMORY);
		instructions += length;
		if (!compare(&oracles[world], edges[world], &cpu, words, length, 5000)) {
			shorten(&oracles[world], edges[world], &cpu, words, length);
			fprintf(stderr, "block %u, base %x, scratch r%u\n", i, base,
				worlds[world].scratch);
			bad++;
		}
	}
	printf("blocks: %u of %llu instructions, %u differences\n", wanted,
	       (unsigned long long)instructions, bad);
	return bad ? 1 : 0;
}

int main(int count, char **arguments)
{
	uint32_t wanted, options = OPTIONS_ALL, cache = TEST_CACHE;

	if (count < 3)
		return 2;
	wanted = strtoul(arguments[2], NULL, 0);
	dice_state = count > 3 ? strtoull(arguments[3], NULL, 0) : 1;
	dice_state = dice_state * 0x9e3779b97f4a7c15ull + 1;
	if (count > 4)
		options = strtoul(arguments[4], NULL, 0);
	if (count > 5)
		cache = strtoul(arguments[5], NULL, 0);
	if (!strcmp(arguments[1], "instructions"))
		return check_instructions(wanted, options);
	return check_blocks(wanted, options, cache);
}
