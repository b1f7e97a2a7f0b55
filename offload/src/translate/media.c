// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates what stays in registers besides data processing: multiplication, bit fields, saturation. */
#include "translate/translate.h"

/* --- everything else that stays in registers --- */

static void multiply(struct translator *x)
{
	uint32_t word = x->in.word, d = field_n(word), a = field_d(word), s = field_s(word);
	uint32_t m = field_m(word);

	emit32(&x->code, 0xfb00 | m, (x->in.op == A32_MUL ? PC : a) << 12 | d << 8 |
	       (x->in.op == A32_MLS) << 4 | s);
	if (x->in.op != A32_MLS && field_set_flags(word))
		t32_register(&x->code, T32_ORR, true, d, PC, d, SHIFT_LSL, 0);
	forget_base(x, d);
}

static void multiply_long(struct translator *x)
{
	static const uint16_t first[] = { 0xfba0, 0xfbe0, 0xfb80, 0xfbc0 };
	uint32_t word = x->in.word, low = field_d(word), high = field_n(word);

	if (field_set_flags(word)) {
		x->interpret = true;
		return;
	}
	emit32(&x->code, first[bits(word, 22, 21)] | field_m(word), low << 12 | high << 8 | field_s(word));
	forget_base(x, low);
	forget_base(x, high);
}

static void multiply_halves(struct translator *x)
{
	uint32_t word = x->in.word, d = field_n(word), s = field_s(word), m = field_m(word), t;

	if (x->in.op != A32_SMULxy) {
		x->interpret = true;
		return;
	}
	t = take_scratch(x);
	if (bit(word, 5))
		t32_register(&x->code, T32_ORR, false, t, PC, m, SHIFT_ASR, 16);
	else
		emit32(&x->code, 0xfa0f, 0xf080 | t << 8 | m);
	if (bit(word, 6))
		t32_register(&x->code, T32_ORR, false, d, PC, s, SHIFT_ASR, 16);
	else
		emit32(&x->code, 0xfa0f, 0xf080 | d << 8 | s);
	emit32(&x->code, 0xfb00 | t, 0xf000 | d << 8 | d);
}

static void unary(struct translator *x)
{
	uint32_t m = field_m(x->in.word), d = field_d(x->in.word), first = 0xfa90, second;

	switch (x->in.op) {
	case A32_CLZ:
		first = 0xfab0;
		second = 0xf080;
		break;
	case A32_RBIT:
		second = 0xf0a0;
		break;
	case A32_REV:
		second = 0xf080;
		break;
	case A32_REV16:
		second = 0xf090;
		break;
	default:
		second = 0xf0b0;
		break;
	}
	emit32(&x->code, first | m, second | d << 8 | m);
	forget_base(x, d);
}

static void extend(struct translator *x)
{
	uint32_t word = x->in.word, d = field_d(word), n = field_n(word), m = field_m(word), to = d;
	uint32_t first = 0xfa0f | (bits(word, 21, 20) == 2) << 6 | bit(word, 22) << 4;

	if (n == d)
		to = take_scratch(x);
	emit32(&x->code, first, 0xf080 | to << 8 | bits(word, 11, 10) << 4 | m);
	if (n != PC)
		t32_register(&x->code, T32_ADD, false, d, n, to, SHIFT_LSL, 0);
	forget_base(x, d);
}

static void bit_field(struct translator *x)
{
	uint32_t word = x->in.word, first;

	first = x->in.op == A32_BFI ? 0xf360 : x->in.op == A32_SBFX ? 0xf340 : 0xf3c0;
	t32_bit_field(&x->code, first, field_m(word), field_d(word), bits(word, 11, 7),
		      bits(word, 20, 16));
	forget_base(x, field_d(word));
}

static void saturate(struct translator *x)
{
	uint32_t word = x->in.word, amount = bits(word, 11, 7), right = bit(word, 6);

	/* By 32 is as by 31; T32 has no such encoding. */
	if (right && !amount)
		amount = 31;
	t32_bit_field(&x->code, (bit(word, 22) ? 0xf380 : 0xf300) | right << 5, field_m(word),
		      field_d(word), amount, bits(word, 20, 16));
	forget_base(x, field_d(word));
}

bool load_constant_pair(struct translator *x)
{
	uint32_t index = index_behind(x, x->index), d = field_d(x->in.word);
	const struct instruction *next = &x->list[index];

	if (!is_joinable(x, index) || next->op != A32_MOVT || field_d(next->word) != d)
		return false;
	t32_constant(&x->code, d, (x->in.value & 0xffff) | next->value << 16);
	x->done = index;
	return true;
}

void translate_media(struct translator *x)
{
	uint32_t word = x->in.word, touched = instruction_reads(&x->in) | instruction_writes(&x->in);

	bool own = touched & 1u << scratch(x);

	/* SP's value is not the guest's; of these some use the scratch register themselves. */
	if ((touched & 1u << SP) || (own && ((a32_table[x->in.op].family == EXTEND && field_n(word) == field_d(word) &&
						uses_scratch(x, field_d(word))) ||
					       a32_table[x->in.op].family == HALF_MULTIPLY))) {
		x->interpret = true;
		return;
	}
	if (instruction_reads(&x->in) & 1u << scratch(x))
		load_guest_scratch(x);
	switch (a32_table[x->in.op].family) {
	case WIDE:
		if (x->in.op == A32_MOVT)
			t32_movt(&x->code, field_d(word), x->in.value);
		else if (!load_constant_pair(x))
			t32_movw(&x->code, field_d(word), x->in.value);
		forget_base(x, field_d(word));
		break;
	case MULTIPLY:
		multiply(x);
		break;
	case MULTIPLY_LONG:
		multiply_long(x);
		break;
	case HALF_MULTIPLY:
		multiply_halves(x);
		break;
	case DIVIDE:
		emit32(&x->code, (x->in.op == A32_SDIV ? 0xfb90 : 0xfbb0) | field_m(word),
		       0xf0f0 | field_n(word) << 8 | field_s(word));
		forget_base(x, field_n(word));
		break;
	case UNARY:
		unary(x);
		break;
	case EXTEND:
		extend(x);
		break;
	case BIT_FIELD:
		bit_field(x);
		break;
	default:
		saturate(x);
		break;
	}
	if (x->interpret)
		return;
	if (instruction_writes(&x->in) & 1u << scratch(x))
		store_guest_scratch(x);
}
