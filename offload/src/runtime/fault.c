// SPDX-License-Identifier: Apache-2.0 OR MIT
/* An access of translated code faulted: restores the guest's registers and interprets the instruction. */
#include "runtime/internal.h"
#include "emit/t32.h"

/* What translate_plain.c had put away when an access faulted. */
static void take_saved(struct executor *x)
{
	struct instruction in;
	uint32_t list, index = 0;

	if (!translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &in))
		return;
	list = plain_saved(&x->job->layout, &in);
	for (uint32_t i = 0; i < 8; i++)
		if (bit(list, i))
			x->cpu.r[i] = x->state->saved[index++];
	x->cpu.r[SP] -= plain_moved_stack(&x->job->layout, &in);
}

/* The guest's registers before the access that faulted. */
static void undo(struct executor *x, const struct fixup *fixup)
{
	struct instruction in;

	switch (fixup->kind) {
	case FIX_HOST_BASE:
		x->cpu.r[fixup->number] -= stack_delta(x);
		break;
	case FIX_MOVED_BASE:
		if (translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &in))
			x->cpu.r[fixup->number] -= access_of(&in).offset;
		break;
	case FIX_RENAMED:
		memory_load(x, x->cpu.r[SP], 4, &x->cpu.r[fixup->number]);
		x->cpu.r[SP] += 4;
		break;
	case FIX_PAIR:
		break;
	default:
		take_saved(x);
		break;
	}
}

/* A pair at a host address is not aligned: from now on its instructions are executed elsewhere, one by one. */
static uint32_t leave_pair(struct executor *x, uint32_t host, uint32_t guest)
{
	uint32_t flushes = x->cache.flushes, to;

	x->translator.without_pairs = true;
	to = make_code(x, guest);
	x->translator.without_pairs = false;
	if (!to)
		return stopped(x, OFFLOAD_INTERNAL);
	if (flushes == x->cache.flushes)
		write_code(x, host, t32_branch(host, to & ~1u));
	give_registers(x);
	return to;
}

uint32_t executor_fault(struct executor *x, uint32_t host, uint32_t accessed)
{
	const struct region *region = cache_region_at(&x->cache, host);
	const struct fixup *fixup;
	uint32_t guest, offset;

	x->faults++;
	take_registers(x);
	if (!state_is_sound(x, host))
		return 0;
	x->stop_address = accessed;
	if (!region || !find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	fixup = region_fixup(region, host - region_host_of(&x->cache, region));
	/* A branch to where the target table does not reach: its kind is that of the table. */
	if (fixup && fixup->kind == FIX_TARGET) {
		/* A branch out of a loop has made guest addresses of its pointers already. */
		add_to_hosted(x, stack_delta(x));
		return x->job->layout.thumb ? thumb_target(x, fixup->number == LR) : arm_target(x);
	}
	if (fixup && fixup->kind == FIX_PAIR && (x->cpu.r[fixup->number] & 3))
		return leave_pair(x, host, guest);
	if (fixup)
		undo(x, fixup);
	/* What the scratch register holds for the next instruction is not known: enter anew. */
	return interpret_and_go_on(x);
}
