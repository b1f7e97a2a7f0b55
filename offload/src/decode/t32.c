// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Finds the line of isa/t32.def for a T32 instruction and makes it one with A32's fields. */
#include "decode/t32_lines.h"

#define IS(s, i, c) ((uint32_t)((s)[i] == (c)) << (31 - (i)))
#define HIGH(s, c) (IS(s, 0, c) | IS(s, 1, c) | IS(s, 2, c) | IS(s, 3, c) | IS(s, 4, c) | \
	IS(s, 5, c) | IS(s, 6, c) | IS(s, 7, c) | IS(s, 8, c) | IS(s, 9, c) | IS(s, 10, c) | \
	IS(s, 11, c) | IS(s, 12, c) | IS(s, 13, c) | IS(s, 14, c) | IS(s, 15, c))
#define LOW(s, c) (IS(s, 16, c) | IS(s, 17, c) | IS(s, 18, c) | IS(s, 19, c) | IS(s, 20, c) | \
	IS(s, 21, c) | IS(s, 22, c) | IS(s, 23, c) | IS(s, 24, c) | IS(s, 25, c) | \
	IS(s, 26, c) | IS(s, 27, c) | IS(s, 28, c) | IS(s, 29, c) | IS(s, 30, c) | IS(s, 31, c))

#define FIELD(c) ((c) == 'n' || (c) == 'w' ? FIELD_N : (c) == 'd' ? FIELD_D : (c) == 's' ? FIELD_S : \
	(c) == 'm' ? FIELD_M : (c) == 't' || (c) == 'x' ? FIELD_T : \
	(c) == 'h' || (c) == 'y' || (c) == 'a' ? FIELD_H : (c) == 'o' ? FIELD_O : \
	(c) == 'S' ? FIELD_SETS : (c) == 'W' ? FIELD_W : (c) == 'U' ? FIELD_U : (c) == 'P' ? FIELD_P : \
	(c) == 'M' ? FIELD_MODE : (c) == 'i' ? FIELD_CONSTANT : (c) == 'c' ? FIELD_COND : \
	(c) == 'u' ? FIELD_SECOND : FIELD_NONE)
#define TWO(s, i) FIELD((s)[i]) << 4 | FIELD((s)[(i) + 1])
#define HIGH_FIELDS(s) TWO(s, 0), TWO(s, 2), TWO(s, 4), TWO(s, 6), TWO(s, 8), TWO(s, 10), TWO(s, 12), \
	TWO(s, 14)
#define LOW_FIELDS(s) TWO(s, 16), TWO(s, 18), TWO(s, 20), TWO(s, 22), TWO(s, 24), TWO(s, 26), \
	TWO(s, 28), TWO(s, 30)

#ifdef OFFLOAD_TARGET
#define PATTERN(bits)
#else
#define PATTERN(bits) .pattern = bits,
#endif

const struct t32_line t32_table[T32_COUNT] = {
#define T16(line, bits, kind) { .mask = HIGH(bits, '0') | HIGH(bits, '1'), .value = HIGH(bits, '1'), \
	.op = A32_##line, .form = FORM_##kind, .fields = { HIGH_FIELDS(bits) }, PATTERN(bits) },
#define T32(line, bits, kind) { .mask = HIGH(bits, '0') | HIGH(bits, '1') | LOW(bits, '0') | \
	LOW(bits, '1'), .value = HIGH(bits, '1') | LOW(bits, '1'), .op = A32_##line, \
	.form = FORM_##kind, .wide = true, .fields = { HIGH_FIELDS(bits), LOW_FIELDS(bits) }, \
	PATTERN(bits) },
#include "isa/t32.def"
#undef T16
#undef T32
};

/* The lines that can match, by the first eight bits. */
static struct { uint16_t first, end; } groups[256];

/* A run of bits of one field, as take_fields() needs it. */
struct run {
	uint8_t field;		/* enum t32_field; FIELD_NONE: there are no more */
	uint8_t width;
	uint8_t shift;		/* of the run's last bit */
};
enum { RUNS_MAX = 8 };
/* Made once, as finding the runs of a line takes longer than everything else that expands an instruction. */
static struct run runs[T32_COUNT][RUNS_MAX];

