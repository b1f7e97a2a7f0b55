// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Translates instructions for which an optimisation is switched off, as a generic translator does:
 *
 *   without OPTION_REGISTERS    every guest register is in offload_state; each instruction loads what
 *                               it reads and stores what it writes
 *   without OPTION_FLAGS        N Z C V Q are five variables there
 *   without OPTION_STACK        the guest's SP is, too; the host's SP points to offload_state
 *   without OPTION_PROTECTION   each access checks its address against the linear map and adds
 *   without OPTION_LINEAR       each access looks its page up in a TLB
 *   without OPTION_INTERRUPTS   each block looks for an interrupt
 *
 * All of them can be switched alone. Operations themselves are those of the other files.
 */
#include "translate/plain/place.h"
#include "translate/plain/memory.h"

/* Around what uses temporary registers; without OPTION_REGISTERS there is nothing in them. */
static void push(struct translator *x, uint32_t list)
{
	if (!has(x, OPTION_REGISTERS))
		return;
	t32_push(&x->code, list);
	x->pushed += count_bits(list);
}

static void pop(struct translator *x, uint32_t list)
{
	if (!has(x, OPTION_REGISTERS))
		return;
	t32_pop(&x->code, list);
	x->pushed -= count_bits(list);
}

/* --- flags --- */

static uint32_t flag_offset(uint32_t index)
{
	return offsetof(struct offload_state, flags) + 4 * index;
}

/* Some flags from memory into the host's; the others of the host's become 0. */
static void load_flags(struct translator *x, uint32_t flags, uint32_t used)
{
	uint32_t to = take_scratch(x), list = pick(used, scratch(x), 1), other = lowest(list);
	bool first = true, many = flags & (flags - 1);

	if (!flags)
		return;
	if (many)
		push(x, list);
	for (uint32_t i = 0; i < 5; i++) {
		if (!bit(flags, 31 - i))
			continue;
		state_load(x, first ? to : other, flag_offset(i));
		if (first)
			t32_register(&x->code, T32_ORR, false, to, PC, to, SHIFT_LSL, 31 - i);
		else
			t32_register(&x->code, T32_ORR, false, to, to, other, SHIFT_LSL, 31 - i);
		first = false;
	}
	if (many)
		pop(x, list);
	emit32(&x->code, 0xf380 | to, 0x8800);	/* msr apsr_nzcvq */
}

static void store_flags(struct translator *x, uint32_t flags, uint32_t used)
{
	uint32_t from = take_scratch(x), list = pick(used, scratch(x), has(x, OPTION_STACK) ? 2 : 1);
	uint32_t value = lowest(list), through = lowest(list & (list - 1));

	if (!flags)
		return;
	push(x, list);
	emit32(&x->code, 0xf3ef, 0x8000 | from << 8);	/* mrs apsr */
	for (uint32_t i = 0; i < 5; i++) {
		if (!bit(flags, 31 - i))
			continue;
		t32_bit_field(&x->code, 0xf3c0, from, value, 31 - i, 0);
		state_store(x, value, flag_offset(i), through);
	}
	pop(x, list);
}

/* --- branches --- */

static void plain_branch(struct translator *x)
{
	const struct instruction *in = &x->in;
	uint32_t list = pick(0, scratch(x), 2), u = lowest(list), v = lowest(list & (list - 1));
	uint32_t family = a32_table[in->op].family, over;

	if (has(x, OPTION_REGISTERS)) {
		translate_body(x);
		return;
	}
	if (family == TABLE_BRANCH || (family == BRANCH_REGISTER && field_m(in->word) == PC)) {
		x->interpret = true;
		return;
	}
	if (family == BRANCH_REGISTER)
		value_in(x, field_m(in->word), take_scratch(x));
	if (instruction_links(in)) {
		t32_constant(&x->code, u, in->next);
		put_value(x, LR, u, v);
	}
	if (family == BRANCH_REGISTER) {
		emit_dispatch(x, scratch(x), 0);
	} else if (family == COMPARE_BRANCH) {
		value_in(x, field_n(in->word), u);
		emit16(&x->code, (in->op == A32_CBZ ? 0xb900 : 0xb100) | u);
		over = x->code.at - 2;
		leave_by_branch(x, in->value, 0xf000, 0x9000);
		land(x, over);
	} else {
		leave_by_branch(x, in->value, 0xf000, 0x9000);
	}
}

/* --- everything else --- */

