// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates branches, barriers and status registers; chooses the translation of each family. */
#include "translate.h"
#include "t32.h"

static void leave_by_branch(struct translator *x, uint32_t target, uint32_t first, uint32_t second)
{
	if (x->exits == EXITS_MOST) {
		x->overflow = true;
		return;
	}
	x->exit[x->exits].at = x->at;
	x->exit[x->exits++].target = target;
	emit32(x, first, second);
	x->ends_it = true;
}

/* From a guest address to its entry in the target table. */
static uint32_t table_delta(const struct translator *x)
{
	return x->layout->table_base - x->layout->guest_base;
}

void emit_dispatch(struct translator *x, uint32_t number, uint32_t link)
{
	if (uses_scratch(x, number) && x->holds == HOLDS_GUEST && link)
		x->holds = HOLDS_NOTHING;
	if (!translator_option(x, OPTION_TABLE)) {
		if (number != scratch(x))
			t32_mov(x, scratch(x), number);
		if (link)
			t32_constant(x, LR, link);
		t32_call(x, CALL_DISPATCH);
	} else {
		t32_add_constant(x, scratch(x), number, table_delta(x));
		if (link)
			t32_constant(x, LR, link);
		t32_transfer(x, KIND_LDR, PC, scratch(x), 0);
	}
	x->holds = HOLDS_NOTHING;
	x->ends_it = true;
}

void translate_branch(struct translator *x)
{
	uint32_t word = x->word, m = field_m(word);
	uint32_t link = x->op == A32_BL || x->op == A32_BLX_reg ? x->address + 4 : 0;

	if (a32_table[x->op].family == BRANCH) {
		uint32_t target = a32_branch_target(word, x->address);

		if (link) {
			t32_constant(x, LR, link);
			forget_base(x, LR);
			leave_by_branch(x, target, 0xf000, 0x9000);
		} else if (field_cond(word) < COND_AL) {
			leave_by_branch(x, target, 0xf000 | field_cond(word) << 6, 0x8000);
		} else {
			leave_by_branch(x, target, 0xf000, 0x9000);
		}
		return;
	}
	if (m == PC || m == SP) {
		x->interpret = true;
		return;
	}
	if (uses_scratch(x, m))
		load_guest_scratch(x);
	emit_dispatch(x, m, link);
}

static void barrier(struct translator *x)
{
	static const uint8_t kinds[] = { 0x40, 0x50, 0x60 };

	emit32(x, 0xf3bf, 0x8f00 | kinds[x->op - A32_DSB] | (x->word & 15));
}

void translate_body(struct translator *x)
{
	if (!translator_option(x, OPTION_REGISTERS) || !translator_option(x, OPTION_FLAGS) ||
	    !translator_option(x, OPTION_STACK) || !translator_option(x, OPTION_PROTECTION)) {
		translate_plain(x);
		return;
	}
	switch (a32_table[x->op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		translate_data(x);
		break;
	case SINGLE:
	case EXTRA:
	case DOUBLE:
		translate_transfer(x);
		break;
	case MULTIPLE:
		translate_multiple(x);
		break;
	case EXCLUSIVE:
	case SWAP:
		translate_exclusive(x);
		break;
	case BRANCH:
	case BRANCH_REGISTER:
		translate_branch(x);
		break;
	case HINT:
	case PRELOAD:
		break;
	case BARRIER:
		barrier(x);
		break;
	case STATUS:
	case COPROCESSOR:
	case RARE:
		x->interpret = true;
		break;
	default:
		translate_media(x);
		break;
	}
}
