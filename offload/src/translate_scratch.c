// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Keeps the scratch register: what it holds, and what it shall hold where branches meet. */
#include "translate.h"
#include "t32.h"

bool uses_scratch(const struct translator *x, uint32_t number)
{
	return number == scratch(x);
}

uint32_t take_scratch(struct translator *x)
{
	x->holds = HOLDS_NOTHING;
	return scratch(x);
}

static uint32_t home_of_scratch(const struct translator *x)
{
	return x->layout->state + offsetof(struct offload_state, registers) + 4 * scratch(x);
}

static void load_home(struct translator *x)
{
	t32_movw(x, scratch(x), home_of_scratch(x));
	t32_transfer(x, KIND_LDR, scratch(x), scratch(x), 0);
}

/* Whether an instruction neither accesses memory nor branches, nor needs another temporary register. */
static bool stays_in_registers(const struct instruction *in)
{
	switch (a32_table[in->op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case MULTIPLY:
	case WIDE:
	case UNARY:
	case BIT_FIELD:
		return true;
	default:
		return false;
	}
}

void load_guest_scratch(struct translator *x)
{
	uint32_t reads, writes, used;

	if (x->holds == HOLDS_GUEST)
		return;
	x->holds = HOLDS_GUEST;
	reads = instruction_reads(&x->in);
	writes = instruction_writes(&x->in);
	used = reads | writes;
	/* Read and written: the address is needed twice. */
	if (bit(reads & writes, scratch(x)) && !bit(used, SP) && stays_in_registers(&x->in) &&
	    translator_option(x, OPTION_STACK)) {
		x->home = ~used & (used + 1);
		emit16(x, 0xb400 | x->home);	/* push */
		t32_movw(x, __builtin_ctz(x->home), home_of_scratch(x));
		t32_transfer(x, KIND_LDR, scratch(x), __builtin_ctz(x->home), 0);
		return;
	}
	load_home(x);
}

void store_guest_scratch(struct translator *x)
{
	uint32_t other = scratch(x) == 0;

	x->holds = HOLDS_GUEST;
	if (!translator_option(x, OPTION_STACK)) {
		t32_transfer(x, KIND_STR, scratch(x), SP, home_of_scratch(x) - x->layout->state +
			     4 * x->pushed);
		return;
	}
	if (x->home) {
		other = __builtin_ctz(x->home);
	} else {
		emit16(x, 0xb400 | 1 << other);	/* push */
		t32_movw(x, other, home_of_scratch(x));
	}
	t32_transfer(x, KIND_STR, scratch(x), other, 0);
	emit16(x, 0xbc00 | 1 << other);	/* pop */
	x->home = 0;
}

void copy_to_guest_scratch(struct translator *x, uint32_t number)
{
	t32_movw(x, take_scratch(x), home_of_scratch(x));
	t32_transfer(x, KIND_STR, number, scratch(x), 0);
}

void forget_base(struct translator *x, uint32_t number)
{
	if (x->holds == HOLDS_BASE && x->held_base == number)
		x->holds = HOLDS_NOTHING;
}

uint32_t host_base_register(struct translator *x, uint32_t n)
{
	if (uses_scratch(x, n)) {
		load_guest_scratch(x);
		if (delta(x)) {
			t32_add_constant(x, scratch(x), scratch(x), delta(x));
			x->holds = HOLDS_NOTHING;
		}
		return scratch(x);
	}
	if (is_host_address(x, n))
		return n;
	if (x->holds == HOLDS_BASE && x->held_base == n)
		return scratch(x);
	t32_add_constant(x, take_scratch(x), n, delta(x));
	x->holds = HOLDS_BASE;
	x->held_base = n;
	return scratch(x);
}

/* --- the distance from guest to host addresses --- */

enum { LOOK_AHEAD = 12 };

static bool is_single(const struct instruction *in)
{
	return in->op != A32_UNDEFINED && (a32_table[in->op].family == SINGLE ||
					   a32_table[in->op].family == EXTRA);
}

/* Whether it accesses memory by way of the scratch register; *n is its base then. */
static bool needs_address(const struct translator *x, const struct instruction *in, uint32_t *n)
{
	if (in->op == A32_UNDEFINED)
		return false;
	switch (a32_table[in->op].family) {
	case SINGLE:
	case EXTRA:
	case DOUBLE:
	case MULTIPLE:
	case EXCLUSIVE:
		*n = field_n(in->word);
		return *n != SP && *n != PC && !bit(x->hosted, *n) && in->op != A32_CLREX;
	case TABLE_BRANCH:
		*n = field_n(in->word);
		return true;
	default:
		*n = scratch(x);
		return false;
	}
}

/* With the offset that the distance goes to; the base moves only if that is 0. */
static bool is_distance_enough(const struct translator *x, const struct instruction *in, int32_t offset)
{
	struct access a;

	if (!is_single(in))
		return false;
	a = access_of(in);
	return distance_of(&a) == offset && a.n != SP && a.n != PC && !uses_scratch(x, a.n) &&
		!uses_scratch(x, a.t) && a.t != SP && a.t != PC;
}

static uint32_t index_now(const struct translator *x)
{
	return (x->address - (x->guest & ~1u)) / x->unit;
}

static uint32_t index_behind(const struct translator *x, uint32_t index)
{
	return ((x->list[index].next & ~1u) - (x->guest & ~1u)) / x->unit;
}

/* Whether the next access that needs an address is at another register and needs no more. */
static bool is_distance_next(const struct translator *x, uint32_t n, int32_t offset)
{
	uint32_t index = index_now(x), other;

	for (uint32_t i = 0; i < LOOK_AHEAD; i++) {
		if (instruction_branches(&x->list[index]) && x->list[index].cond == COND_AL)
			return false;
		index = index_behind(x, index);
		if (index >= x->count || translator_is_label(x, index))
			return false;
		if (needs_address(x, &x->list[index], &other))
			return other != n && is_distance_enough(x, &x->list[index], offset);
	}
	return false;
}

bool has_distance(struct translator *x, uint32_t n, int32_t offset)
{
	if (!x->carries || offset == NO_DISTANCE || n == SP || n == PC || uses_scratch(x, n) || bit(x->hosted, n))
		return false;
	if (x->holds == HOLDS_DISTANCE && x->held_offset == offset)
		return true;
	if ((x->holds == HOLDS_BASE && x->held_base == n) || !is_distance_next(x, n, offset))
		return false;
	t32_constant(x, take_scratch(x), delta(x) + offset);
	x->holds = HOLDS_DISTANCE;
	x->held_offset = offset;
	return true;
}

void emit_held(struct translator *x, struct held held)
{
	take_scratch(x);
	if (held.what == HOLDS_DISTANCE)
		t32_constant(x, scratch(x), delta(x));
	else if (held.what == HOLDS_GUEST)
		load_home(x);
	else if (held.what == HOLDS_BASE)
		t32_add_constant(x, scratch(x), held.base, delta(x));
	x->holds = held.what;
	x->held_base = held.base;
	x->held_offset = 0;
}

bool keeps_guest_scratch(const struct translator *x)
{
	uint32_t index = index_now(x);

	if (!x->carries || x->holds != HOLDS_GUEST)
		return false;
	for (uint32_t i = 0; i < LOOK_AHEAD; i++) {
		uint32_t to = ((x->list[index].value & ~1u) - (x->guest & ~1u)) / x->unit;

		/* Back to a loop that needs it? */
		if (x->list[index].op == A32_B && to <= index && x->settled[to].what == HOLDS_GUEST)
			return true;
		if (instruction_branches(&x->list[index]) && x->list[index].cond == COND_AL)
			return false;
		index = index_behind(x, index);
		if (index >= x->count || translator_is_label(x, index) ||
		    bit(instruction_writes(&x->list[index]), scratch(x)))
			return false;
		if (bit(instruction_reads(&x->list[index]), scratch(x)))
			return true;
	}
	return false;
}

/* --- where branches meet --- */

/* What a loop from its first to its last instruction would have the scratch register hold. */
static struct held of_loop(const struct translator *x, uint32_t first, uint32_t last)
{
	const struct held nothing = { HOLDS_NOTHING, 0, 0 };
	uint32_t base = 16, written = 0, read = 0;
	bool distance = true, one_base = true;

	for (uint32_t i = first; i <= last && i < x->count; i = index_behind(x, i)) {
		const struct instruction *in = &x->list[i];
		uint32_t n, writes = instruction_writes(in);

		if (!(x->reached[i / 32] >> (i % 32) & 1))
			return nothing;
		/* Behind a call, and where others come back to, it holds nothing. */
		if (instruction_links(in) || (i > first && (x->comeback[i / 32] >> (i % 32) & 1)))
			return nothing;
		if (needs_address(x, in, &n)) {
			bool enough = is_distance_enough(x, in, 0);

			distance &= enough;
			one_base &= base == 16 || base == n;
			base = n;
			/* Its own move the scratch register makes, too. */
			if (enough)
				writes &= ~(1u << n) | (bit(in->word, 20) ? 1u << field_d(in->word) : 0);
		}
		written |= writes;
		read |= instruction_reads(in);
	}
	if (base == 16)
		return bit(read, scratch(x)) ? (struct held){ HOLDS_GUEST, 0, 0 } : nothing;
	if (distance)
		return (struct held){ HOLDS_DISTANCE, 0, 0 };
	if (one_base && !bit(written, base) && !uses_scratch(x, base))
		return (struct held){ HOLDS_BASE, base, 0 };
	return nothing;
}

/* What all branches to it so far, and what is before it, agree on. */
static struct held of_meeting(const struct translator *x, uint32_t index, bool falls_in)
{
	const struct held nothing = { HOLDS_NOTHING, 0, 0 };
	uint32_t target = x->guest + x->unit * index;
	struct held held = held_now(x);
	bool any = falls_in;

	for (uint32_t i = 0; i < x->exits; i++) {
		if (x->exit[i].target != target)
			continue;
		if ((any && !same_held(x->exit[i].held, held)) || x->exit[i].held.hosted)
			return nothing;
		held = x->exit[i].held;
		any = true;
	}
	return any ? held : nothing;
}

void settle_label(struct translator *x, uint32_t index, bool falls_in, bool from_outside)
{
	struct held held = { HOLDS_NOTHING, 0, 0 };

	if (!x->carries) {
		x->holds = HOLDS_NOTHING;
		return;
	}
	if (x->back[index] && begin_loop(x, index))
		falls_in = false;
	if (x->back[index])
		held = of_loop(x, index, x->back[index]);
	else if (!from_outside)
		held = of_meeting(x, index, falls_in);
	held.hosted = x->hosted;
	x->settled[index] = held;
	x->outer[index] = NO_PLACE;
	if (!held.what && !held.hosted) {
		x->holds = HOLDS_NOTHING;
		return;
	}
	if (!x->back[index] || (falls_in && !from_outside && same_held(held, held_now(x)))) {
		x->holds = held.what;
		x->held_base = held.base;
		x->held_offset = 0;
	} else {
		x->outer[index] = x->at;
		x->it_count = 0;
		if (x->hosted)
			enter_loop(x);
		emit_held(x, held);
	}
	x->inner[index] = x->at;
}
