// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Random T32 instructions and blocks. */
#include <stdio.h>
#include <string.h>

#include "decode/t32_lines.h"
#include "differential.h"

enum { CODE = TEST_TEXT + 0x4000, BLOCK_MAX = 40, COUNTER = 4, BASE_ONE = 6, BASE_TWO = 9 };

static bool is_wide(uint32_t line)
{
	return t32_table[line].pattern[16];
}

/* An instruction of a line, 16 bits in the upper half, with fields at random. */
static uint32_t random_left(uint32_t line, uint32_t scratch)
{
	uint32_t left = (dice() & ~t32_table[line].mask) | t32_table[line].value;

	return is_wide(line) ? favour_special_registers(t32_table[line].pattern, left, scratch) :
		left & 0xffff0000;
}

static void expand(uint32_t line, uint32_t left, uint32_t address, uint32_t it,
		   struct instruction *in)
{
	if (is_wide(line))
		t32_expand(left, 4, address, it, in);
	else
		t32_expand(left >> 16, 2, address, it, in);
}

static uint32_t put_code(uint8_t *memory, uint32_t offset, uint32_t line, uint32_t left)
{
	put_half(memory, offset, left >> 16);
	if (!is_wide(line))
		return offset + 2;
	put_half(memory, offset + 2, left & 0xffff);
	return offset + 4;
}

/* What the comparison leaves out beside UNPREDICTABLE encodings. docs/explanation/offload.md names them. */
static bool is_excluded(const struct instruction *in)
{
	uint32_t family = a32_table[in->op].family, form = t32_table[in->line].form;
	bool own = is_transfer(in->op) && field_n(in->word) == SP;

	if (family == REFUSED || family == COPROCESSOR || family == HINT)
		return true;
	/* Another mode; a status from SP. */
	if (family == STATUS && (in->op != A32_MRS && in->op != A32_MSR_reg && in->op != A32_CPS))
		return true;
	if (in->op == A32_CPS && bit(in->word, 17))
		return true;
	if (in->op == A32_MSR_reg && (field_m(in->word) == SP || field_m(in->word) == PC))
		return true;
	if (in->op == A32_BX && field_m(in->word) == PC)
		return true;
	if (form == FORM_STACK_MOVE_16)
		return false;
	/* The host's SP is always a multiple of four. */
	return bit(instruction_writes(in), SP) &&
		!(own && (family == MULTIPLE || field_d(in->word) != SP));
}

static void aim_branch(struct offload_cpu *cpu, const struct instruction *in, uint32_t base)
{
	uint32_t n = field_n(in->word), m = field_m(in->word);

	if (a32_table[in->op].family != TABLE_BRANCH)
		return;
	if (n != PC)
		cpu->r[n] = base + TEST_DATA + 0x2000 + below(0x400);
	if (m != n)
		cpu->r[m] = below(16);
}

static bool check_one(uint32_t line, uint32_t options, bool fresh, bool *bad)
{
	const uint32_t with_stack = OPTION_FLAGS | OPTION_INTERRUPTS;
	int world = below(4) ? below(2) : below(WORLDS);
	uint32_t base = worlds[world].base, left = random_left(line, worlds[world].scratch), it = 0, at = CODE;
	uint8_t *memory = oracles[world].memory;
	struct instruction in;
	struct offload_cpu cpu;

	/* A third of them under a condition. */
	if (below(3) == 0)
		it = below(14) << 4 | 8;
	expand(line, left, base + CODE + (it ? 2 : 0), it, &in);
	if (t32_decode(left) != line || in.op == A32_UNDEFINED || t32_unpredictable(&in) ||
	    is_excluded(&in))
		return false;
	/* Translated code uses memory below SP then. */
	if ((options & with_stack) != with_stack && field_n(in.word) == SP &&
	    (is_transfer(in.op) ? exposes_stack(in.op, in.word) :
	     t32_table[line].form == FORM_STACK_MOVE_16))
		return false;
	random_state(&cpu, base);
	aim(&cpu, in.op, in.word, base);
	aim_branch(&cpu, &in, base);
	cpu.r[PC] = base + CODE;
	cpu.control |= 0x20;
	if (fresh)
		load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
	if (a32_table[in.op].family == EXCLUSIVE) {
		oracle_clear_exclusive(&oracles[world]);
		edge_clear_exclusive(edges[world]);
	}
	for (uint32_t i = 0; i < 16; i += 4)
		put_word(memory, CODE + i, MARKER);
	if (it) {
		put_half(memory, at, 0xbf00 | it);
		at += 2;
	}
	at = put_code(memory, at, line, left);
	put_half(memory, at, MARKER & 0xffff);
	memcpy(edges[world]->memory, memory, TEST_MEMORY);
	*bad = !compare(&oracles[world], edges[world], &cpu, at - CODE, it ? 2 : 1);
	if (*bad)
		memcpy(memory, edges[world]->memory, TEST_MEMORY);
	return true;
}

