// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Random A32 instructions and blocks. */
#include <stdio.h>
#include <string.h>

#include "differential.h"

/* A word of a line of the table, with fields at random. */
static uint32_t random_word(enum a32_op op, uint32_t scratch)
{
	const struct a32_line *line = &a32_table[op];
	uint32_t word = (dice() & ~line->mask) | line->value;

	word = favour_special_registers(line->pattern, word, scratch);
	if (line->pattern[0] == 'c')
		word = (word & 0x0fffffff) | (below(2) ? COND_AL : below(14)) << 28;
	return word;
}

/*
 * What the comparison leaves out beside UNPREDICTABLE words. docs/explanation/offload.md names them.
 */
static bool is_excluded(enum a32_op op, uint32_t word)
{
	uint32_t family = a32_table[op].family;
	struct instruction in;

	a32_expand(word, 0, &in);

	if (family == REFUSED || family == COPROCESSOR || family == HINT)
		return true;
	/* Another mode; a status from SP. */
	if (family == STATUS && (op != A32_MRS && op != A32_MSR_reg && op != A32_CPS))
		return true;
	if (op == A32_CPS && bit(word, 17))
		return true;
	if (op == A32_MSR_reg && (field_m(word) == SP || field_m(word) == PC))
		return true;
	/* Old and new processors differ in what a stored PC is; it is +8 here and there. */
	if (op == A32_BX && field_m(word) == PC)
		return true;
	/* movs pc, …: a return from an exception. */
	if (family <= DATA_SHIFTED && field_set_flags(word) && field_d(word) == PC &&
	    !opcode_compares(field_opcode(word)))
		return true;
	/* The host's SP is always a multiple of four. */
	if (bit(instruction_writes(&in), SP) && !(family == MULTIPLE && field_n(word) == SP &&
					       !bit(word & 0xffff, SP)) && !(is_transfer(op) && field_n(word) == SP &&
					       field_d(word) != SP && family != MULTIPLE))
		return true;
	return false;
}