static enum t32_field field_at(const struct t32_line *line, uint32_t index)
{
	return line->fields[index / 2] >> (index % 2 ? 0 : 4) & 15;
}

static void find_runs(const struct t32_line *line, struct run *run)
{
	uint32_t free = line->wide ? ~line->mask : ~line->mask & 0xffff0000;

	while (free) {
		uint32_t first = __builtin_clz(free), end = first + 1;
		enum t32_field field = field_at(line, first);

		while (end < 32 && field_at(line, end) == field)
			end++;
		if (field != FIELD_NONE)
			*run++ = (struct run){ field, end - first, 32 - end };
		free &= end < 32 ? 0xffffffffu >> end : 0;
	}
	run->field = FIELD_NONE;
}

/* All of both tables: behind it no group has 0 for both. */
static void prepare(void)
{
	for (uint32_t group = 0; group < 256; group++) {
		groups[group].first = T32_COUNT;
		groups[group].end = 0;
	}
	for (uint32_t line = 0; line < T32_COUNT; line++) {
		uint32_t free = ~t32_table[line].mask >> 24, part = free;

		find_runs(&t32_table[line], runs[line]);
		/* Every value of the bits that are free. */
		for (;; part = (part - 1) & free) {
			uint32_t group = t32_table[line].value >> 24 | part;

			if (groups[group].first == T32_COUNT)
				groups[group].first = line;
			groups[group].end = line + 1;
			if (!part)
				break;
		}
	}
}

uint32_t t32_decode(uint32_t left)
{
	uint32_t group = left >> 24;

	for (uint32_t line = groups[group].first; line < groups[group].end; line++)
		if ((left & t32_table[line].mask) == t32_table[line].value)
			return line;
	/* A guest in A32, or one whose code is all translated already, needs no tables. */
	if (!groups[group].first && !groups[group].end) {
		prepare();
		return t32_decode(left);
	}
	return T32_COUNT;
}

/* The values of a pattern's letters. */
struct fields {
	uint32_t constant, cond, second, word;
	uint32_t m;		/* all bits of it: some encodings have it twice */
};

/* Where a field begins in A32's encoding; of the rest nowhere. */
static const uint8_t places[] = {
	[FIELD_N] = 16, [FIELD_D] = 12, [FIELD_S] = 8, [FIELD_M] = 0, [FIELD_T] = 5, [FIELD_H] = 6,
	[FIELD_O] = 10, [FIELD_SETS] = 20, [FIELD_W] = 21, [FIELD_U] = 23, [FIELD_P] = 24,
	[FIELD_MODE] = 17,
};

/* Adds a run of a field's bits, which is all of it or what comes behind an earlier run. */
static void take_run(struct fields *fields, enum t32_field field, uint32_t value, uint32_t width)
{
	uint32_t place;

	switch (field) {
	case FIELD_M:
		fields->m = fields->m << width | value;
		break;
	case FIELD_D:
	case FIELD_N:
		place = places[field];
		fields->word = (fields->word & ~(15u << place)) | value << place |
			(fields->word >> place & 15) << width << place;
		break;
	case FIELD_CONSTANT:
		fields->constant = fields->constant << width | value;
		break;
	case FIELD_COND:
		fields->cond = value;
		break;
	case FIELD_SECOND:
		fields->second = value;
		break;
	default:
		fields->word |= value << places[field];
		break;
	}
}

static void take_fields(const struct run *run, uint32_t left, struct fields *fields)
{
	fields->constant = fields->cond = fields->second = fields->word = fields->m = 0;
	for (; run->field != FIELD_NONE; run++)
		take_run(fields, run->field, left >> run->shift & ((1u << run->width) - 1), run->width);
	/* Some encodings have it twice. */
	fields->word |= fields->m > 31 ? fields->m & 15 : fields->m;
}

/* A modified immediate; whether it sets C. */
static uint32_t modified(uint32_t encoded, bool *sets_carry)
{
	uint32_t low = encoded & 0xff;

	*sets_carry = encoded >= 0x400;
	switch (encoded >> 8) {
	case 0:
		return low;
	case 1:
		return low << 16 | low;
	case 2:
		return low << 24 | low << 8;
	case 3:
		return low * 0x01010101u;
	default:
		return rotate_right(0x80 | (encoded & 0x7f), encoded >> 7);
	}
}

