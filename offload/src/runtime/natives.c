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

/* Waits; false: an interrupt comes first. */
static bool delay(struct executor *x, uint64_t us)
{
	uint64_t *until = &x->wait_until[x->in_interrupt];

	if (!*until)
		x->delay_us += (uint32_t)us;
	if (!x->wait)
		return true;
	if (!*until)
		*until = x->now(x->owner) + 1000 * us;
	while (x->now(x->owner) < *until)
		if (x->wait(x->owner, *until))
			return false;
	*until = 0;
	return true;
}

/* It continues the time that the job began with; with each delay it has grown by that. */
static uint64_t time_ns(struct executor *x)
{
	uint64_t base = x->job->time[0] | (uint64_t)x->job->time[1] << 32;

	if (!x->now)
		return base + (uint64_t)x->delay_us * 1000;
	return base + x->now(x->owner) - x->begun_ns;
}

/* struct completion begins with how often it is complete; UINT_MAX: for good. */
static enum offload_stop complete(struct executor *x, bool wait, bool *done)
{
	uint32_t address = x->cpu.r[0], count;
	enum offload_stop stop = memory_load(x, address, 4, &count);

	if (stop != OFFLOAD_RUNNING)
		return stop;
	if (wait && !count) {
		/* Only an interrupt can complete it here. */
		if (!x->wait || !executor_takes_interrupts(x))
			return OFFLOAD_FALLBACK;
		x->wait(x->owner, UINT64_MAX);
		*done = false;
		return OFFLOAD_RUNNING;
	}
	if (count == 0xffffffff)
		return OFFLOAD_RUNNING;
	return memory_store(x, address, 4, wait ? count - 1 : count + 1);
}

static uint64_t delay_us(uint32_t kind, uint32_t argument)
{
	switch (kind) {
	case NATIVE_DELAY_MS:
		return 1000ull * argument;
	case NATIVE_DELAY_LOOPS:
		/* The kernel's argument is microseconds times 2^32/1,000,000, rounded up. */
		return ((uint64_t)argument * 1000000) >> 32;
	default:
		return argument;
	}
}

static void mask_interrupts(struct offload_cpu *cpu, uint32_t masked)
{
	cpu->control = (cpu->control & ~0x80u) | (masked & 0x80);
}

enum offload_stop native_call(struct executor *x, uint32_t native, bool *done)
{
	struct offload_cpu *cpu = &x->cpu;
	uint32_t *r = cpu->r, function, kind = native & NATIVE_KIND_BITS;
	enum offload_stop stop = OFFLOAD_RUNNING;
	uint64_t ns;

	*done = true;
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
	case NATIVE_DELAY_MS:
	case NATIVE_DELAY_LOOPS:
		*done = delay(x, delay_us(kind, r[0]));
		break;
	case NATIVE_IRQ_MASK:
		mask_interrupts(cpu, 0x80);
		break;
	case NATIVE_IRQ_UNMASK:
		mask_interrupts(cpu, 0);
		break;
	case NATIVE_IRQ_SAVE:
		r[0] = cpu->control | cpu->flags;
		mask_interrupts(cpu, 0x80);
		break;
	case NATIVE_IRQ_RESTORE:
		mask_interrupts(cpu, r[1]);
		break;
	case NATIVE_ALLOCATE:
		r[0] = allocate(x, r[0]);
		break;
	case NATIVE_CALL_NOW:
		/* struct work_struct: data, entry (two words), func. */
		stop = memory_load(x, r[2] + 12, 4, &function);
		if (stop != OFFLOAD_RUNNING)
			return stop;
		x->native_calls++;
		r[0] = r[2];
		r[PC] = function;
		return OFFLOAD_RUNNING;
	case NATIVE_TIME:
		ns = time_ns(x);
		r[0] = (uint32_t)ns;
		r[1] = ns >> 32;
		break;
	case NATIVE_WAIT:
	case NATIVE_COMPLETE:
		stop = complete(x, kind == NATIVE_WAIT, done);
		break;
	default:
		return OFFLOAD_FALLBACK;
	}
	if (stop != OFFLOAD_RUNNING || !*done)
		return stop;
	x->native_calls++;
	x->held += !!(native & NATIVE_TAKES);
	x->held -= !!(native & NATIVE_GIVES);
	r[PC] = r[LR];
	return OFFLOAD_RUNNING;
}