int check_instructions(uint32_t wanted, uint32_t options)
{
	const uint32_t with_stack = OPTION_FLAGS | OPTION_INTERRUPTS;
	uint64_t total = 0, bad = 0;
	uint32_t lines = 0;

	make_worlds(false, options, TEST_CACHE);
	for (int op = 0; op < A32_COUNT; op++) {
		uint32_t done = 0, bad_here = 0, tries = 0;

		while (done < wanted && tries++ < 100 * wanted && bad_here < 3) {
			int world = below(4) ? below(2) : below(WORLDS);
			uint32_t base = worlds[world].base, word = random_word(op, worlds[world].scratch);
			struct offload_cpu cpu;

			if (a32_decode(word) != (enum a32_op)op || a32_unpredictable(op, word) ||
			    is_excluded(op, word))
				continue;
			/* Translated code uses memory below SP then. */
			if ((options & with_stack) != with_stack && is_transfer(op) &&
			    field_n(word) == SP && exposes_stack(op, word))
				continue;
			random_state(&cpu, base);
			aim(&cpu, op, word, base);
			cpu.r[PC] = base + TEST_TEXT + 0x4000;
			if (done % 16 == 0)
				load_code(&oracles[world], edges[world], &word, 1, TEST_TEXT + 0x4000);
			if (a32_table[op].family == EXCLUSIVE) {
				oracle_clear_exclusive(&oracles[world]);
				edge_clear_exclusive(edges[world]);
			}
			put_word(oracles[world].memory, TEST_TEXT + 0x4000, word);
			memcpy(edges[world]->memory, oracles[world].memory, TEST_MEMORY);
			if (!compare(&oracles[world], edges[world], &cpu, 4, 1)) {
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

enum { BLOCK_MAX = 40, COUNTER = 8, THUMB_COUNTER = 4, BASE_ONE = 6, BASE_TWO = 9 };

static uint32_t loads(uint32_t word)
{
	struct instruction in;

	a32_expand(word & ~0x00200000u, 0, &in);
	return bit(instruction_writes(&in), field_d(word));
}

/* One instruction of a block; branches go forward within it. */
static uint32_t block_word(uint32_t index, uint32_t count)
{
	for (;;) {
		enum a32_op op = below(A32_COUNT);
		struct instruction in;
		uint32_t word, writes, n = 0;

		if (below(8) == 0)
			op = below(5) ? A32_B : A32_BL;
		else if (below(3) == 0)
			op = below(2) ? A32_LDR_imm + below(3) : A32_STMDA + below(8);
		/* A random mode is another one. */
		if (op == A32_MSR_reg)
			continue;
		word = random_word(op, worlds[below(WORLDS)].scratch);
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
		a32_expand(word, 0, &in);
		if (instruction_branches(&in))
			continue;
		if (is_transfer(op) && n == SP && exposes_stack(op, word))
			continue;
		/* A store of another size or place than its load's may fail or not. */
		if (a32_table[op].family == EXCLUSIVE && !bit(word, 20))
			continue;
		writes = instruction_writes(&in);
		if (is_transfer(op))
			writes &= ~(1u << field_n(word));
		if (a32_table[op].family == MULTIPLE && bit(word, 20))
			writes |= word & 0xffff;
		else if (is_transfer(op))
			writes |= loads(word) << field_d(word);
		if (writes & (1u << COUNTER | 1u << BASE_ONE | 1u << BASE_TWO))
			continue;
		return word;
	}
}

/* A register that blocks may write. */
static uint32_t block_register(void)
{
	uint32_t number;

	do
		number = below(SP);
	while (number == COUNTER || number == BASE_ONE || number == BASE_TWO);
	return number;
}

/* A load or store of one word whose base stays. */
static bool is_word(uint32_t word)
{
	enum a32_op op = a32_decode(word);

	return (op == A32_LDR_imm || op == A32_STR_imm) && bit(word, 24) && !bit(word, 21);
}

/* What compilers often put behind a word, and random words hardly ever are; 0: nothing. */
static uint32_t neighbour(uint32_t word)
{
	enum a32_op op = a32_decode(word);
	uint32_t offset = word & 0xfff, moved = bit(word, 23) == below(2) || offset < 4 ? offset + 4 : offset - 4;

	/* The next word in memory, or the one before. */
	if (is_word(word) && moved < 0x1000)
		return (word & 0xffff0000) | block_register() << 12 | moved;
	/* A constant's high half. */
	if (op == A32_MOVW || (op == A32_MOV_imm && !field_set_flags(word) && field_d(word) < SP))
		return 0xe3400000 | below(16) << 16 | field_d(word) << 12 | below(0x1000);
	/* A word at an address on the stack, which the instruction before has made. */
	if ((word & 0xffff0000) == 0xe28d0000 && below(4))
		return 0xe5800000 | below(2) << 20 | field_d(word) << 16 | block_register() << 12 | below(8) << 2;
	/* An address on the stack. */
	if (below(2))
		return (below(2) ? 0xe28d0000 : 0xe24d0000) | block_register() << 12 | below(16) << 2;
	return 0;
}

static uint32_t next_word(const uint32_t *words, uint32_t index, uint32_t count)
{
	uint32_t word = below(4) ? 0 : neighbour(words[index - 1]);

	/* Another instruction may stand between neighbouring words. */
	if (!word && index > 1 && below(2) && is_word(words[index - 2]))
		word = neighbour(words[index - 2]);
	return word ? word : block_word(index, count);
}

/* Shows the shortest beginning of a block that differs. */
static void shorten(struct oracle *oracle, struct edge *edge, const struct offload_cpu *cpu,
		    const uint32_t *words, uint32_t length)
{
	uint32_t offset = cpu->r[PC] - oracle->base;

	for (uint32_t count = 1; count < length; count++) {
		randomise_memory(oracle->memory);
		for (uint32_t i = 0; i < length; i++)
			put_word(oracle->memory, offset + 4 * i, i < count ? words[i] : MARKER);
		memcpy(edge->memory, oracle->memory, TEST_MEMORY);
		fprintf(stderr, "shortened to %u:\n", count);
		if (!compare(oracle, edge, cpu, 4 * count, 5000))
			return;
	}
}

/* Words of a random block, BLOCK_MAX + 2 at the most; how many is returned. */
static uint32_t random_block(uint32_t *words)
{
	uint32_t count = 1 + below(BLOCK_MAX), length = count;

	for (uint32_t j = 0; j < count; j++)
		words[j] = j ? next_word(words, j, count) : 0xf57ff01f;	/* clrex */
	/* A third of them are loops. */
	if (below(3) == 0) {
		words[length++] = 0xe2500001 | COUNTER << 16 | COUNTER << 12;
		words[length] = 0x1a000000 | ((0u - length - 2) & 0xffffff);
		length++;
	}
	return length;
}

void block_registers(struct offload_cpu *cpu, uint32_t base, bool thumb)
{
	cpu->r[BASE_ONE] = base + TEST_DATA + 0x2000 + 8 * below(0x100);
	cpu->r[BASE_TWO] = base + TEST_DATA + 0x4000 + 8 * below(0x100);
	/* Words need not be aligned. */
	if (below(8) == 0)
		cpu->r[below(2) ? BASE_ONE : BASE_TWO] += below(4);
	cpu->r[thumb ? THUMB_COUNTER : COUNTER] = 1 + below(4);
}

uint32_t put_block(uint8_t *memory, uint32_t offset)
{
	uint32_t words[BLOCK_MAX + 2], length = random_block(words);

	for (uint32_t j = 0; j < length; j++)
		put_word(memory, offset + 4 * j, words[j]);
	return 4 * below(length);
}

int check_blocks(uint32_t wanted, uint32_t options, uint32_t cache_size, bool hand_back)
{
	uint32_t bad = 0;
	uint64_t instructions = 0;

	make_worlds(false, options, cache_size);
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		uint32_t words[BLOCK_MAX + 2], base, length = random_block(words);
		int world = below(3) ? below(2) : below(WORLDS);
		struct offload_cpu cpu;

		base = worlds[world].base;
		random_state(&cpu, base);
		block_registers(&cpu, base, false);
		cpu.r[PC] = base + TEST_TEXT + 0x4000 + 4 * below(16);
		if (i % 64 < WORLDS) {
			randomise_memory(oracles[world].memory);
			for (uint32_t j = 0; j < TEST_TEXT_BYTES; j += 4)
				put_word(oracles[world].memory, TEST_TEXT + j, MARKER);
		}
		for (uint32_t j = 0; j < BLOCK_MAX + 32; j++)
			put_word(oracles[world].memory, TEST_TEXT + 0x4000 + 4 * j, MARKER);
		for (uint32_t j = 0; j < length; j++)
			put_word(oracles[world].memory, cpu.r[PC] - base + 4 * j, words[j]);
		memcpy(edges[world]->memory, oracles[world].memory, TEST_MEMORY);
		instructions += length;
		hand_back_at(edges[world], hand_back ? cpu.r[PC] + 4 * below(length) : 0);
		if (!compare_block(&oracles[world], edges[world], &cpu, 4 * length, 5000)) {
			shorten(&oracles[world], edges[world], &cpu, words, length);
			fprintf(stderr, "block %u, base %x, scratch r%u\n", i, base,
				worlds[world].scratch);
			bad++;
		}
	}
	printf("blocks: %u of %llu instructions, %u handed back, %u differences\n", wanted,
	       (unsigned long long)instructions, handed_back, bad);
	return bad ? 1 : 0;
}

