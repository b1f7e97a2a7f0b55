// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Executes single instructions: branches, and the choice of the rest. */
#include "interpret/interpret.h"

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
