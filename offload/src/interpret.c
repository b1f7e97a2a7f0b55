// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Executes single instructions: data processing, branches, status, and the choice of the rest. */
#include "interpret.h"

bool a32_condition_holds(uint32_t condition, uint32_t flags)
{
	bool n = flags & FLAG_N, z = flags & FLAG_Z, c = flags & FLAG_C, v = flags & FLAG_V;
	bool holds;

	switch (condition >> 1) {
	case 0:
		holds = z;
		break;
	case 1:
		holds = c;
		break;
	case 2:
		holds = n;
		break;
	case 3:
		holds = v;
		break;
	case 4:
		holds = c && !z;
		break;
	case 5:
		holds = n == v;
		break;
	case 6:
		holds = n == v && !z;
		break;
	default:
		return true;
	}
	return holds != (condition & 1);
}

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

static enum offload_stop interpret_branch(struct step *step)
{
	const struct instruction *in = step->in;
	uint32_t target = in->value;

	if (a32_table[in->op].family == BRANCH_REGISTER)
		target = step_read(step, field_m(in->word));
	if ((target & 3) == 2)
		return OFFLOAD_UNPREDICTABLE;
	if (instruction_links(in))
		step->cpu->r[LR] = in->next;
	step->next = target;
	return OFFLOAD_RUNNING;
}

static enum offload_stop interpret_table_branch(struct step *step)
{
	const struct instruction *in = step->in;
	bool wide = in->op == A32_TBH;
	uint32_t index = step_read(step, field_m(in->word)), entry;
	uint32_t address = step_read(step, field_n(in->word)) + (index << wide);
	enum offload_stop stop;

	stop = step->bus->load(step->bus->owner, address, wide ? 2 : 1, &entry);
	if (stop == OFFLOAD_RUNNING)
		step->next = (in->pc + 2 * entry) | 1;
	return stop;
}

static enum offload_stop interpret_status(struct step *step)
{
	struct offload_cpu *cpu = step->cpu;
	uint32_t word = step->in->word, value, mask = 0;

	switch (step->in->op) {
	case A32_MRS:
		/* The instruction set does not show. */
		cpu->r[field_d(word)] = cpu->flags | cpu->ge | (cpu->control & ~0x20u);
		return OFFLOAD_RUNNING;
	case A32_CPS:
		if (bit(word, 17))
			return OFFLOAD_REFUSED;	/* another mode */
		mask = bits(word, 8, 6) << 6;
		cpu->control = bit(word, 18) ? cpu->control | mask : cpu->control & ~mask;
		return OFFLOAD_RUNNING;
	default:
		break;
	}
	value = step->in->op == A32_MSR_imm ? step->in->value : cpu->r[field_m(word)];
	/* Only what stays in this mode. */
	if (bit(word, 16)) {
		if ((value ^ cpu->control) & 0x1f)
			return OFFLOAD_REFUSED;
		mask |= 0xc0;
	}
	if (bit(word, 17)) {
		if (value & 0x200)
			return OFFLOAD_REFUSED;	/* big endian */
		mask |= 0x100;
	}
	cpu->control = (cpu->control & ~mask) | (value & mask);
	if (bit(word, 18))
		cpu->ge = value & 0xf0000;
	if (bit(word, 19))
		cpu->flags = value & 0xf8000000;
	return OFFLOAD_RUNNING;
}

/* CP15: the thread registers; barriers of older kernels; nothing else. */
static enum offload_stop interpret_coprocessor(struct step *step)
{
	uint32_t word = step->in->word, which = word & 0x00ef0fef;
	uint32_t *thread = 0;

	switch (which) {
	case 0x000d0f40:	/* c13, c0, 2 */
		thread = &step->cpu->thread[0];
		break;
	case 0x000d0f60:
		thread = &step->cpu->thread[1];
		break;
	case 0x000d0f80:
		thread = &step->cpu->thread[2];
		break;
	case 0x00070faa:	/* c7, c10, 5: DMB */
	case 0x00070f8a:	/* c7, c10, 4: DSB */
	case 0x00070f85:	/* c7, c5, 4: ISB */
		return step->in->op == A32_MCR ? OFFLOAD_RUNNING : OFFLOAD_REFUSED;
	default:
		return OFFLOAD_REFUSED;
	}
	if (step->in->op == A32_MCR)
		*thread = step->cpu->r[field_d(word)];
	else if (field_d(word) == PC)
		step->cpu->flags = (step->cpu->flags & FLAG_Q) | (*thread & 0xf0000000);
	else
		step->cpu->r[field_d(word)] = *thread;
	return OFFLOAD_RUNNING;
}

/* To where the step leads; the IT block, too. */
static void move_on(struct offload_cpu *cpu, const struct step *step)
{
	cpu->r[PC] = step->next & ~1u;
	cpu->control = (cpu->control & ~0x20u) | (step->next & 1) << 5;
	if (step->in->op == A32_IT)
		cpu->it = step->in->value;
	else
		cpu->it = (cpu->it & 7) ? (cpu->it & 0xe0) | (cpu->it << 1 & 0x1f) : 0;
}

enum offload_stop interpret(struct offload_cpu *cpu, const struct offload_bus *bus,
			    const struct instruction *in)
{
	struct step step = { .cpu = cpu, .bus = bus, .in = in, .next = in->next };
	enum offload_stop stop;

	if (in->op == A32_UNDEFINED)
		return OFFLOAD_UNDEFINED;
	if (instruction_unpredictable(in))
		return OFFLOAD_UNPREDICTABLE;
	if (!a32_condition_holds(in->cond, cpu->flags)) {
		move_on(cpu, &step);
		return OFFLOAD_RUNNING;
	}
	switch (a32_table[in->op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		stop = interpret_data(&step);
		break;
	case SINGLE:
	case EXTRA:
	case DOUBLE:
		stop = interpret_transfer(&step);
		break;
	case MULTIPLE:
		stop = interpret_multiple(&step);
		break;
	case EXCLUSIVE:
	case SWAP:
		stop = interpret_exclusive(&step);
		break;
	case BRANCH:
	case BRANCH_REGISTER:
		stop = interpret_branch(&step);
		break;
	case COMPARE_BRANCH:
		if ((cpu->r[field_n(in->word)] == 0) == (in->op == A32_CBZ))
			step.next = in->value;
		stop = OFFLOAD_RUNNING;
		break;
	case TABLE_BRANCH:
		stop = interpret_table_branch(&step);
		break;
	case HINT:
	case PRELOAD:
	case BARRIER:
		stop = OFFLOAD_RUNNING;
		break;
	case STATUS:
		stop = interpret_status(&step);
		break;
	case COPROCESSOR:
		stop = interpret_coprocessor(&step);
		break;
	case REFUSED:
		stop = in->op == A32_UDF ? OFFLOAD_UNDEFINED : OFFLOAD_REFUSED;
		break;
	default:
		stop = interpret_media(&step);
		break;
	}
	if (stop == OFFLOAD_RUNNING)
		move_on(cpu, &step);
	return stop;
}
