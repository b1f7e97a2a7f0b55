// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Interprets access to CPSR and to the coprocessor registers that a kernel reads often. */
#include "interpret/interpret.h"

enum offload_stop interpret_status(struct step *step)
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
enum offload_stop interpret_coprocessor(struct step *step)
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
