// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The general way for an instruction that uses the scratch register's guest value and something that needs
 * the scratch register, too: the instruction is translated with another register instead, whose own value is
 * on the stack meanwhile.
 *
 *   push {t}                     t: a register that the instruction does not use
 *   movw t, #slot; ldr t, [t]    the guest's value, if it is read
 *   the instruction, with t
 *   movw s, #slot; strd t, t, [s]    if it is written; s: the scratch register
 *   pop {t}
 */
#include "translate/steps.h"

enum { FIELD_N = 16, FIELD_D = 12, FIELD_S = 8, FIELD_M = 0 };

/* Where a family has registers in its word: one bit for each field's shift; 0: not renamed. */
static uint32_t fields_of(const struct instruction *in)
{
	uint32_t n = 1u << FIELD_N, d = 1u << FIELD_D, s = 1u << FIELD_S, m = 1u << FIELD_M;

	switch (a32_table[in->op].family) {
	case DATA_IMMEDIATE:
		return n | d;
	case DATA_REGISTER:
	case EXTEND:
		return n | d | m;
	case DATA_SHIFTED:
	case MULTIPLY:
	case MULTIPLY_LONG:
	case HALF_MULTIPLY:
	case DIVIDE:
		return n | d | s | m;
	case UNARY:
	case BIT_FIELD:
	case SATURATE:
		return d | m;
	case SINGLE:
		return n | d | (bit(in->word, 25) ? m : 0);
	case EXTRA:
	case DOUBLE:
		return n | d | (bit(in->word, 22) ? 0 : m);
	case MULTIPLE:
		return n;
	case STATUS:
		return in->op == A32_MRS ? d : 0;
	case COPROCESSOR:
		return in->op == A32_MRC ? d : 0;
	default:
		return 0;
	}
}

/* A register that the instruction does not use; in a list it must stand where the scratch register does. */
static int substitute(const struct translator *x, uint32_t used)
{
	bool listed = a32_table[x->in.op].family == MULTIPLE && bit(x->in.word, scratch(x));
	uint32_t never = used | x->hosted | 1u << scratch(x), list = x->in.word & 0xffff;

	for (int t = 0; t < SP; t++) {
		uint32_t low = (uint32_t)t < scratch(x) ? (uint32_t)t : scratch(x);
		uint32_t high = (uint32_t)t < scratch(x) ? scratch(x) : (uint32_t)t;
		uint32_t between = ((1u << high) - 1) & ~((2u << low) - 1);

		if (!bit(never, t) && (!listed || !(list & between)))
			return t;
	}
	return -1;
}

static void rename_fields(const struct translator *x, struct instruction *in, uint32_t fields, uint32_t t)
{
	uint32_t from = scratch(x);

	for (uint32_t shift = 0; shift <= FIELD_N; shift += 4)
		if (bit(fields, shift) && (in->word >> shift & 15) == from)
			in->word = (in->word & ~(15u << shift)) | t << shift;
	if (a32_table[in->op].family == DOUBLE && in->second == from)
		in->second = t;
	if (a32_table[in->op].family == MULTIPLE && bit(in->word, from))
		in->word = (in->word & ~(1u << from)) | 1u << t;
}

bool translate_renamed(struct translator *x)
{
	struct instruction original = x->in;
	uint32_t reads = instruction_reads(&x->in), writes = instruction_writes(&x->in), fields, from;
	uint32_t slot = offsetof(struct offload_state, scratch);
	uint32_t copies = x->stack_copies;
	bool carries = x->carries;
	int t;

	if (!protects_state(x->layout) || !bit(reads | writes, scratch(x)) || bit(reads | writes, SP) ||
	    bit(writes, PC) || instruction_branches(&x->in))
		return false;
	fields = fields_of(&x->in);
	t = substitute(x, reads | writes);
	if (!fields || t < 0)
		return false;
	x->holds = HOLDS_NOTHING;
	t32_transfer_moving(&x->code, KIND_STR, t, SP, -4, true);
	from = x->code.at;
	if (bit(reads, scratch(x))) {
		state_address(x, t, slot);
		t32_transfer(&x->code, KIND_LDR, t, t, 0);
	}
	rename_fields(x, &x->in, fields, t);
	x->interpret = false;
	/*
	 * The distance would need a fix-up of its own; SP has moved, and t is no copy of it, nor the register of that name
	 * in what follows.
	 */
	x->carries = false;
	x->stack_copies = 0;
	x->alone = true;
	translate_body(x);
	x->alone = false;
	x->carries = carries;
	x->stack_copies = copies;
	x->in = original;
	x->holds = HOLDS_NOTHING;
	if (x->interpret)
		return false;
	/* Where it is not executed the register is as it was. */
	add_fixup(x, from, FIX_RENAMED, t);
	if (bit(writes, scratch(x)))
		copy_to_guest_scratch(x, t);
	t32_transfer_moving(&x->code, KIND_LDR, t, SP, 4, false);
	x->code.keep_single = true;
	return true;
}
