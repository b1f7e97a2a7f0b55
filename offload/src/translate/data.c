// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates data processing. */
#include "translate/translate.h"

/* --- data processing --- */

/* An operation with its registers as the host is to see them. */
struct data {
	uint32_t opcode;
	bool set;
	uint32_t d, n, m;
	bool scratch_taken;	/* a source is in the scratch register */
};

/* A register for a temporary value that none of the sources is in; -1 if there is none. */
static int temporary(struct translator *x, const struct data *data, uint32_t also)
{
	uint32_t d = data->d;

	if (!opcode_compares(data->opcode) && d != SP && d != PC && d != data->n &&
	    d != data->m && d != also && !uses_scratch(x, d))
		return d;
	if (data->scratch_taken)
		return -1;
	return take_scratch(x);
}

/*
 * Whether the scratch register's guest value goes to the destination instead of the scratch register, whose
 * content then stays: the destination is no source, and the value is not soon needed again.
 */
static bool goes_to_destination(const struct translator *x, const struct data *data)
{
	uint32_t d = data->d, s = field_s(x->in.word);
	bool by_shift = a32_table[x->in.op].family == DATA_SHIFTED;

	if (!delta(x) || x->holds == HOLDS_GUEST || opcode_compares(data->opcode) || d >= SP || uses_scratch(x, d) ||
	    bit(x->hosted, d) || d == data->n || d == data->m || (by_shift && (d == s || uses_scratch(x, s))))
		return false;
	return !reads_scratch_soon(x);
}

/*
 * Makes sources usable: PC is a constant, SP is not the guest's value, the scratch register's
 * value is in memory. At most one of them fits into the scratch register.
 */
static bool take_sources(struct translator *x, struct data *data, bool has_n, bool has_m)
{
	uint32_t *sources[2] = { has_n ? &data->n : NULL, has_m ? &data->m : NULL };
	uint32_t taken = 16;

	for (int i = 0; i < 2; i++) {
		uint32_t number;

		if (!sources[i])
			continue;
		number = *sources[i];
		if (number != PC && number != SP && !uses_scratch(x, number))
			continue;
		if (uses_scratch(x, number) && goes_to_destination(x, data)) {
			load_guest_scratch_to(x, data->d);
			*sources[i] = data->d;
			/* The second source is still the guest's. */
			if (!i && has_m && data->m == number)
				data->m = data->d;
			continue;
		}
		if (taken != 16 && taken != number)
			return false;
		if (taken == 16) {
			if (uses_scratch(x, number)) {
				load_guest_scratch(x);
			} else {
				take_scratch(x);
				if (number == PC)
					t32_constant(&x->code, scratch(x), x->in.pc);
				else if (delta(x))
					t32_add_constant(&x->code, scratch(x), SP, -delta(x));
				else
					t32_mov(&x->code, scratch(x), SP);
			}
		}
		taken = number;
		*sources[i] = scratch(x);
	}
	data->scratch_taken = taken != 16;
	return true;
}

/* The destination as an instruction may write it; finish_destination() puts it where it belongs. */
static uint32_t destination(struct translator *x, const struct data *data)
{
	if (data->d == SP || data->d == PC)
		take_scratch(x);
	return data->d == SP || data->d == PC || uses_scratch(x, data->d) ? scratch(x) : data->d;
}

static void finish_destination(struct translator *x, const struct data *data)
{
	if (opcode_compares(data->opcode))
		return;
	if (data->d == SP) {
		if (delta(x))
			t32_add_constant(&x->code, scratch(x), scratch(x), delta(x));
		t32_mov(&x->code, SP, scratch(x));
		x->holds = HOLDS_NOTHING;
	} else if (data->d == PC) {
		x->holds = HOLDS_NOTHING;
		/* In T32 these do not change the instruction set. */
		if (x->in.thumb)
			t32_immediate(&x->code, T32_ORR, false, scratch(x), scratch(x), 1);
		emit_dispatch(x, scratch(x), 0);
	} else if (uses_scratch(x, data->d)) {
		store_guest_scratch(x);
	} else {
		forget_base(x, data->d);
	}
}

