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

/*
 * An access at a guest register, the scratch register being the distance to host addresses
 * (translate_memory.c). If its base moves before, it has: it goes back. False: another access.
 */
static bool take_back_base(struct executor *x, uint32_t code)
{
	uint32_t first = code & 0xffff, second = code >> 16;
	struct instruction in;
	struct access a;

	if (first >> 9 != 0x7c || (first & 0x80) || (second & 0x0fff) != x->job->layout.scratch ||
	    (first & 15) >= SP || (first & 15) == x->job->layout.scratch)
		return false;
	if (!translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &in))
		return false;
	a = access_of(&in);
	if (a.move && a.before)
		x->cpu.r[a.n] -= a.offset;
	return true;
}

uint32_t executor_fault(struct executor *x, uint32_t host, uint32_t accessed)
{
	uint32_t code = cache_word(x, host), guest, offset;

	x->faults++;
	take_registers(x);
	/* ldr pc, [scratch]: a branch to where the target table does not reach. */
	if (code == (0xf000u << 16 | 0xf8d0 | x->job->layout.scratch))
		return arm_target(x);
	/* ldr pc, [scratch, scratch]: the same in T32. */
	if (code == ((0xf000u | x->job->layout.scratch) << 16 | 0xf850 | x->job->layout.scratch))
		return thumb_target(x);
	x->stop_address = accessed;
	if (!find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	/* push {…}: nothing has happened yet */
	if ((code & 0xfe00) != 0xb400)
		take_saved(x);
	if (take_back_base(x, code))
		return interpret_and_go_on(x);
	if (stack_delta(x) && (x->job->layout.options & OPTION_PROTECTION)) {
		/* A base that is neither SP nor the scratch register was a host address just then. */
		uint32_t base = code & 15, first = code & 0xffff;

		if ((first >> 9 == 0x7c || first >> 9 == 0x74) && base != SP && base != PC &&
		    base != x->job->layout.scratch && !bit(x->hosted, base))
			x->cpu.r[base] -= stack_delta(x);
	}
	/* What the scratch register holds for the next instruction is not known: enter anew. */
	return interpret_and_go_on(x);
}
