// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Interprets data processing: shifts, sums, logical operations. */
#include "interpret/interpret.h"

static uint32_t add_with_carry(uint32_t a, uint32_t b, bool carry_in, uint32_t *flags)
{
	uint64_t sum = (uint64_t)a + b + carry_in;
	uint32_t result = (uint32_t)sum;

	*flags &= ~(FLAG_C | FLAG_V);
	if (sum >> 32)
		*flags |= FLAG_C;
	if ((~(a ^ b) & (a ^ result)) >> 31)
		*flags |= FLAG_V;
	return result;
}

enum offload_stop interpret_data(struct step *step)
{
	uint32_t word = step->in->word, opcode = instruction_opcode(step->in);
	uint32_t flags = step->cpu->flags;
	bool carry_in = flags & FLAG_C, carry = carry_in;
	uint32_t a = step_read(step, field_n(word)), b, result;

	if (a32_table[step->in->op].family == DATA_IMMEDIATE) {
		b = step->in->value;
		if (step->in->sets_carry)
			carry = b >> 31;
	} else {
		b = shifted_operand(step, &carry);
	}
	switch (opcode) {
	case OP_AND:
	case OP_TST:
		result = a & b;
		break;
	case OP_EOR:
	case OP_TEQ:
		result = a ^ b;
		break;
	case OP_SUB:
	case OP_CMP:
		result = add_with_carry(a, ~b, true, &flags);
		break;
	case OP_RSB:
		result = add_with_carry(~a, b, true, &flags);
		break;
	case OP_ADD:
	case OP_CMN:
		result = add_with_carry(a, b, false, &flags);
		break;
	case OP_ADC:
		result = add_with_carry(a, b, carry_in, &flags);
		break;
	case OP_SBC:
		result = add_with_carry(a, ~b, carry_in, &flags);
		break;
	case OP_RSC:
		result = add_with_carry(~a, b, carry_in, &flags);
		break;
	case OP_ORR:
		result = a | b;
		break;
	case OP_MOV:
		result = b;
		break;
	case OP_BIC:
		result = a & ~b;
		break;
	case OP_ORN:
		result = a | ~b;
		break;
	default:
		result = ~b;
		break;
	}
	if (opcode_is_logical(opcode))
		flags = (flags & ~FLAG_C) | (carry ? FLAG_C : 0);
	flags = (flags & ~(FLAG_N | FLAG_Z)) | (result & FLAG_N) | (result ? 0 : FLAG_Z);
	if (opcode_compares(opcode)) {
		step->cpu->flags = flags;
		return OFFLOAD_RUNNING;
	}
	if (field_set_flags(word)) {
		/* movs pc and its like return from an exception. */
		if (field_d(word) == PC)
			return OFFLOAD_REFUSED;
		step->cpu->flags = flags;
	}
	/* In T32 these do not change the instruction set. */
	if (step->in->thumb && field_d(word) == PC)
		result |= 1;
	return step_write(step, field_d(word), result);
}