/* Another register where SP was. */
static uint32_t without_stack(const struct instruction *in, uint32_t by)
{
	static const uint8_t places[] = { 0, 8, 12, 16 };
	uint32_t word = in->word, fields = 0;

	switch (a32_table[in->op].family) {
	case DATA_REGISTER:
		fields = 1 | 4 | 8;
		break;
	case DATA_IMMEDIATE:
		fields = 4 | 8;
		break;
	case DATA_SHIFTED:
	case MULTIPLY:
	case MULTIPLY_LONG:
	case HALF_MULTIPLY:
	case DIVIDE:
		fields = 15;
		break;
	case WIDE:
		fields = 4;
		break;
	case UNARY:
	case BIT_FIELD:
	case SATURATE:
		fields = 1 | 4;
		break;
	case EXTEND:
		fields = 1 | 4 | 8;
		break;
	default:
		break;
	}
	for (uint32_t i = 0; i < 4; i++)
		if (bit(fields, i) && (word >> places[i] & 15) == SP)
			word = (word & ~(15u << places[i])) | by << places[i];
	return word;
}

static void plain_data(struct translator *x)
{
	uint32_t reads = instruction_reads(&x->in), writes = instruction_writes(&x->in);
	bool stack = !has(x, OPTION_STACK) && bit(reads | writes, SP);
	uint32_t list = stack ? pick(reads | writes, scratch(x), 1) : 0, own = lowest(list);

	if (stack && (!list || bit(writes, PC))) {
		x->interpret = true;
		return;
	}
	if (!has(x, OPTION_REGISTERS))
		for (uint32_t i = 0; i < PC; i++)
			if (bit(reads, i) && i != SP && !uses_scratch(x, i))
				state_load(x, i, slot_of(x, i));
	if (stack) {
		push(x, list);
		if (bit(reads, SP))
			state_load(x, own, slot_of(x, SP));
		x->in.word = without_stack(&x->in, own);
	}
	translate_body(x);
	if (stack) {
		if (bit(writes, SP))
			state_store(x, own, slot_of(x, SP), NONE);
		pop(x, list);
	}
	if (!has(x, OPTION_REGISTERS))
		for (uint32_t i = 0; i < PC; i++)
			if (bit(writes, i) && i != SP && !uses_scratch(x, i))
				state_store(x, i, slot_of(x, i), take_scratch(x));
}

static void plain_body(struct translator *x)
{
	switch (a32_table[x->in.op].family) {
	case HINT:
	case PRELOAD:
	case BARRIER:
	case STATUS:
	case COPROCESSOR:
	case RARE:
	case EXCLUSIVE:
	case SWAP:
		translate_body(x);
		break;
	case SINGLE:
	case EXTRA:
	case DOUBLE:
	case MULTIPLE:
		if (is_plain_transfer(x))
			plain_transfer(x);
		else
			translate_body(x);
		break;
	case BRANCH:
	case BRANCH_REGISTER:
	case COMPARE_BRANCH:
	case TABLE_BRANCH:
		plain_branch(x);
		break;
	default:
		plain_data(x);
		break;
	}
}

void translate_plain(struct translator *x)
{
	uint32_t cond = x->in.cond, used = touched(&x->in), over = 0;
	uint32_t reads = instruction_reads_flags(&x->in);
	uint32_t writes = instruction_writes_flags(&x->in);

	if (!has(x, OPTION_FLAGS))
		load_flags(x, reads, has(x, OPTION_REGISTERS) ? used : 0);
	if (cond < COND_AL) {
		over = x->code.at;
		emit32(&x->code, 0xf000 | (cond ^ 1) << 6, 0x8000);
		x->in.cond = COND_AL;
	}
	plain_body(x);
	if (!has(x, OPTION_FLAGS) && !x->interpret)
		store_flags(x, writes, has(x, OPTION_REGISTERS) ? used : 0);
	if (cond < COND_AL && !x->interpret && !x->code.overflow) {
		uint32_t code = t32_branch_if(cond ^ 1, over, x->code.at);

		for (int i = 0; i < 4; i++)
			x->code.out[over + i] = code >> 8 * i;
	}
}

void translate_poll(struct translator *x)
{
	uint32_t u = scratch(x) == 0, list = 1u << u, over;

	push(x, list);
	state_load(x, u, offsetof(struct offload_state, pending));
	over = jump_if_zero(x, u);
	pop(x, list);
	t32_call(&x->code, CALL_POLL);
	if (has(x, OPTION_REGISTERS)) {
		/* b.n over the other pop */
		emit16(&x->code, 0xe000);
		land(x, over);
		x->pushed++;
		pop(x, list);
	} else {
		land(x, over);
	}
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
}