/* T32's operation; d and n become 15 where it has no such operand. */
static enum t32_op host_operation(const struct data *data, uint32_t *d, uint32_t *n)
{
	static const uint8_t operations[17] = {
		T32_AND, T32_EOR, T32_SUB, T32_RSB, T32_ADD, T32_ADC, T32_SBC, T32_ADD,
		T32_AND, T32_EOR, T32_SUB, T32_ADD, T32_ORR, T32_ORR, T32_BIC, T32_ORN, T32_ORN,
	};

	*n = data->n;
	if (data->opcode == OP_MOV || data->opcode == OP_MVN)
		*n = PC;
	if (opcode_compares(data->opcode))
		*d = PC;
	return operations[data->opcode];
}

static void emit_register(struct translator *x, const struct data *data, uint32_t type,
			  uint32_t amount)
{
	uint32_t d = opcode_compares(data->opcode) ? 0 : destination(x, data), n;
	enum t32_op op = host_operation(data, &d, &n);

	if (data->opcode == OP_MOV && !data->set && type == SHIFT_LSL && !amount)
		t32_mov(&x->code, d, data->m);
	else
		t32_register(&x->code, op, data->set, d, n, data->m, type, amount);
	finish_destination(x, data);
}

/* The same operation on the constant's complement or opposite: where flags do not matter. */
static bool emit_opposite(struct translator *x, const struct data *data, uint32_t value)
{
	static const int8_t opposite[17] = {
		T32_BIC, -1, T32_ADD, -1, T32_SUB, T32_SBC, T32_ADC, -1,
		T32_BIC, -1, T32_ADD, T32_SUB, T32_ORN, T32_ORN, T32_AND, T32_ORR, T32_ORR,
	};
	bool arithmetic = !opcode_is_logical(data->opcode);
	uint32_t d, n;
	int encoded;

	if (opposite[data->opcode] < 0 || data->set || opcode_compares(data->opcode))
		return false;
	encoded = t32_modified(data->opcode == OP_ADD || data->opcode == OP_SUB ? -value : ~value);
	if (encoded < 0 || (arithmetic && !value))
		return false;
	d = destination(x, data);
	host_operation(data, &d, &n);
	t32_immediate(&x->code, opposite[data->opcode], false, d, n, encoded);
	finish_destination(x, data);
	return true;
}

/* A register for a temporary value that is on the stack meanwhile; -1: there is none. */
static int push_temporary(struct translator *x, const struct data *data, uint32_t s)
{
	int number = 0;

	if (!translator_option(x, OPTION_STACK) || data->d >= SP || data->opcode == OP_RSC)
		return -1;
	while ((uint32_t)number == data->n || (uint32_t)number == data->m || (uint32_t)number == s ||
	       (uint32_t)number == data->d || uses_scratch(x, number))
		number++;
	t32_push(&x->code, 1 << number);
	return number;
}

static void pop_temporary(struct translator *x, int pushed)
{
	if (pushed >= 0)
		t32_pop(&x->code, 1 << pushed);
}

/* C becomes what the guest's rotated constant makes of it; N and Z follow with the result. */
static void set_carry(struct translator *x, uint32_t through, bool carry)
{
	t32_immediate(&x->code, T32_ORR, true, through, PC,
		      t32_modified(carry ? 0x80000000 : 0x40000000));
}

