// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Writes instructions in assembler syntax, for reports. */
#include "decode/a32.h"

struct text {
	char *at;
	char *end;
};

static void put(struct text *text, char c)
{
	if (text->at < text->end)
		*text->at++ = c;
}

static void put_string(struct text *text, const char *string)
{
	while (*string)
		put(text, *string++);
}

static void put_decimal(struct text *text, uint32_t value)
{
	char digits[10];
	int count = 0;

	do {
		digits[count++] = '0' + value % 10;
		value /= 10;
	} while (value);
	while (count)
		put(text, digits[--count]);
}

static void put_hex(struct text *text, uint32_t value)
{
	int shift = 28;

	put_string(text, "0x");
	while (shift && !(value >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		put(text, "0123456789abcdef"[(value >> shift) & 15]);
}

static void put_register(struct text *text, uint32_t number)
{
	if (number == SP) {
		put_string(text, "sp");
	} else if (number == LR) {
		put_string(text, "lr");
	} else if (number == PC) {
		put_string(text, "pc");
	} else {
		put(text, 'r');
		put_decimal(text, number);
	}
}

static const char *const shift_names[] = { "lsl", "lsr", "asr", "ror" };

/* A register and its shift by a constant. */
static void put_shifted(struct text *text, uint32_t word)
{
	uint32_t amount = bits(word, 11, 7), type = bits(word, 6, 5);

	put_register(text, field_m(word));
	if (!amount && type == SHIFT_LSL)
		return;
	if (!amount && type == SHIFT_ROR) {
		put_string(text, ", rrx");
		return;
	}
	put_string(text, ", ");
	put_string(text, shift_names[type]);
	put_string(text, " #");
	put_decimal(text, amount ? amount : 32);
}

static void put_list(struct text *text, uint32_t list)
{
	bool first = true;

	for (uint32_t number = 0; number < 16; number++) {
		if (!bit(list, number))
			continue;
		if (!first)
			put_string(text, ", ");
		put_register(text, number);
		first = false;
	}
}

/* An address: base, offset, and when the offset is added. */
static void put_address(struct text *text, uint32_t word, bool by_register, uint32_t offset)
{
	put(text, '[');
	put_register(text, field_n(word));
	if (!bit(word, 24))
		put(text, ']');
	if (by_register || offset || !bit(word, 23)) {
		put_string(text, by_register ? ", " : ", #");
		if (!bit(word, 23))
			put(text, '-');
		if (!by_register)
			put_decimal(text, offset);
		else if (bits(word, 27, 25) == 3)
			put_shifted(text, word);
		else
			put_register(text, field_m(word));
		if (by_register && offset && bits(word, 27, 25) == 0) {
			put_string(text, ", lsl #");
			put_decimal(text, offset);
		}
	}
	if (bit(word, 24))
		put(text, ']');
	if (bit(word, 24) && bit(word, 21))
		put(text, '!');
}

static void put_field_mask(struct text *text, uint32_t mask)
{
	for (int i = 0; i < 4; i++)
		if (bit(mask, i))
			put(text, "cxsf"[i]);
}

static void put_coprocessor(struct text *text, uint32_t word)
{
	put(text, 'p');
	put_decimal(text, field_s(word));
	put_string(text, ", ");
	put_decimal(text, bits(word, 23, 21));
	put_string(text, ", ");
	put_register(text, field_d(word));
	put_string(text, ", c");
	put_decimal(text, field_n(word));
	put_string(text, ", c");
	put_decimal(text, field_m(word));
	put_string(text, ", ");
	put_decimal(text, bits(word, 7, 5));
}

static void put_field(struct text *text, char what, const struct instruction *in)
{
	uint32_t word = in->word;
	static const char conditions[] = "eqnecsccmiplvsvchilsgeltgtle";

	switch (what) {
	case 'c':
		if (in->cond < COND_AL) {
			put(text, conditions[2 * in->cond]);
			put(text, conditions[2 * in->cond + 1]);
		}
		break;
	case 'S':
		if (field_set_flags(word))
			put(text, 's');
		break;
	case 'n':
		put_register(text, field_n(word));
		break;
	case 'd':
		put_register(text, field_d(word));
		break;
	case 's':
		put_register(text, field_s(word));
		break;
	case 'm':
		put_register(text, field_m(word));
		break;
	case 'p':
		put_register(text, in->second);
		break;
	case 'q':
		put_register(text, in->second);
		break;
	case 'i':
		put(text, '#');
		put_hex(text, in->value);
		break;
	case 'u':
		put(text, '#');
		put_hex(text, in->value);
		break;
	case 'k':
		put(text, '#');
		put_hex(text, in->thumb ? in->value : bits(word, 19, 0));
		break;
	case 'h':
		put_shifted(text, word);
		break;
	case 'r':
		put_register(text, field_m(word));
		put_string(text, ", ");
		put_string(text, shift_names[bits(word, 6, 5)]);
		put(text, ' ');
		put_register(text, field_s(word));
		break;
	case 'a':
		put_address(text, word, bit(word, 25), in->value);
		break;
	case 'x':
		put_address(text, word, !bit(word, 22), in->value);
		break;
	case 'g':
		put_list(text, word & 0xffff);
		break;
	case '!':
		if (bit(word, 21))
			put(text, '!');
		break;
	case 'b':
		put_hex(text, in->value & ~1u);
		break;
	case 'f':
		put_field_mask(text, field_n(word));
		break;
	case 'j':
		put(text, '#');
		put_decimal(text, bits(word, 20, 16) + !bit(word, 22));
		break;
	case 'l':
		put(text, '#');
		put_decimal(text, bits(word, 11, 7));
		break;
	case 'o':
		if (bits(word, 11, 10)) {
			put_string(text, ", ror #");
			put_decimal(text, 8 * bits(word, 11, 10));
		}
		break;
	case 'y':
		put(text, bit(word, 5) ? 't' : 'b');
		put(text, bit(word, 6) ? 't' : 'b');
		break;
	case 'w':
		put(text, bit(word, 6) ? 't' : 'b');
		break;
	case 'z':
		put_coprocessor(text, word);
		break;
	}
}

size_t instruction_disassemble(const struct instruction *in, char *buffer, size_t size)
{
	struct text text = { buffer, buffer + size - 1 };
	const char *syntax = in->op == A32_UNDEFINED ? "undefined" : a32_table[in->op].syntax;

	for (; *syntax; syntax++) {
		if (*syntax == '%')
			put_field(&text, *++syntax, in);
		else
			put(&text, *syntax);
	}
	*text.at = 0;
	return text.at - buffer;
}
