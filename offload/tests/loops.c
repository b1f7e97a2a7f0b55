// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Random loops over pointers, as compilers make them: accesses that move their base, comparisons of
 * pointers with each other and with an end, ways out in the middle, calls of small functions. Random blocks
 * hardly ever are such; the translator makes host addresses of their pointers (src/translate/loop.c) and
 * the functions part of the loop (src/translate/extent.c).
 */
#include <stdio.h>
#include <string.h>

#include "differential.h"

enum {
	LOOP_MAX = 12, CODE = TEST_TEXT + 0x4000, OUT = TEST_TEXT + 0x5000, COUNTER = 8,
	INDEX = 12, POINTERS = 3, FUNCTIONS = 3, FUNCTION = TEST_TEXT + 0x4400, FUNCTION_BYTES = 0x100,
};

/* Two pointers, and what they are compared with. */
static const uint32_t pointer[POINTERS] = { 6, 7, 10 };

struct loop_code {
	uint8_t bytes[16 * LOOP_MAX];
	uint32_t size;
	bool thumb;
	bool calls;
};

static void put(struct loop_code *code, uint32_t word)
{
	put_word(code->bytes, code->size, word);
	code->size += 4;
}

/* A T32 instruction of 32 bits. */
static void put_halves(struct loop_code *code, uint32_t first, uint32_t second)
{
	put(code, first | second << 16);
}

static void branch_if(struct loop_code *code, uint32_t cond, uint32_t to)
{
	int32_t far = (int32_t)(to - code->size);

	if (!code->thumb) {
		put(code, cond << 28 | 0x0a000000 | ((far - 8) >> 2 & 0xffffff));
		return;
	}
	far = (far - 4) >> 1;
	if (cond == COND_AL)
		put_halves(code, 0xf000 | (far >> 11 & 0x3ff) | (far < 0) << 10,
			   0x9000 | 0x2800 | (far & 0x7ff));
	else
		put_halves(code, 0xf000 | (far < 0) << 10 | cond << 6 | (far >> 11 & 0x3f),
			   0x8000 | (far < 0) << 13 | (far < 0) << 11 | (far & 0x7ff));
}

static void call(struct loop_code *code, uint32_t to)
{
	int32_t far = (int32_t)(to - code->size);

	if (!code->thumb)
		put(code, 0xeb000000 | ((far - 8) >> 2 & 0xffffff));
	else
		put_halves(code, 0xf000 | ((far - 4) >> 12 & 0x3ff), 0xf800 | ((far - 4) >> 1 & 0x7ff));
}

static void compare_registers(struct loop_code *code, uint32_t cond, uint32_t n, uint32_t m)
{
	if (code->thumb)
		put_halves(code, 0xebb0 | n, 0x0f00 | m);
	else
		put(code, cond << 28 | 0x01500000 | n << 16 | m);
}

static void add_constant(struct loop_code *code, uint32_t cond, bool subtract, bool set, uint32_t d,
			 uint32_t n, uint32_t value)
{
	if (code->thumb)
		put_halves(code, (subtract ? 0xf1a0 : 0xf100) | set << 4 | n, d << 8 | value);
	else
		put(code, cond << 28 | (subtract ? 0x02400000 : 0x02800000) | set << 20 | n << 16 |
		    d << 12 | value);
}

/* A load or store of any size, forms with and without a move of the base; offset in one byte. */
static void transfer(struct loop_code *code, uint32_t cond, uint32_t t, uint32_t n)
{
	uint32_t form = below(4), size = below(3), load = below(3) != 0, up = below(3) != 0;
	uint32_t before = form != 3, move = form == 2, offset = 4 * below(12);

	if (code->thumb) {
		/* Without a move a negative offset only. */
		if (before && !move && up)
			put_halves(code, 0xf880 | size << 5 | load << 4 | n, t << 12 | offset);
		else
			put_halves(code, 0xf800 | size << 5 | load << 4 | n,
				   t << 12 | 0x800 | before << 10 | up << 9 |
				   (move || !before) << 8 | offset);
	} else if (size == 1) {
		put(code, cond << 28 | 0x004000b0 | before << 24 | up << 23 | move << 21 | load << 20 |
		    n << 16 | t << 12 | (offset & 0xf0) << 4 | (offset & 15));
	} else {
		put(code, cond << 28 | 0x04000000 | before << 24 | up << 23 | (size == 0) << 22 |
		    move << 21 | load << 20 | n << 16 | t << 12 | offset);
	}
}

