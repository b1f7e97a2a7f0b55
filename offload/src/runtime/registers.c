// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Moves the guest's registers between the host's registers, struct offload_state and struct offload_cpu. */
#include "runtime/internal.h"

/* r0 to lr; as a structure, so that the compiler copies them with few instructions. */
struct to_lr {
	uint32_t r[15];
};

void take_registers(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;
	struct offload_state *state = x->state;
	const uint32_t *from = (layout->options & OPTION_REGISTERS) ? x->raw : state->registers;

	*(struct to_lr *)x->cpu.r = *(const struct to_lr *)from;
	if (layout->options & OPTION_STACK)
		x->cpu.r[SP] = x->raw[SP] - stack_delta(x);
	else
		x->cpu.r[SP] = state->registers[SP];
	x->cpu.r[layout->scratch] = state->scratch;
	if (layout->options & OPTION_FLAGS) {
		x->cpu.flags = x->raw_flags & 0xf8000000;
	} else {
		x->cpu.flags = 0;
		for (int i = 0; i < 5; i++)
			x->cpu.flags |= state->flags[i] << (31 - i);
	}
	x->cpu.control = (state->control & ~0x20u) | (x->cpu.control & 0x20);
	x->cpu.it = 0;
	__builtin_memcpy(x->cpu.thread, state->thread, sizeof(state->thread));
}

void give_control(struct executor *x)
{
	x->state->control = x->cpu.control;
	x->state->status = (x->cpu.control & ~0x20u) | x->cpu.ge;
}

void give_registers(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;
	struct offload_state *state = x->state;
	uint32_t *to = (layout->options & OPTION_REGISTERS) ? x->raw : state->registers;

	/* In the scratch register nothing is expected. */
	*(struct to_lr *)to = *(const struct to_lr *)x->cpu.r;
	if (layout->options & OPTION_STACK) {
		x->raw[SP] = x->cpu.r[SP] + stack_delta(x);
	} else {
		state->registers[SP] = x->cpu.r[SP];
		x->raw[SP] = layout->state;
	}
	set_guest_scratch(state, x->cpu.r[layout->scratch]);
	x->raw_flags = x->cpu.flags;
	for (int i = 0; i < 5 && !(layout->options & OPTION_FLAGS); i++)
		state->flags[i] = x->cpu.flags >> (31 - i) & 1;
	give_control(x);
	__builtin_memcpy(state->thread, x->cpu.thread, sizeof(state->thread));
}

void add_to_hosted(struct executor *x, uint32_t addend)
{
	for (int i = 0; i < 15; i++)
		if (bit(x->hosted, i))
			x->cpu.r[i] += addend;
}

bool find_guest(struct executor *x, uint32_t host, uint32_t *guest, uint32_t *offset)
{
	const struct region *region = cache_region_at(&x->cache, host);
	uint32_t index;

	if (!region)
		return false;
	index = region_index_of(&x->cache, region, host, offset);
	*guest = region_guest_at(region, index);
	set_place(&x->cpu, *guest);
	x->cpu.it = region_it(region, index);
	x->hosted = region_hosted(region, index, *offset);
	add_to_hosted(x, -stack_delta(x));
	return true;
}

uint32_t cache_word(const struct executor *x, uint32_t host)
{
	uint32_t offset = host - x->cache.address;

	if (offset >= x->cache.size - 3)
		return 0;
	return x->cache.bytes[offset] | x->cache.bytes[offset + 1] << 8 |
		x->cache.bytes[offset + 2] << 16 | (uint32_t)x->cache.bytes[offset + 3] << 24;
}

void guard_state(struct executor *x)
{
	for (int i = 0; i < 3; i++)
		x->state->guard_before[i] = x->state->guard_behind[i] = STATE_GUARD;
}

/* A word of the writable part of struct offload_state that a wild store changed; NULL: none. */
static const uint32_t *damaged_word(const struct offload_state *state)
{
	for (int i = 0; i < 3; i++) {
		if (state->guard_before[i] != STATE_GUARD)
			return &state->guard_before[i];
		if (state->guard_behind[i] != STATE_GUARD)
			return &state->guard_behind[i];
	}
	return state->scratch + state->check != SCRATCH_SUM ? &state->scratch : NULL;
}

bool state_is_sound(struct executor *x, uint32_t host)
{
	const struct offload_layout *layout = &x->job->layout;
	const uint32_t *word = protects_state(layout) ? damaged_word(x->state) : NULL;
	uint32_t guest, offset;

	if (!word)
		return true;
	find_guest(x, host, &guest, &offset);
	x->stop_address = layout->state + 4 * (uint32_t)(word - x->state->guard_before) - stack_delta(x);
	x->stop = OFFLOAD_WILD_STORE;
	return false;
}