int check_thumb_instructions(uint32_t wanted, uint32_t options)
{
	uint64_t total = 0, bad = 0;
	uint32_t lines = 0;

	make_worlds(true, options, TEST_CACHE);
	for (uint32_t line = 0; line < T32_COUNT; line++) {
		uint32_t done = 0, bad_here = 0, tries = 0;

		while (done < wanted && tries++ < 100 * wanted && bad_here < 3) {
			bool differs = false;

			if (!check_one(line, options, done % 16 == 0, &differs))
				continue;
			bad_here += differs;
			done++;
		}
		lines += done != 0;
		if (done && done < wanted && !bad_here)
			fprintf(stderr, "%s %s: only %u encodings\n",
				a32_table[t32_table[line].op].name, t32_table[line].pattern, done);
		if (bad_here)
			fprintf(stderr, "%s %s: %u bad\n", a32_table[t32_table[line].op].name,
				t32_table[line].pattern, bad_here);
		total += done;
		bad += bad_here;
	}
	printf("thumb-instructions: %u lines, %llu encodings and states, %llu differences\n", lines,
	       (unsigned long long)total, (unsigned long long)bad);
	return bad ? 1 : 0;
}

/* --- blocks --- */

static uint32_t with_base(const struct instruction *in, uint32_t line, uint32_t left)
{
	/* Where the pattern has n, this base; 32-bit encodings only. */
	uint32_t n = below(3) == 0 ? SP : below(2) ? BASE_ONE : BASE_TWO;

	(void)in;
	if (!is_wide(line) || t32_table[line].pattern[12] != 'n')
		return left;
	return (left & ~0x000f0000u) | n << 16;
}

/* An instruction for a block: bases and counter stay, accesses are near the bases. */
static uint32_t block_instruction(uint32_t *line, uint32_t address, uint32_t it)
{
	for (;;) {
		struct instruction in;
		uint32_t left, writes, family, n;
		bool moves;

		*line = below(T32_COUNT);
		left = random_left(*line, worlds[below(WORLDS)].scratch);
		expand(*line, left, address, it, &in);
		if (is_transfer(in.op)) {
			left = with_base(&in, *line, left);
			expand(*line, left, address, it, &in);
		}
		if (t32_decode(left) != *line || in.op == A32_UNDEFINED || t32_unpredictable(&in) ||
		    is_excluded(&in) || instruction_branches(&in))
			continue;
		/* A random mode is another one. */
		if (in.op == A32_MSR_reg)
			continue;
		/* The oracle forgets the IT block then. */
		if (in.op == A32_ISB && it)
			continue;
		family = a32_table[in.op].family;
		n = field_n(in.word);
		moves = !bit(in.word, 24) || bit(in.word, 21);
		writes = instruction_writes(&in);
		if (is_transfer(in.op)) {
			if (n != SP && n != BASE_ONE && n != BASE_TWO && n != PC)
				continue;
			if (family == SINGLE && bit(in.word, 25))
				continue;
			if ((family == EXTRA || family == DOUBLE) && !bit(in.word, 22))
				continue;
			if (family == EXCLUSIVE && !bit(in.word, 20))
				continue;
			if (n == SP && exposes_stack(in.op, in.word))
				continue;
			/* Bases stay aligned. */
			if (family != MULTIPLE && family != EXCLUSIVE && moves && (in.value & 7))
				continue;
			if (family != MULTIPLE && family != EXCLUSIVE && in.value > 0x200 && n != PC)
				continue;
			if (bit(in.word, 20) && family == MULTIPLE)
				writes = in.word & 0xffff;
			else
				writes &= ~(1u << n);
		}
		if (writes & (1u << COUNTER | 1u << BASE_ONE | 1u << BASE_TWO | 1u << SP))
			continue;
		return left;
	}
}