static void immediate(struct translator *x, struct data *data, uint32_t value, bool rotated)
{
	bool logical = opcode_is_logical(data->opcode);
	bool sets = data->set || opcode_compares(data->opcode);
	int encoded = t32_modified(value), through, pushed = -1;
	uint32_t d, n;
	enum t32_op op;

	data->set = sets;
	/* T32 sets C only from constants that it rotates itself. */
	if (sets && logical && rotated && encoded < 0x400) {
		through = temporary(x, data, 16);
		if (through < 0)
			through = pushed = push_temporary(x, data, 16);
		if (through < 0) {
			x->interpret = true;
			return;
		}
		set_carry(x, through, value >> 31);
		pop_temporary(x, pushed);
	}
	if (encoded >= 0) {
		d = opcode_compares(data->opcode) ? 0 : destination(x, data);
		op = host_operation(data, &d, &n);
		t32_immediate(&x->code, op, sets, d, n, encoded);
		finish_destination(x, data);
		return;
	}
	if (emit_opposite(x, data, value))
		return;
	if (data->opcode == OP_MOV && !sets) {
		t32_constant(&x->code, destination(x, data), value);
		finish_destination(x, data);
		return;
	}
	through = temporary(x, data, 16);
	pushed = through < 0 ? push_temporary(x, data, 16) : -1;
	if (through < 0)
		through = pushed;
	if (through < 0) {
		x->interpret = true;
		return;
	}
	t32_constant(&x->code, through, value);
	d = opcode_compares(data->opcode) ? 0 : destination(x, data);
	op = host_operation(data, &d, &n);
	t32_register(&x->code, op, sets, d, n, through, SHIFT_LSL, 0);
	/* Before the destination is finished, which may have pushed a register before. */
	pop_temporary(x, pushed);
	finish_destination(x, data);
}

/* rsc d, n, operand is operand + ~n + C, flags too. */
static void reverse_subtract_with_carry(struct translator *x, struct data *data, bool by_register,
					uint32_t value, uint32_t type, uint32_t amount)
{
	int through = temporary(x, data, by_register ? data->m : 16), encoded = t32_modified(value);
	uint32_t d;

	/* The scratch register may hold n, which is not needed behind the complement. */
	if (through < 0 && data->n == scratch(x) && !(by_register && data->m == scratch(x)))
		through = scratch(x);
	if (through < 0 || (!by_register && encoded < 0)) {
		x->interpret = true;
		return;
	}
	x->holds = HOLDS_NOTHING;
	t32_register(&x->code, T32_ORN, false, through, PC, data->n, SHIFT_LSL, 0);
	d = data->d == SP || data->d == PC || uses_scratch(x, data->d) ? scratch(x) : data->d;
	if (by_register)
		t32_register(&x->code, T32_ADC, data->set, d, through, data->m, type, amount);
	else
		t32_immediate(&x->code, T32_ADC, data->set, d, through, encoded);
	finish_destination(x, data);
}

/* Whether adding it takes one instruction. */
static bool is_addend(uint32_t value)
{
	return value + 4095 < 8191 || t32_modified(value) >= 0 || t32_modified(-value) >= 0;
}

/* Register d becomes the guest's SP plus an offset: from another register that is near it, if that is shorter. */
static void stack_address(struct translator *x, uint32_t d, uint32_t offset)
{
	uint32_t near = SP;

	if (!is_addend(offset - delta(x)))
		for (near = 0; near < SP; near++)
			if (bit(x->stack_copies, near) && is_addend(offset - x->stack_offset[near]))
				break;
	if (near != SP) {
		t32_add_constant(&x->code, d, near, offset - x->stack_offset[near]);
	} else if (is_addend(offset - delta(x))) {
		t32_add_constant(&x->code, d, SP, offset - delta(x));
	} else {
		t32_add_constant(&x->code, d, SP, offset);
		if (delta(x))
			t32_add_constant(&x->code, d, d, -delta(x));
	}
	forget_base(x, d);
	if (x->in.cond == COND_AL && protects_state(x->layout)) {
		x->stack_copy = 1u << d;
		x->stack_offset[d] = offset;
	}
}

