// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Finds the line of the instruction table for a word, and what the line says of registers. */
#include "decode/a32.h"

#define IS(s, i, c) ((uint32_t)((s)[i] == (c)) << (31 - (i)))
#define ALL(s, c) (IS(s, 0, c) | IS(s, 1, c) | IS(s, 2, c) | IS(s, 3, c) | IS(s, 4, c) | \
	IS(s, 5, c) | IS(s, 6, c) | IS(s, 7, c) | IS(s, 8, c) | IS(s, 9, c) | IS(s, 10, c) | \
	IS(s, 11, c) | IS(s, 12, c) | IS(s, 13, c) | IS(s, 14, c) | IS(s, 15, c) | \
	IS(s, 16, c) | IS(s, 17, c) | IS(s, 18, c) | IS(s, 19, c) | IS(s, 20, c) | \
	IS(s, 21, c) | IS(s, 22, c) | IS(s, 23, c) | IS(s, 24, c) | IS(s, 25, c) | \
	IS(s, 26, c) | IS(s, 27, c) | IS(s, 28, c) | IS(s, 29, c) | IS(s, 30, c) | IS(s, 31, c))

const struct a32_line a32_table[A32_COUNT] = {
#ifdef OFFLOAD_TARGET
#define TEXTS(title, format)
#else
#define TEXTS(title, format) .name = title, .pattern = format,
#endif
#define A32(line, bits, kind, text) { \
	.mask = ALL(bits, '0') | ALL(bits, '1'), .value = ALL(bits, '1'), .family = kind, \
	.syntax = text, TEXTS(#line, bits) },
#include "isa/a32.def"
#undef A32
};

/* The lines of each value of bits 27:25 stand together; these are the first ones. */
static const uint8_t first_line[10] = {
	A32_MUL, A32_AND_imm, A32_STRT, A32_STRT_reg, A32_STM_user, A32_B, A32_MCRR, A32_MCR,
	A32_CPS, A32_ORN_reg,
};

enum a32_op a32_decode(uint32_t word)
{
	uint32_t group = bits(word, 27, 25);
	const struct a32_line *line, *end;

	if (field_cond(word) == COND_NEVER)
		group = 8;
	line = &a32_table[first_line[group]];
	end = &a32_table[first_line[group + 1]];
	/* Short cuts past what cannot match. */
	if (group == 0 && (word & 0x90) != 0x90) {
		if ((word & 0x01900000) == 0x01000000)
			line = &a32_table[A32_MRS];
		else
			line = &a32_table[(word & 0x10) ? A32_AND_rsr : A32_AND_reg];
	} else if (group == 3 && bit(word, 4)) {
		line = &a32_table[A32_SADD16];
	}
	for (; line < end; line++)
		if ((word & line->mask) == line->value)
			return line - a32_table;
	return A32_UNDEFINED;
}

static bool any_is_pc(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	return a == PC || b == PC || c == PC || d == PC;
}

static bool unpredictable_exclusive(enum a32_op op, uint32_t word)
{
	uint32_t n = field_n(word), d = field_d(word), t = field_m(word);

	switch (op) {
	case A32_CLREX:
		return false;
	case A32_LDREX:
	case A32_LDREXB:
	case A32_LDREXH:
		return n == PC || d == PC;
	case A32_LDREXD:
		return n == PC || (d & 1) || d == LR;
	case A32_STREXD:
		return n == PC || d == PC || (t & 1) || t == LR || d == n || d == t || d == t + 1;
	default:
		return any_is_pc(n, d, t, 0) || d == n || d == t;
	}
}

static bool unpredictable_rare(enum a32_op op, uint32_t word)
{
	uint32_t n = field_n(word), d = field_d(word), s = field_s(word), m = field_m(word);

	switch (op) {
	case A32_UMAAL:
	case A32_SMLALxy:
	case A32_SMLALD:
	case A32_SMLSLD:
		return any_is_pc(n, d, s, m) || n == d;
	case A32_SMLAWy:
		return any_is_pc(n, d, s, m);
	case A32_SMULWy:
		return any_is_pc(n, s, m, 0);
	case A32_SMLAD:
	case A32_SMLSD:
	case A32_SMMLA:
	case A32_USADA8:
		return any_is_pc(n, s, m, 0);
	case A32_SMMLS:
		return any_is_pc(n, d, s, m);
	case A32_SXTAB16:
	case A32_UXTAB16:
		return any_is_pc(d, m, 0, 0);
	case A32_SSAT16:
	case A32_USAT16:
		return any_is_pc(d, m, 0, 0);
	default:
		return any_is_pc(n, d, m, 0);
	}
}

static bool unpredictable_status(enum a32_op op, uint32_t word)
{
	uint32_t change = bits(word, 19, 18);

	switch (op) {
	case A32_MRS:
		return field_d(word) == PC;
	case A32_MSR_reg:
		return field_m(word) == PC || field_n(word) == 0;
	case A32_MSR_imm:
		return field_n(word) == 0;
	default:
		if (!bit(word, 17) && bits(word, 4, 0))
			return true;
		if (bit(change, 1) != (bits(word, 8, 6) != 0))
			return true;
		return change == 1 || (change == 0 && !bit(word, 17));
	}
}

static bool unpredictable_multiple(uint32_t word)
{
	uint32_t n = field_n(word), list = word & 0xffff;

	if (n == PC || !list)
		return true;
	if (!bit(word, 21) || !bit(list, n))
		return false;
	/* A load would overwrite the new base; a store has the old one only in the lowest place. */
	return bit(word, 20) || (list & ((1u << n) - 1));
}

static bool unpredictable_transfer(enum a32_op op, uint32_t word)
{
	uint32_t n = field_n(word), t = field_d(word), m = field_m(word);
	bool wide = a32_table[op].family == DOUBLE, single = a32_table[op].family == SINGLE;
	bool write_back = !bit(word, 24) || bit(word, 21);
	bool by_register = single ? bit(word, 25) : !bit(word, 22);
	bool is_load = wide ? !bit(word, 5) : bit(word, 20);

	if (by_register && m == PC)
		return true;
	if (write_back && (n == PC || n == t))
		return true;
	if (!wide)
		return t == PC && !(single && !bit(word, 22));
	if ((t & 1) || t == LR || (write_back && n == t + 1))
		return true;
	if (!bit(word, 24) && bit(word, 21))
		return true;
	return is_load && by_register && (m == t || m == t + 1);
}

bool a32_unpredictable(enum a32_op op, uint32_t word)
{
	uint32_t n = field_n(word), d = field_d(word), s = field_s(word), m = field_m(word);

	if (op == A32_UNDEFINED)
		return false;
	switch (a32_table[op].family) {
	case DATA_SHIFTED:
		return any_is_pc(n, d, s, m);
	case WIDE:
		return d == PC;
	case MULTIPLY:
		return any_is_pc(n, op == A32_MUL ? 0 : d, s, m);
	case MULTIPLY_LONG:
		return any_is_pc(n, d, s, m) || n == d;
	case HALF_MULTIPLY:
		return any_is_pc(n, op == A32_SMULxy ? 0 : d, s, m);
	case DIVIDE:
		return any_is_pc(n, s, m, 0);
	case UNARY:
	case EXTEND:
	case SATURATE:
		return any_is_pc(d, m, 0, 0);
	case BIT_FIELD:
		if (op == A32_BFI)
			return d == PC || bits(word, 20, 16) < bits(word, 11, 7);
		return any_is_pc(d, m, 0, 0) || bits(word, 20, 16) + bits(word, 11, 7) > 31;
	case SINGLE:
	case EXTRA:
	case DOUBLE:
		return unpredictable_transfer(op, word);
	case MULTIPLE:
		return unpredictable_multiple(word);
	case EXCLUSIVE:
		return unpredictable_exclusive(op, word);
	case SWAP:
		return any_is_pc(n, d, m, 0) || n == d || n == m;
	case BRANCH_REGISTER:
		return op == A32_BLX_reg && m == PC;
	case PRELOAD:
		return bit(word, 25) && m == PC;
	case STATUS:
		return unpredictable_status(op, word);
	case COPROCESSOR:
		return op == A32_MCR && d == PC;
	case RARE:
		return unpredictable_rare(op, word);
	default:
		return false;
	}
}

void a32_expand(uint32_t word, uint32_t address, struct instruction *in)
{
	in->op = a32_decode(word);
	in->word = word;
	in->raw = word;
	in->value = 0;
	in->pc = address + 8;
	in->next = address + 4;
	in->cond = field_cond(word) == COND_NEVER ? COND_AL : field_cond(word);
	in->second = (field_d(word) + 1) & 15;
	in->sets_carry = false;
	in->thumb = false;
	if (in->op == A32_UNDEFINED)
		return;
	switch (a32_table[in->op].family) {
	case DATA_IMMEDIATE:
		in->value = a32_immediate(word);
		in->sets_carry = bits(word, 11, 8);
		break;
	case STATUS:
		in->value = a32_immediate(word);
		break;
	case WIDE:
		in->value = bits(word, 19, 16) << 12 | bits(word, 11, 0);
		break;
	case SINGLE:
		in->value = bits(word, 11, 0);
		break;
	case EXTRA:
	case DOUBLE:
		if (bit(word, 22))
			in->value = bits(word, 11, 8) << 4 | bits(word, 3, 0);
		break;
	case EXCLUSIVE:
		/* STREXD's second register is behind m. */
		if (!bit(word, 20))
			in->second = (field_m(word) + 1) & 15;
		break;
	case BRANCH:
		in->value = a32_branch_target(word, address);
		if (in->op == A32_BLX_imm)
			in->value |= bit(word, 24) << 1 | 1;
		break;
	default:
		break;
	}
}