static void transfer_by_register(struct loop_code *code, uint32_t cond, uint32_t t, uint32_t n)
{
	uint32_t load = below(2), shift = below(3);

	if (code->thumb)
		put_halves(code, 0xf840 | load << 4 | n, t << 12 | shift << 4 | INDEX);
	else
		put(code, cond << 28 | 0x07800000 | load << 20 | n << 16 | t << 12 | shift << 7 | INDEX);
}

static void transfer_list(struct loop_code *code, uint32_t cond, uint32_t n)
{
	uint32_t load = below(2), move = below(2), list = 3u << below(3);

	if (code->thumb)
		put_halves(code, 0xe880 | move << 5 | load << 4 | n, list);
	else
		put(code, cond << 28 | 0x08800000 | move << 21 | load << 20 | n << 16 | list);
}

/* Something that has nothing to do with pointers, or nearly so. */
static void compute(struct loop_code *code, uint32_t cond)
{
	uint32_t d = below(6), n = below(12) ? below(6) : pointer[below(POINTERS)];

	if (below(2))
		add_constant(code, cond, below(2), below(2), d, n, below(256));
	else if (code->thumb)
		put_halves(code, 0xea80 | below(2) << 4 | n, d << 8 | below(6));
	else
		put(code, cond << 28 | 0x00200000 | below(2) << 20 | n << 16 | d << 12 | below(6));
}

/* bx lr, for T32 under it. */
static void return_if(struct loop_code *code, uint32_t cond)
{
	if (!code->thumb) {
		put(code, cond << 28 | 0x012fff1e);
	} else {
		put_half(code->bytes, code->size, 0xbf08 | cond << 4);
		put_half(code->bytes, code->size + 2, 0x4770);
		code->size += 4;
	}
}

static void leave_if(struct loop_code *code, uint32_t cond)
{
	/* LR is where the loop's end is, too, if nothing was called. */
	if (below(3) || code->calls)
		branch_if(code, cond, OUT - CODE);
	else
		return_if(code, cond);
}

/* What it works on is the loop's. A few cannot be inlined, because they change LR. */
static void make_function(struct loop_code *code)
{
	uint32_t count = below(LOOP_MAX - 4), skip = below(2) ? 0 : below(count + 1), from = 0;
	uint32_t saved = below(2) ? 9 : 11;	/* nothing else uses these */
	bool saves = below(8) == 0;

	code->size = 0;
	/* lr becomes another register and back: mov r9, lr; eor lr, lr, lr; mov lr, r9 */
	if (saves)
		code->thumb ? put_halves(code, 0xea4f, 0x000e | saved << 8) : put(code, 0xe1a0000e | saved << 12);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t cond = code->thumb || below(4) ? COND_AL : below(14), p = pointer[below(2)];

		if (skip && i == skip - 1) {
			from = code->size;
			put(code, 0);
		}
		switch (below(6)) {
		case 0:
			compute(code, cond);
			break;
		case 1:
			compare_registers(code, cond, p, pointer[below(POINTERS)]);
			if (below(2) && !saves)
				return_if(code, below(14));
			break;
		case 2:
			transfer_list(code, cond, p);
			break;
		default:
			transfer(code, cond, below(5), p);
		}
	}
	/* Forward over some of them. */
	if (from) {
		uint32_t end = code->size;

		code->size = from;
		branch_if(code, below(15), end);
		code->size = end;
	}
	if (saves) {
		code->thumb ? put_halves(code, 0xea8e, 0x0e0e) : put(code, 0xe02ee00e);
		code->thumb ? put_halves(code, 0xea4f, 0x0e00 | saved) : put(code, 0xe1a0e000 | saved);
	}
	if (code->thumb)
		put_halves(code, 0x4770, MARKER & 0xffff);
	else
		put(code, 0xe12fff1e);
}

