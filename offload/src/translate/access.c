// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a load or store of one register accesses. */
#include "translate/translate.h"

struct access access_of(const struct instruction *in)
{
	uint32_t word = in->word;
	struct access a;

	a.load = bit(word, 20);
	a.t = field_d(word);
	a.n = field_n(word);
	a.m = 16;
	a.type = SHIFT_LSL;
	a.amount = 0;
	a.offset = 0;
	a.up = bit(word, 23);
	a.before = bit(word, 24);
	a.move = !bit(word, 24) || bit(word, 21);
	if (a32_table[in->op].family == SINGLE) {
		a.kind = bit(word, 22) ? KIND_STRB : KIND_STR;
		if (bit(word, 25)) {
			a.m = field_m(word);
			a.type = bits(word, 6, 5);
			a.amount = bits(word, 11, 7);
		} else {
			a.offset = in->value;
		}
	} else {
		a.kind = bit(word, 5) ? KIND_STRH : KIND_STRB;
		if (bit(word, 6))
			a.kind |= KIND_LDRSB & ~KIND_LDRB;
		if (bit(word, 22))
			a.offset = in->value;
		else
			a.m = field_m(word);
		if (a.m != 16)
			a.amount = in->value;
	}
	a.kind |= a.load << 4;
	if (!a.up)
		a.offset = -a.offset;
	return a;
}
