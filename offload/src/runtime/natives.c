// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The function pruner: serves chosen functions of the kernel without running them. */
#include "runtime/executor.h"

static uint32_t allocate(struct executor *x, uint32_t bytes)
{
	uint32_t start = (x->arena_next + 63) & ~63u, end = x->job->arena_end;

	if (start > end || bytes > end - start)
		return 0;
	x->arena_next = start + bytes;
	for (uint32_t i = 0; i < bytes; i++)
		x->memory[start - x->job->layout.guest_base + i] = 0;
	return start;
}

enum offload_stop native_call(struct executor *x, uint32_t kind)
{
	struct offload_cpu *cpu = &x->cpu;
	uint32_t *r = cpu->r, function;
	enum offload_stop stop;
	uint64_t time_ns;

	x->native_calls++;
	switch (kind) {
	case NATIVE_NOTHING:
		break;
	case NATIVE_ZERO:
		r[0] = 0;
		break;
	case NATIVE_ONE:
		r[0] = 1;
		break;
	case NATIVE_DELAY_US:
		x->delay_us += r[0];
		break;
	case NATIVE_DELAY_MS:
		x->delay_us += 1000 * r[0];
		break;
	case NATIVE_DELAY_LOOPS:
		/* The kernel's argument is microseconds times 2^32/1,000,000, rounded up. */
		x->delay_us += ((uint64_t)r[0] * 1000000) >> 32;
		break;
	case NATIVE_IRQ_SAVE:
		r[0] = cpu->control | cpu->flags;
		cpu->control |= 0x80;
		break;
	case NATIVE_IRQ_RESTORE:
		cpu->control = (cpu->control & ~0x80u) | (r[1] & 0x80);
		break;
	case NATIVE_ALLOCATE:
		r[0] = allocate(x, r[0]);
		break;
	case NATIVE_CALL_NOW:
		/* struct work_struct: data, entry (two words), func. */
		stop = memory_load(x, r[2] + 12, 4, &function);
		if (stop != OFFLOAD_RUNNING)
			return stop;
		r[0] = r[2];
		r[PC] = function;
		return OFFLOAD_RUNNING;
	case NATIVE_TIME:
		time_ns = (uint64_t)x->delay_us * 1000;
		r[0] = (uint32_t)time_ns;
		r[1] = time_ns >> 32;
		break;
	default:
		return OFFLOAD_FALLBACK;
	}
	r[PC] = r[LR];
	return OFFLOAD_RUNNING;
}