static void make_loop(struct loop_code *code)
{
	uint32_t count = 1 + below(LOOP_MAX - 4), counted = below(count);

	code->size = 0;
	code->calls = below(2);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t cond = code->thumb || below(4) ? COND_AL : below(14);
		uint32_t p = pointer[below(8) ? below(2) : 2], other = pointer[below(POINTERS)];

		if (i == counted) {
			add_constant(code, COND_AL, true, true, COUNTER, COUNTER, 1);
			branch_if(code, 0, OUT - CODE);
		}
		switch (below(code->calls ? 11 : 9)) {
		case 9:
		case 10:
			call(code, FUNCTION + FUNCTION_BYTES * below(FUNCTIONS) - CODE);
			break;
		case 0:
			compute(code, cond);
			break;
		case 1:
			add_constant(code, cond, below(2), false, p, p, 4 * below(16));
			break;
		case 2:
			compare_registers(code, cond, p, other);
			if (below(2))
				leave_if(code, below(14));
			break;
		case 3:
			transfer_by_register(code, cond, below(6), p);
			break;
		case 4:
			transfer_list(code, cond, p);
			break;
		default:
			transfer(code, cond, below(6), p);
		}
	}
	if (below(2))
		compare_registers(code, COND_AL, pointer[below(2)], pointer[2]);
	branch_if(code, below(3) ? below(15) : 1, 0);
}

int check_loops(uint32_t wanted, uint32_t options, uint32_t cache_size, bool thumb)
{
	struct loop_code code = { .thumb = thumb }, function = { .thumb = thumb };
	uint32_t bad = 0;

	make_worlds(thumb, options, cache_size);
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		int world = below(3) ? 0 : below(WORLDS);
		uint32_t base = worlds[world].base, end = CODE;
		uint8_t *memory = oracles[world].memory;
		struct offload_cpu cpu;

		make_loop(&code);
		random_state(&cpu, base);
		for (int j = 0; j < POINTERS; j++)
			cpu.r[pointer[j]] = base + TEST_DATA + 0x2000 + 4 * below(0x400);
		/* Where the loop ends, or what has nothing to do with it. */
		if (below(2))
			cpu.r[pointer[2]] = cpu.r[pointer[0]] + 4 * below(24);
		else if (below(4) == 0)
			cpu.r[pointer[2]] = below(2) ? dice() : base + TEST_MEMORY - 4 * below(8);
		/* A pointer that runs over the end of memory. */
		if (below(32) == 0)
			cpu.r[pointer[0]] = base + (below(2) ? TEST_MEMORY - 4 * below(16) : 4 * below(16));
		cpu.r[INDEX] = 4 * below(16);
		cpu.r[COUNTER] = 1 + below(12);
		/* A return to the other instruction set, or to nowhere, leaves by another way than the target table. */
		cpu.r[LR] = (base + OUT) | (below(8) ? thumb : !thumb);
		if (below(16) == 0)
			cpu.r[LR] = (dice() & ~3u) | thumb;
		cpu.r[PC] = base + CODE;
		cpu.control |= thumb << 5;
		if (i % 16 < WORLDS)
			load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
		memcpy(memory + CODE, code.bytes, code.size);
		for (end = CODE + code.size; end < CODE + sizeof(code.bytes); end += 4)
			put_word(memory, end, MARKER);
		for (int j = 0; j < FUNCTIONS; j++) {
			make_function(&function);
			memcpy(memory + FUNCTION + FUNCTION_BYTES * j, function.bytes, function.size);
		}
		memcpy(edges[world]->memory, memory, TEST_MEMORY);
		/* In the loop or in the last function. */
		hand_back_at(edges[world], below(8) ? 0 : below(4) ? cpu.r[PC] + 4 * below(code.size / 4) :
			     base + FUNCTION + FUNCTION_BYTES * (FUNCTIONS - 1) + 4 * below(function.size / 4));
		if (!compare_block(&oracles[world], edges[world], &cpu, code.size, 5000)) {
			fprintf(stderr, "loop %u, base %x, scratch r%u\n", i, base,
				worlds[world].scratch);
			bad++;
		}
	}
	printf("%sloops: %u, %u handed back, %u differences\n", thumb ? "thumb-" : "", wanted,
	       handed_back, bad);
	return bad ? 1 : 0;
}