static uint32_t sign_extend(uint32_t value, uint32_t width)
{
	return (uint32_t)((int32_t)(value << (32 - width)) >> (32 - width));
}

static uint32_t branch_offset(uint32_t raw, bool conditional)
{
	uint32_t s = bit(raw, 26), j1 = bit(raw, 13), j2 = bit(raw, 11), offset;

	if (conditional) {
		offset = s << 20 | j2 << 19 | j1 << 18 | bits(raw, 21, 16) << 12;
		return sign_extend(offset | bits(raw, 10, 0) << 1, 21);
	}
	j1 = !(j1 ^ s);
	j2 = !(j2 ^ s);
	offset = s << 24 | j1 << 23 | j2 << 22 | bits(raw, 25, 16) << 12;
	return sign_extend(offset | bits(raw, 10, 0) << 1, 25);
}

enum { BIT_S = 1 << 20, BIT_W = 1 << 21, BIT_U = 1 << 23, BIT_P = 1 << 24 };

static void shape_data(uint32_t form, uint32_t raw, const struct fields *fields, uint32_t it,
		       struct instruction *in)
{
	uint32_t i = fields->constant, flags = it ? 0 : BIT_S;

	switch (form) {
	case FORM_SHIFT_16:
		in->word |= flags | i << 7 | bits(raw, 12, 11) << 5;
		break;
	case FORM_SHIFT:
		in->word |= i << 7;
		break;
	case FORM_FLAGS_16:
		in->word |= flags;
		break;
	case FORM_CONSTANT_DN:
		in->word |= field_d(in->word) << 16;
		/* fall through */
	case FORM_CONSTANT_16:
		in->word |= flags;
		/* fall through */
	case FORM_CONSTANT:
		in->value = i;
		break;
	case FORM_DN_16:
		in->word |= flags;
		/* fall through */
	case FORM_DN:
		in->word |= field_d(in->word) << 16;
		break;
	case FORM_BY_REGISTER_16:
		in->word |= flags | field_d(in->word) |
			(bits(raw, 9, 6) == 7 ? 3 : bits(raw, 9, 6) - 2) << 5;
		break;
	case FORM_BY_REGISTER:
		in->word |= bits(raw, 22, 21) << 5;
		break;
	case FORM_MULTIPLY_16:
		in->word |= flags | field_n(in->word) << 8;
		break;
	case FORM_MODIFIED:
		in->value = modified(i, &in->sets_carry);
		break;
	case FORM_WIDE:
		in->value = bits(i, 14, 11) << 12 | bit(i, 15) << 11 | bits(i, 10, 0);
		break;
	case FORM_ADDRESS_16:
		in->word |= PC << 16;
		in->value = 4 * i;
		break;
	case FORM_STACK_MOVE_16:
		in->word |= SP << 12;
		/* fall through */
	case FORM_STACK_ADDRESS_16:
		in->word |= SP << 16;
		in->value = 4 * i;
		break;
	case FORM_ADDRESS:
		in->value = i;
		break;
	case FORM_EXTEND_16:
		in->word |= PC << 16;
		break;
	case FORM_CPS_16:
		in->word |= (2 | bit(i, 3)) << 18 | (i & 7) << 6;
		break;
	case FORM_CPS:
		in->word |= i << 18;
		break;
	case FORM_COPROCESSOR:
		in->word = (raw & 0x0fffffff) | COND_AL << 28;
		break;
	default:
		break;
	}
}

static void shape_transfer(uint32_t form, uint32_t raw, const struct fields *fields,
			   struct instruction *in)
{
	uint32_t i = fields->constant, list = raw & 0xff;

