// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Serves the supervisor calls of translated code, and branches to what is not translated yet. */
#include "runtime/internal.h"
#include "emit/t32.h"

void write_code(struct executor *x, uint32_t site, uint32_t code)
{
	uint8_t *at = x->cache.bytes + (site - x->cache.address);

	for (int i = 0; i < 4; i++)
		at[i] = code >> 8 * i;
	x->code_changed(x->owner);
}

/* The branch at a host address goes to another from now on. */
static void patch(struct executor *x, uint32_t site, uint32_t to)
{
	uint32_t old = cache_word(x, site);

	write_code(x, site, bit(old, 28) ? t32_branch(site, to) : t32_branch_if(bits(old, 9, 6), site, to));
}

static uint32_t chain(struct executor *x, uint32_t host)
{
	uint32_t at = (host + 3) & ~3u, target = cache_word(x, at), site = cache_word(x, at + 4);
	uint32_t flushes = x->cache.flushes, to = go_on(x, target);

	/* Where the branch stood there may be something else by now. */
	if (to && flushes == x->cache.flushes && target != RETURN_ADDRESS)
		patch(x, site, to & ~1u);
	return to;
}

/* A halfword of the code cache. */
static uint32_t cache_half(const struct executor *x, uint32_t host)
{
	return cache_word(x, host & ~3u) >> ((host & 2) ? 16 : 0) & 0xffff;
}

/* All other registers stay where they are. False: another mode, which the interpreter refuses. */
static bool change_control(struct executor *x, uint32_t change)
{
	uint32_t bits_of = (change & CONTROL_BITS) << 6, value, control = x->state->control;

	switch (change & ~CONTROL_BITS) {
	case CONTROL_SET:
		control |= bits_of;
		break;
	case CONTROL_CLEAR:
		control &= ~bits_of;
		break;
	default:
		value = x->raw[change & 15];
		if ((value ^ control) & 0x1f)
			return false;
		control = (control & ~0xc0u) | (value & 0xc0);
		break;
	}
	x->cpu.control = (control & ~0x20u) | (x->cpu.control & 0x20);
	give_control(x);
	return true;
}

uint32_t executor_call(struct executor *x, uint32_t host, uint32_t number)
{
	uint32_t guest, offset, known = 0;
	bool done;

	if (number < 16)
		x->calls[number]++;
	/* Where there is code already, the guest's registers are not needed. */
	if (number == CALL_EXIT)
		known = cache_find(&x->cache, cache_word(x, (host + 3) & ~3u));
	else if (number == CALL_DISPATCH)
		known = cache_find(&x->cache, *raw_scratch(x));
	if (known)
		return known;
	if (number == CALL_CONTROL && change_control(x, cache_half(x, host)))
		return (host + 2) | 1;
	take_registers(x);
	if (!state_is_sound(x, host - 2))
		return 0;
	switch (number) {
	case CALL_CHAIN:
		return chain(x, host);
	case CALL_EXIT:
		return go_on(x, cache_word(x, (host + 3) & ~3u));
	case CALL_DISPATCH:
		return go_on(x, *raw_scratch(x));
	case CALL_INTERPRET:
	case CALL_CONTROL:
	case CALL_STOP:
		if (!find_guest(x, host - 2, &guest, &offset))
			return stopped(x, OFFLOAD_INTERNAL);
		if (number == CALL_STOP)
			return interpret_and_go_on(x);
		if (!interpret_one(x))
			return 0;
		/* There may be no code behind a branch, wherever it leads. */
		if (place_of(&x->cpu) != x->stop_at.next || instruction_branches(&x->stop_at))
			return go_on(x, place_of(&x->cpu));
		add_to_hosted(x, stack_delta(x));
		give_registers(x);
		return host | 1;
	case CALL_WALK:
		if (!find_guest(x, host - 2, &guest, &offset))
			return stopped(x, OFFLOAD_INTERNAL);
		if (!memory_walk(x, *raw_scratch(x)))
			return interpret_and_go_on(x);
		give_registers(x);
		return (host - 2 - offset) | 1;
	case CALL_NATIVE:
		known = cache_half(x, host);
		x->stop = native_call(x, known, &done);
		if (x->stop == OFFLOAD_RUNNING && done)
			return go_on(x, x->cpu.r[PC]);
		find_guest(x, host - 2, &guest, &offset);
		return x->stop == OFFLOAD_RUNNING ? go_on(x, place_of(&x->cpu)) : 0;
	default:
		return stopped(x, OFFLOAD_INTERNAL);
	}
}

/* See translate/dispatch.c: the scratch register holds the address of half the entry, if lr does not say it. */
uint32_t thumb_target(struct executor *x, bool by_link)
{
	const struct offload_layout *layout = &x->job->layout;

	return go_on(x, by_link ? x->cpu.r[LR] : *raw_scratch(x) + 1 - (layout->table_base / 2 - layout->guest_base));
}

uint32_t arm_target(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;

	return go_on(x, *raw_scratch(x) - (layout->table_base - layout->guest_base));
}

uint32_t executor_missing_target(struct executor *x)
{
	take_registers(x);
	/* Where the branch stands is not known any more. */
	if (!state_is_sound(x, 0))
		return 0;
	/* An empty entry was read. The constant that goes with lr is half of no address that has one. */
	if (x->job->layout.thumb)
		return thumb_target(x, *raw_scratch(x) == table_of_link(&x->job->layout));
	return arm_target(x);
}