/* add and sub with SP as base and destination are the host's own; others see the guest's value. */
static bool stack_arithmetic(struct translator *x, const struct data *data, bool by_register,
			     uint32_t value)
{
	bool subtract = data->opcode == OP_SUB;

	if ((data->opcode != OP_ADD && !subtract) || data->set || data->n != SP)
		return false;
	if (by_register) {
		uint32_t amount = bits(x->in.word, 11, 7), type = bits(x->in.word, 6, 5);

		if (data->d != SP || type != SHIFT_LSL || amount > 3 || data->m >= SP || x->in.op == A32_ADD_rsr ||
		    x->in.op == A32_SUB_rsr)
			return false;
		if (uses_scratch(x, data->m))
			load_guest_scratch(x);
		t32_register(&x->code, subtract ? T32_SUB : T32_ADD, false, SP, SP, data->m, type, amount);
		return true;
	}
	value = subtract ? -value : value;
	if (data->d == SP) {
		t32_add_constant(&x->code, SP, SP, value);
		return true;
	}
	if (data->d == PC || uses_scratch(x, data->d))
		return false;
	stack_address(x, data->d, value);
	return true;
}

/*
 * add d, n, m with SP or PC as n and the scratch register as m, which both need the scratch
 * register: as a sum with a constant. A switch's add pc, pc, m is one. False: not this instruction.
 */
static bool add_to_special(struct translator *x, const struct data *data, uint32_t type, uint32_t amount)
{
	if (data->opcode != OP_ADD || data->set || !uses_scratch(x, data->m) ||
	    (data->n != SP && data->n != PC) || (type == SHIFT_ROR && !amount))
		return false;
	load_guest_scratch(x);
	x->holds = HOLDS_NOTHING;
	if (amount || type != SHIFT_LSL)
		t32_register(&x->code, T32_ORR, false, scratch(x), PC, scratch(x), type, amount);
	if (data->n == PC) {
		t32_add_constant(&x->code, scratch(x), scratch(x), x->in.pc);
	} else {
		t32_register(&x->code, T32_ADD, false, scratch(x), SP, scratch(x), SHIFT_LSL, 0);
		if (delta(x))
			t32_add_constant(&x->code, scratch(x), scratch(x), -delta(x));
	}
	if (data->d != SP && data->d != PC && !uses_scratch(x, data->d))
		t32_mov(&x->code, data->d, scratch(x));
	finish_destination(x, data);
	return true;
}

/* Moves and sums of one instruction or two, without the general way's temporaries. False: none of them. */
static bool translate_simple(struct translator *x, const struct data *data, bool by_register, bool by_shift)
{
	uint32_t type = bits(x->in.word, 6, 5), amount = bits(x->in.word, 11, 7), value = x->in.value;
	bool moves = by_register && data->opcode == OP_MOV && !data->set && !by_shift && !amount &&
		type == SHIFT_LSL;

	if (stack_arithmetic(x, data, by_register, value))
		return true;
	if (moves && data->m == SP && data->d != SP && data->d != PC && !uses_scratch(x, data->d)) {
		stack_address(x, data->d, 0);
		return true;
	}
	/* mov d, #low; movt d, #high */
	if (!by_register && data->opcode == OP_MOV && !data->set && data->d < SP && !uses_scratch(x, data->d) &&
	    load_constant_pair(x)) {
		forget_base(x, data->d);
		return true;
	}
	/* add d, pc, #x is a constant. */
	if (!by_register && data->n == PC && !data->set && data->d < SP && !uses_scratch(x, data->d) &&
	    (data->opcode == OP_ADD || data->opcode == OP_SUB)) {
		t32_constant(&x->code, data->d, data->opcode == OP_ADD ? x->in.pc + value :
			     x->in.pc - value);
	} else if (moves && data->m == PC && data->d != SP && data->d != PC && !uses_scratch(x, data->d)) {
		t32_constant(&x->code, data->d, x->in.pc);
	} else if (moves && data->m != SP && data->m != PC && data->d == PC && !uses_scratch(x, data->m) &&
		   !x->in.thumb) {
		emit_dispatch(x, data->m, 0);
		return true;
	} else if (moves && uses_scratch(x, data->m) && goes_to_destination(x, data)) {
		load_guest_scratch_to(x, data->d);
	} else if (moves && data->m < SP && uses_scratch(x, data->d) && !uses_scratch(x, data->m)) {
		copy_to_guest_scratch(x, data->m);
		return true;
	} else {
		return by_register && !by_shift && add_to_special(x, data, type, amount);
	}
	forget_base(x, data->d);
	return true;
}