/*
 * What compilers often have and random instructions hardly ever: neighbouring words, one behind the other or with
 * another instruction between, and addresses of the stack. before: two instructions.
 */
static uint32_t word_instruction(uint32_t *line, const uint32_t *before)
{
	uint32_t half = before[below(2)] >> 16, number, at = 8;

	do
		number = below(8);
	while (number == COUNTER || number == BASE_ONE);
	if ((half & 0xf000) == 0x9000 && (half & 0xff) && below(4)) {
		half += below(2) ? 1 : -1;	/* the word behind it, or before it */
	} else if ((half & 0xf000) == 0x6000 && bits(half, 10, 6) - 1 < 30 && below(4)) {
		half += below(2) ? 1 << 6 : -(1 << 6);
		at = 0;
	} else if ((half & 0xf800) == 0xa800 && below(4)) {
		/* At the address that it made. */
		half = 0x6000 | below(2) << 11 | (1 + below(8)) << 6 | bits(half, 10, 8) << 3;
		at = 0;
	} else if (below(2)) {
		/* str, ldr: at BASE_ONE, at SP */
		at = below(2) ? 0 : 8;
		half = below(2) << 11 | (at ? 0x9000 | (1 + below(8)) : 0x6000 | (1 + below(30)) << 6 | BASE_ONE << 3);
	} else {
		half = 0xa800 | (1 + below(8));	/* add number, sp, #x */
	}
	half = (half & ~(7u << at)) | number << at;
	*line = t32_decode(half << 16);
	return half << 16;
}

struct block {
	uint32_t line[BLOCK_MAX], left[BLOCK_MAX], offset[BLOCK_MAX + 1];
	uint32_t count, bytes;
	bool free[BLOCK_MAX + 1];	/* in no IT block */
};

/* Random instructions, IT blocks among them, and branches that go forward to where none is. */
static void make_block(struct block *block, uint32_t base, uint32_t start)
{
	uint32_t at = start, it = 0, it_line = 0, b_line[2] = { 0, 0 }, size;

	for (uint32_t line = 0; line < T32_COUNT; line++) {
		if (t32_table[line].op == A32_IT)
			it_line = line;
		if (t32_table[line].form == FORM_BRANCH_8)
			b_line[0] = line;
		if (t32_table[line].form == FORM_COMPARE_BRANCH)
			b_line[1] = line;
	}
	block->count = 1 + below(BLOCK_MAX);
	for (uint32_t i = 0; i < block->count; i++) {
		uint32_t *line = &block->line[i], *left = &block->left[i];

		block->offset[i] = at;
		block->free[i] = !it;
		if (!it && below(10) == 0) {
			/* How far is known when all are there. */
			*line = b_line[below(2)];
			*left = t32_table[*line].value;
			if (*line == b_line[0])
				*left |= below(14) << 24;
		} else if (!it && below(8) == 0 && i + 5 < block->count) {
			static const uint8_t masks[] = { 8, 4, 12, 2, 6, 10, 14, 1, 3, 5, 7, 9, 15 };

			*line = it_line;
			*left = (0xbf00 | below(14) << 4 | masks[below(sizeof(masks))]) << 16;
		} else if (!it && below(6) == 0) {
			const uint32_t before[] = { i ? block->left[i - 1] : 0, i > 1 ? block->left[i - 2] : 0 };

			*left = word_instruction(line, before);
		} else {
			*left = block_instruction(line, base + at, it);
		}
		size = is_wide(*line) ? 4 : 2;
		at += size;
		if (*line == it_line)
			it = *left >> 16 & 0xff;
		else
			it = (it & 7) ? (it & 0xe0) | (it << 1 & 0x1f) : 0;
	}
	block->offset[block->count] = at;
	block->bytes = at - start;
	block->free[block->count] = true;
	for (uint32_t i = 0; i < block->count; i++) {
		uint32_t to = i + 1 + below(block->count - i), form = t32_table[block->line[i]].form;
		int32_t far;

		if (form != FORM_BRANCH_8 && form != FORM_COMPARE_BRANCH)
			continue;
		while (!block->free[to])
			to++;
		far = block->offset[to] - block->offset[i] - 4;
		if (form == FORM_BRANCH_8)
			block->left[i] |= (far >> 1 & 0xff) << 16;
		else if (far < 0 || far > 126)
			/* nop: it does not reach there */
			block->left[i] = 0xbf000000;
		else
			block->left[i] |= ((far >> 1 & 0x1f) << 3 | (far >> 6 & 1) << 9 |
					   below(8)) << 16;
	}
}

