// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Operands of instructions: registers as they are read and written, shifted values. */
#include "interpret/interpret.h"

uint32_t step_read(const struct step *step, uint32_t number)
{
	return number == PC ? step->in->pc : step->cpu->r[number];
}

enum offload_stop step_write(struct step *step, uint32_t number, uint32_t value)
{
	if (number != PC) {
		step->cpu->r[number] = value;
		return OFFLOAD_RUNNING;
	}
	if ((value & 3) == 2)
		return OFFLOAD_UNPREDICTABLE;
	step->next = value;
	return OFFLOAD_RUNNING;
}

uint32_t shift_value(uint32_t value, unsigned int type, unsigned int amount, bool *carry)
{
	if (!amount)
		return value;
	switch (type) {
	case SHIFT_LSL:
		*carry = amount <= 32 && bit(value, 32 - amount);
		return amount < 32 ? value << amount : 0;
	case SHIFT_LSR:
		*carry = amount <= 32 && bit(value, amount - 1);
		return amount < 32 ? value >> amount : 0;
	case SHIFT_ASR:
		if (amount > 31) {
			*carry = bit(value, 31);
			return *carry ? 0xffffffff : 0;
		}
		*carry = bit(value, amount - 1);
		return (uint32_t)((int32_t)value >> amount);
	default:
		value = rotate_right(value, amount);
		*carry = bit(value, 31);
		return value;
	}
}

uint32_t shifted_operand(const struct step *step, bool *carry)
{
	uint32_t word = step->in->word, value = step_read(step, field_m(word));
	unsigned int type = bits(word, 6, 5), amount = bits(word, 11, 7);

	if (bit(word, 4) && bits(word, 27, 25) == 0)
		return shift_value(value, type, step_read(step, field_s(word)) & 0xff, carry);
	if (amount || type == SHIFT_LSL)
		return shift_value(value, type, amount, carry);
	if (type == SHIFT_ROR) {
		uint32_t result = value >> 1 | (uint32_t)*carry << 31;

		*carry = value & 1;
		return result;
	}
	return shift_value(value, type, 32, carry);
}