/*
 * The operand shifted by a register becomes a register of its own, data->m; *pushed is that, if it
 * is on the stack meanwhile. Shifted in place where that is the scratch register. False: no
 * register is free.
 */
static bool shift_operand(struct translator *x, struct data *data, int *pushed)
{
	uint32_t s = field_s(x->in.word), type = bits(x->in.word, 6, 5);
	bool compares = opcode_compares(data->opcode), logical = opcode_is_logical(data->opcode);
	int through = temporary(x, data, s);

	if (through < 0 && data->m == scratch(x) && data->n != scratch(x))
		through = scratch(x);
	if (through < 0)
		through = *pushed = push_temporary(x, data, s);
	if (through < 0 || (data->opcode == OP_RSC && (uint32_t)through == data->d))
		return false;
	t32_shift(&x->code, type, logical && (data->set || compares), through, data->m, s);
	if ((uint32_t)through == scratch(x))
		x->holds = HOLDS_NOTHING;
	data->m = through;
	data->scratch_taken |= (uint32_t)through == scratch(x);
	return true;
}

void translate_data(struct translator *x)
{
	uint32_t word = x->in.word, type = bits(word, 6, 5), amount = bits(word, 11, 7);
	bool by_register = a32_table[x->in.op].family != DATA_IMMEDIATE;
	bool by_shift = a32_table[x->in.op].family == DATA_SHIFTED, has_n;
	int pushed = -1;
	struct data data = {
		instruction_opcode(&x->in), field_set_flags(word),
		field_d(word), field_n(word), field_m(word), false,
	};

	has_n = data.opcode != OP_MOV && data.opcode != OP_MVN;
	if (!by_register)
		data.m = 16;
	if (!has_n)
		data.n = 16;
	/* Returns from exceptions, and what sets flags from SP or into it. */
	if (data.set && !opcode_compares(data.opcode) && (data.d == SP || data.d == PC)) {
		x->interpret = true;
		return;
	}
	if (translate_simple(x, &data, by_register, by_shift))
		return;
	if (by_shift && uses_scratch(x, field_s(word))) {
		/* Neither SP nor PC has room beside it. */
		if (data.n == SP || data.n == PC || data.m == SP || data.m == PC)
			x->interpret = true;
		else
			load_guest_scratch(x);
	}
	if (x->interpret || (by_shift && field_s(word) == SP) ||
	    !take_sources(x, &data, has_n, by_register)) {
		x->interpret = true;
		return;
	}
	if (by_shift && data.opcode == OP_MOV) {
		t32_shift(&x->code, type, data.set, destination(x, &data), data.m, field_s(word));
		finish_destination(x, &data);
		return;
	}
	if (by_shift) {
		if (!shift_operand(x, &data, &pushed)) {
			x->interpret = true;
			return;
		}
		type = SHIFT_LSL;
		amount = 0;
	}
	if (opcode_compares(data.opcode))
		data.set = true;
	if (data.opcode == OP_RSC)
		reverse_subtract_with_carry(x, &data, by_register, x->in.value, type, amount);
	else if (by_register)
		emit_register(x, &data, type, amount);
	else
		immediate(x, &data, x->in.value, x->in.sets_carry);
	pop_temporary(x, pushed);
}