/* Shows the block with all those instructions as nop that the difference does not need. */
static void shorten(int world, const struct offload_cpu *cpu, const struct block *block,
		    const uint8_t *before, uint32_t bytes)
{
	uint8_t *code = oracles[world].memory, *kept = edges[world]->memory;
	static uint8_t image[TEST_MEMORY];

	memcpy(image, before, TEST_MEMORY);
	for (uint32_t i = 0; i < block->count; i++) {
		uint32_t offset = block->offset[i], old, nop = 0xbf00bf00;

		memcpy(&old, image + offset, 4);
		memcpy(image + offset, &nop, is_wide(block->line[i]) ? 4 : 2);
		memcpy(code, image, TEST_MEMORY);
		memcpy(kept, image, TEST_MEMORY);
		if (compare(&oracles[world], edges[world], cpu, bytes, 5000))
			memcpy(image + offset, &old, 4);
	}
	memcpy(code, image, TEST_MEMORY);
	memcpy(kept, image, TEST_MEMORY);
	compare(&oracles[world], edges[world], cpu, bytes, 5000);
}

/* An instruction of a block that is in no IT block. */
static uint32_t place_in(const struct block *block)
{
	uint32_t i;

	do
		i = below(block->count + 1);
	while (!block->free[i]);
	return block->offset[i];
}

/* A random block behind CLREX, a third of them loops; where its code ends is returned. */
static uint32_t put_random_block(uint8_t *memory, struct block *block, uint32_t base, uint32_t start)
{
	uint32_t at, far;

	make_block(block, base, start + 4);
	put_half(memory, start, 0xf3bf);	/* clrex */
	put_half(memory, start + 2, 0x8f2f);
	for (uint32_t j = 0; j < block->count; j++)
		put_code(memory, block->offset[j], block->line[j], block->left[j]);
	at = start + 4 + block->bytes;
	if (below(3))
		return at;
	/* subs, bne */
	far = start + 4 - (at + 2) - 4;
	put_half(memory, at, 0x3801 | COUNTER << 8);
	put_half(memory, at + 2, 0xf040 | (far >> 20 & 1) << 10 | (far >> 12 & 0x3f));
	put_half(memory, at + 4, 0x8000 | (far >> 18 & 1) << 13 |
		 (far >> 19 & 1) << 11 | (far >> 1 & 0x7ff));
	return at + 6;
}

uint32_t put_thumb_block(uint8_t *memory, uint32_t base, uint32_t offset)
{
	struct block block;

	put_random_block(memory, &block, base, offset);
	return place_in(&block) - offset;
}

int check_thumb_blocks(uint32_t wanted, uint32_t options, uint32_t cache_size, bool hand_back)
{
	static uint8_t before[TEST_MEMORY];
	uint64_t instructions = 0;
	uint32_t bad = 0;

	make_worlds(true, options, cache_size);
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		int world = below(3) ? below(2) : below(WORLDS);
		uint32_t base = worlds[world].base, start = CODE + 2 * below(16), at;
		uint8_t *memory = oracles[world].memory;
		struct offload_cpu cpu;
		struct block block;

		random_state(&cpu, base);
		block_registers(&cpu, base, true);
		cpu.r[PC] = base + start;
		cpu.control |= 0x20;
		if (i % 64 < WORLDS)
			load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
		for (uint32_t j = 0; j < 4 * BLOCK_MAX + 128; j += 4)
			put_word(memory, CODE + j, MARKER);
		at = put_random_block(memory, &block, base, start);
		put_half(memory, at, MARKER & 0xffff);
		memcpy(edges[world]->memory, memory, TEST_MEMORY);
		memcpy(before, memory, TEST_MEMORY);
		instructions += block.count;
		hand_back_at(edges[world], hand_back ? base + place_in(&block) : 0);
		if (!compare_block(&oracles[world], edges[world], &cpu, at - start, 5000)) {
			fprintf(stderr, "block %u, base %x, scratch r%u\n", i, base,
				worlds[world].scratch);
			bad++;
			shorten(world, &cpu, &block, before, at - start);
		}
	}
	printf("thumb-blocks: %u of %llu instructions, %u handed back, %u differences\n", wanted,
	       (unsigned long long)instructions, handed_back, bad);
	return bad ? 1 : 0;
}
