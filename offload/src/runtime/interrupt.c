// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Stops translated code between two guest instructions: for an interrupt, or for good. */
#include "runtime/internal.h"

bool executor_at_boundary(struct executor *x, uint32_t host)
{
	const struct region *region = cache_region_at(&x->cache, host);
	uint32_t offset, code, index;

	if (!region)
		return false;
	code = region_host_of(&x->cache, region);
	if (host < code || host >= code + region->code_bytes)
		return false;
	index = region_index_of(&x->cache, region, host, &offset);
	return offset == 0 && !region_it(region, index);
}

uint32_t executor_interrupt(struct executor *x, uint32_t host, uint32_t number)
{
	uint32_t guest, offset;

	take_registers(x);
	if (!state_is_sound(x, host))
		return 0;
	if (!find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	x->interrupts++;
	x->interrupted = x->cpu;
	x->in_interrupt = true;
	x->cpu.control |= 0x80;
	x->cpu.r[0] = number;
	x->cpu.r[SP] &= ~7u;
	x->cpu.r[LR] = INTERRUPT_RETURN_ADDRESS;
	return go_on(x, x->job->irq_handler);
}

void executor_stop_at(struct executor *x, uint32_t host, enum offload_stop stop)
{
	uint32_t guest, offset;

	take_registers(x);
	if (!state_is_sound(x, host))
		return;
	find_guest(x, host, &guest, &offset);
	x->stop = stop;
}

bool executor_name_stop(struct executor *x)
{
	return translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &x->stop_at);
}