	in->value = i;
	switch (form) {
	case FORM_STACK_16:
		in->word |= SP << 16;
		/* fall through */
	case FORM_UP_WORDS:
		in->value = 4 * i;
		in->word |= BIT_P | BIT_U;
		break;
	case FORM_UP_HALVES:
		in->value = 2 * i;
		/* fall through */
	case FORM_UP:
		in->word |= BIT_P | BIT_U;
		break;
	case FORM_LITERAL_16:
		in->value = 4 * i;
		in->word |= BIT_U;
		/* fall through */
	case FORM_LITERAL:
		in->word |= BIT_P | PC << 16;
		break;
	case FORM_BEFORE:
		in->word |= BIT_P;
		break;
	case FORM_MOVING:
		/* A32 has this bit for what happens before only. */
		in->word |= bit(in->word, 24) ? BIT_W : 0;
		break;
	case FORM_INDEX:
		in->word |= BIT_P | BIT_U;
		if (a32_table[in->op].family == SINGLE) {
			in->word |= i << 7;
			in->value = 0;
		}
		break;
	case FORM_BEFORE_WORDS:
		in->word |= BIT_P;
		/* fall through */
	case FORM_AFTER_WORDS:
	case FORM_WORDS:
		in->value = 4 * i;
		break;
	case FORM_LIST:
		in->word |= raw & 0xffff;
		break;
	case FORM_LIST_16:
		in->word |= list;
		if (!bit(in->word, 20) || !bit(list, field_n(in->word)))
			in->word |= BIT_W;
		break;
	case FORM_PUSH_16:
		in->word |= SP << 16 | BIT_W | list | bit(raw, 8) << LR;
		break;
	case FORM_POP_16:
		in->word |= SP << 16 | BIT_W | list | bit(raw, 8) << PC;
		break;
	default:
		break;
	}
}

static void shape_branch(uint32_t form, uint32_t raw, const struct fields *fields,
			 struct instruction *in)
{
	uint32_t offset = 0;

	switch (form) {
	case FORM_COMPARE_BRANCH:
		offset = 2 * fields->constant;
		break;
	case FORM_BRANCH_8:
		offset = sign_extend(raw << 1 & 0x1ff, 9);
		in->cond = fields->cond;
		break;
	case FORM_BRANCH_11:
		offset = sign_extend(raw << 1 & 0xfff, 12);
		break;
	case FORM_BRANCH_20:
		offset = branch_offset(raw, true);
		in->cond = fields->cond;
		break;
	default:
		offset = branch_offset(raw, false);
		break;
	}
	if (in->op == A32_BLX_imm)
		in->value = (in->pc & ~3u) + offset;
	else
		in->value = (in->pc + offset) | 1;
}

static uint32_t condition_of(uint32_t it)
{
	return it ? it >> 4 : COND_AL;
}

void t32_expand(uint32_t raw, uint32_t bytes, uint32_t address, uint32_t it,
		struct instruction *in)
{
	uint32_t left = bytes == 2 ? raw << 16 : raw, line = t32_decode(left), form;
	struct fields fields;

	/* One by one: as a whole, a compiler for size clears it by a call. */
	in->op = A32_UNDEFINED;
	in->word = 0;
	in->raw = raw;
	in->value = 0;
	in->pc = address + 4;
	in->next = (address + bytes) | 1;
	in->cond = condition_of(it);
	in->second = 0;
	in->sets_carry = false;
	in->thumb = true;
	in->line = line;
	in->it = it;
	in->twice_m = 0;
	if (line == T32_COUNT)
		return;
	in->op = t32_table[line].op;
	form = t32_table[line].form;
	take_fields(runs[line], left, &fields);
	in->word = a32_table[in->op].value | fields.word;
	if (in->word >> 28 != COND_NEVER)
		in->word |= (uint32_t)COND_AL << 28;
	in->second = fields.second;
	in->twice_m = fields.m;
	if (form >= FORM_COMPARE_BRANCH)
		shape_branch(form, raw, &fields, in);
	else if (form >= FORM_STACK_16)
		shape_transfer(form, raw, &fields, in);
	else
		shape_data(form, raw, &fields, it, in);
	if (form == FORM_BRANCH_20 && in->cond >= COND_AL)
		in->op = A32_UNDEFINED;
	/* ORN has OR's fields, and the shapes of both are the same. */
	if (in->op == A32_ORN_reg || in->op == A32_ORN_imm)
		in->word |= OP_ORR << 21 | (in->op == A32_ORN_imm ? 1u << 25 : 0);
	/* What is found by PC is found by its word. */
	if (form == FORM_ADDRESS_16 || form == FORM_ADDRESS || form == FORM_LITERAL ||
	    form == FORM_LITERAL_16 || form == FORM_BEFORE_WORDS || form == FORM_AFTER_WORDS)
		in->pc &= ~3u;
}
