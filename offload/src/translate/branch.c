// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates branches, barriers and reads of thread registers. */
#include "translate/translate.h"
#include "emit/t32.h"

void leave_by_branch(struct translator *x, uint32_t target, uint32_t first, uint32_t second)
{
	if (x->exits == EXITS_MAX) {
		x->code.overflow = true;
		return;
	}
	x->exit[x->exits].at = x->code.at;
	x->exit[x->exits].held = held_now(x);
	x->exit[x->exits].index = index_of(x, target, x->index);
	x->exit[x->exits++].target = target;
	emit32(&x->code, first, second);
	x->ends_it = true;
}

void translate_branch(struct translator *x)
{
	uint32_t word = x->in.word, m = field_m(word);
	uint32_t link = instruction_links(&x->in) ? x->in.next : 0;

	if (a32_table[x->in.op].family == BRANCH) {
		uint32_t target = x->in.value;

		if (link) {
			t32_constant(&x->code, LR, link);
			forget_base(x, LR);
			leave_by_branch(x, target, 0xf000, 0x9000);
		} else if (x->in.cond < COND_AL) {
			leave_by_branch(x, target, 0xf000 | x->in.cond << 6, 0x8000);
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

void translate_compare_branch(struct translator *x)
{
	uint32_t n = field_n(x->in.word);

	if (uses_scratch(x, n))
		load_guest_scratch(x);
	/* cbnz or cbz over the branch, which reaches farther than theirs */
	emit16(&x->code, (x->in.op == A32_CBZ ? 0xb908 : 0xb108) | n);
	leave_by_branch(x, x->in.value, 0xf000, 0x9000);
}

void translate_table_branch(struct translator *x)
{
	uint32_t n = field_n(x->in.word), m = field_m(x->in.word), base;
	bool wide = x->in.op == A32_TBH;

	if (uses_scratch(x, m) || !uses_table(x)) {
		x->interpret = true;
		return;
	}
	if (n == PC)
		t32_constant(&x->code, base = take_scratch(x), x->in.pc + delta(x));
	else
		base = host_base_register(x, n);
	t32_transfer_register(&x->code, wide ? KIND_LDRH : KIND_LDRB, take_scratch(x), base, m, wide);
	t32_register(&x->code, T32_ORR, false, scratch(x), PC, scratch(x), SHIFT_LSL, 1);
	t32_add_constant(&x->code, scratch(x), scratch(x), x->in.pc + table_delta(x));
	load_target(x);
	x->ends_it = true;
}

void translate_barrier(struct translator *x)
{
	static const uint8_t kinds[] = { 0x40, 0x50, 0x60 };

	emit32(&x->code, 0xf3bf, 0x8f00 | kinds[x->in.op - A32_DSB] | (x->in.word & 15));
}

/* mrc p15, 0, d, c13, c0, 2 to 4: a thread register, as a kernel reads it for its current task. */
void translate_thread_register(struct translator *x)
{
	uint32_t word = x->in.word, d = field_d(word), which = bits(word, 7, 5) - 2;

	if ((word & 0x0fff0f1f) != 0x0e1d0f10 || which > 2 || d >= SP || uses_scratch(x, d)) {
		x->interpret = true;
		return;
	}
	state_address(x, d, offsetof(struct offload_state, thread) + 4 * which);
	t32_transfer(&x->code, KIND_LDR, d, d, 0);
	forget_base(x, d);
}

/*
 * What a kernel masks interrupts with: mrs d, cpsr; cpsid and cpsie; msr cpsr_c, m, which puts the mask back.
 * Reading it needs no call: the guest's mask is in memory, its flags are the host's. To change it is the
 * executor's, as it is not in memory that translated code can write; but no register has to be moved.
 */
void translate_status(struct translator *x)
{
	uint32_t word = x->in.word, d = field_d(word), m = field_m(word), change;

	if (!protects_state(x->layout)) {
		x->interpret = true;
		return;
	}
	switch (x->in.op) {
	case A32_MRS:
		if (d >= SP || uses_scratch(x, d)) {
			x->interpret = true;
			return;
		}
		forget_base(x, d);
		state_address(x, take_scratch(x), offsetof(struct offload_state, status));
		t32_transfer(&x->code, KIND_LDR, scratch(x), scratch(x), 0);
		emit32(&x->code, 0xf3ef, 0x8000 | d << 8);	/* mrs d, apsr */
		t32_register(&x->code, T32_ORR, false, d, d, scratch(x), SHIFT_LSL, 0);
		return;
	case A32_CPS:
		change = (bit(word, 18) ? CONTROL_SET : CONTROL_CLEAR) | bits(word, 8, 6);
		/* Another mode, or none of the bits. */
		if (bit(word, 17) || !bit(word, 19)) {
			x->interpret = true;
			return;
		}
		break;
	case A32_MSR_reg:
		change = CONTROL_FROM | m;
		if (bits(word, 19, 16) != 1 || m >= SP) {
			x->interpret = true;
			return;
		}
		if (uses_scratch(x, m))
			load_guest_scratch(x);
		x->holds = HOLDS_NOTHING;
		break;
	default:
		x->interpret = true;
		return;
	}
	t32_call(&x->code, CALL_CONTROL);
	emit16(&x->code, change);
}
