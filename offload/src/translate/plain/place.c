// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Where guest registers are when optimisations are off, and which instructions that concerns. */
#include "translate/plain/place.h"

void state_load(struct translator *x, uint32_t to, uint32_t offset)
{
	if (has(x, OPTION_STACK)) {
		t32_movw(&x->code, to, x->layout->state + offset);
		t32_transfer(&x->code, KIND_LDR, to, to, 0);
	} else {
		t32_transfer(&x->code, KIND_LDR, to, SP, offset + 4 * x->pushed);
	}
}

void state_store(struct translator *x, uint32_t from, uint32_t offset, uint32_t through)
{
	if (has(x, OPTION_STACK)) {
		t32_movw(&x->code, through, x->layout->state + offset);
		t32_transfer(&x->code, KIND_STR, from, through, 0);
	} else {
		t32_transfer(&x->code, KIND_STR, from, SP, offset + 4 * x->pushed);
	}
}

uint32_t pick(uint32_t used, uint32_t scratch_register, uint32_t count)
{
	uint32_t list = 0;

	for (uint32_t i = 0; i < 8 && count; i++) {
		if (bit(used, i) || i == scratch_register)
			continue;
		list |= 1u << i;
		count--;
	}
	return list;
}

uint32_t jump_if_zero(struct translator *x, uint32_t number)
{
	emit16(&x->code, 0xb100 | number);
	return x->code.at - 2;
}

void land(struct translator *x, uint32_t from)
{
	uint32_t offset = x->code.at - from - 4;

	if (x->code.overflow)
		return;
	x->code.out[from] |= bits(offset, 5, 1) << 3;
	x->code.out[from + 1] |= bit(offset, 6) << 1;
}

bool in_host_register(const struct translator *x, uint32_t number)
{
	return has(x, OPTION_REGISTERS) && number != SP && number != PC && !uses_scratch(x, number);
}

uint32_t value_in(struct translator *x, uint32_t number, uint32_t into)
{
	if (in_host_register(x, number))
		return number;
	if (number == PC)
		t32_constant(&x->code, into, x->in.pc);
	else if (number == SP && has(x, OPTION_STACK))
		t32_add_constant(&x->code, into, SP, -delta(x));
	else
		state_load(x, into, slot_of(x, number));
	return into;
}

void put_value(struct translator *x, uint32_t number, uint32_t from, uint32_t through)
{
	if (in_host_register(x, number)) {
		if (number != from)
			t32_mov(&x->code, number, from);
	} else if (number == SP && has(x, OPTION_STACK)) {
		if (delta(x))
			t32_add_constant(&x->code, from, from, delta(x));
		t32_mov(&x->code, SP, from);
	} else {
		state_store(x, from, slot_of(x, number), through);
	}
}

bool is_plain(const struct translator *x)
{
	const struct instruction *in = &x->in;

	if (protects_state(x->layout) || in->op == A32_UNDEFINED)
		return false;
	if (!has(x, OPTION_REGISTERS))
		return true;
	if (!has(x, OPTION_FLAGS) &&
	    (instruction_reads_flags(in) || instruction_writes_flags(in)))
		return true;
	if (!has(x, OPTION_STACK) && bit(touched(in), SP))
		return true;
	return is_transfer(in) && (!has(x, OPTION_PROTECTION) || !has(x, OPTION_LINEAR));
}
