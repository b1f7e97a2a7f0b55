// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Keeps track of what the scratch register holds, and puts there what an instruction needs. */
#include "translate/translate.h"

bool uses_scratch(const struct translator *x, uint32_t number)
{
	return number == scratch(x);
}

uint32_t take_scratch(struct translator *x)
{
	x->holds = HOLDS_NOTHING;
	return scratch(x);
}

void state_address(struct translator *x, uint32_t number, uint32_t offset)
{
	t32_constant(&x->code, number, x->layout->state + offset);
}

/* Where the guest's value of the scratch register is. */
static void slot_address(struct translator *x, uint32_t number)
{
	state_address(x, number, offsetof(struct offload_state, scratch));
}

static void load_slot(struct translator *x)
{
	slot_address(x, scratch(x));
	t32_transfer(&x->code, KIND_LDR, scratch(x), scratch(x), 0);
}

bool computes(const struct instruction *in)
{
	if (in->op == A32_UNDEFINED)
		return false;
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

/* A set of registers, none of used, with the lowest numbers. */
static uint32_t spare(uint32_t used, uint32_t count)
{
	uint32_t list = 0;

	for (; count; count--)
		list |= ~(used | list) & ((used | list) + 1);
	return list;
}

static uint32_t take_lowest(uint32_t *list)
{
	uint32_t lowest = __builtin_ctz(*list);

	*list &= *list - 1;
	return lowest;
}

/* From the sum of the old value and its check: writes the new value, in number, and its check. */
static void write_slot(struct translator *x, uint32_t number, uint32_t address, uint32_t sum)
{
	t32_register(&x->code, T32_RSB, false, sum, number, sum, SHIFT_ROR, SCRATCH_SUM_PERIOD);
	t32_double(&x->code, false, number, sum, address, 0);
}

/* The scratch register's guest value becomes that of number. temporaries: what the sum is made of. */
static void replace_slot(struct translator *x, uint32_t number, uint32_t address, uint32_t temporaries)
{
	uint32_t u, v;

	if (!protects_state(x->layout)) {
		t32_transfer(&x->code, KIND_STR, number, address, 0);
		return;
	}
	u = take_lowest(&temporaries);
	v = take_lowest(&temporaries);
	t32_double(&x->code, true, u, v, address, 0);
	t32_add_to(&x->code, u, v);
	write_slot(x, number, address, u);
}

void load_guest_scratch(struct translator *x)
{
	uint32_t reads, writes, used;
	bool hosted = holds_base(x, scratch(x));

	if (x->holds == HOLDS_GUEST)
		return;
	x->holds = HOLDS_GUEST;
	reads = instruction_reads(&x->in);
	writes = instruction_writes(&x->in);
	used = reads | writes;
	/* Read and written: the address is needed twice. */
	if (bit(reads & writes, scratch(x)) && !bit(used, SP) && computes(&x->in) &&
	    translator_option(x, OPTION_STACK)) {
		uint32_t list = x->slot_registers = spare(used, 2);
		uint32_t address = take_lowest(&list), sum = take_lowest(&list);

		t32_push(&x->code, x->slot_registers);
		slot_address(x, address);
		t32_double(&x->code, true, scratch(x), sum, address, 0);
		t32_add_to(&x->code, sum, scratch(x));
		return;
	}
	if (hosted)
		t32_add_constant(&x->code, scratch(x), scratch(x), -delta(x));
	else
		load_slot(x);
}

void load_guest_scratch_to(struct translator *x, uint32_t d)
{
	if (holds_base(x, scratch(x))) {
		t32_add_constant(&x->code, d, scratch(x), -delta(x));
	} else {
		slot_address(x, d);
		t32_transfer(&x->code, KIND_LDR, d, d, 0);
	}
	forget_base(x, d);
}

void replace_guest_scratch(struct translator *x, uint32_t temporaries)
{
	uint32_t address = take_lowest(&temporaries);

	slot_address(x, address);
	replace_slot(x, scratch(x), address, temporaries);
	x->holds = HOLDS_GUEST;
}

void store_guest_scratch(struct translator *x)
{
	uint32_t list, address;

	x->holds = HOLDS_GUEST;
	if (!translator_option(x, OPTION_STACK)) {
		t32_transfer(&x->code, KIND_STR, scratch(x), SP, offsetof(struct offload_state, scratch) +
			     4 * x->pushed);
		return;
	}
	if (x->slot_registers) {
		list = x->slot_registers;
		address = take_lowest(&list);
		write_slot(x, scratch(x), address, take_lowest(&list));
		t32_pop(&x->code, x->slot_registers);
		x->slot_registers = 0;
		return;
	}
	list = spare(1u << scratch(x), SLOT_TEMPORARIES);
	t32_push(&x->code, list);
	replace_guest_scratch(x, list);
	t32_pop(&x->code, list);
}

void copy_to_guest_scratch(struct translator *x, uint32_t number)
{
	uint32_t list = spare(1u << scratch(x) | 1u << number, 2);

	slot_address(x, take_scratch(x));
	t32_push(&x->code, list);
	replace_slot(x, number, scratch(x), list);
	t32_pop(&x->code, list);
}

void forget_base(struct translator *x, uint32_t number)
{
	if (holds_base(x, number))
		x->holds = HOLDS_NOTHING;
}

uint32_t host_base_register(struct translator *x, uint32_t n)
{
	if (!uses_scratch(x, n) && is_host_address(x, n))
		return n;
	if (holds_base(x, n))
		return scratch(x);
	if (uses_scratch(x, n))
		load_guest_scratch(x);
	else
		take_scratch(x);
	if (!delta(x))
		return scratch(x);
	t32_add_constant(&x->code, scratch(x), n, delta(x));
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

bool needs_address(const struct translator *x, const struct instruction *in, uint32_t *n)
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
bool is_distance_enough(const struct translator *x, const struct instruction *in, int32_t offset)
{
	struct access a;

	if (!is_single(in))
		return false;
	a = access_of(in);
	return distance_of(&a) == offset && a.n != SP && a.n != PC && !uses_scratch(x, a.n) &&
		!uses_scratch(x, a.t) && a.t != SP && a.t != PC;
}

/* Whether the next accesses that need addresses need no more, up to one at another register. */
static bool is_distance_next(const struct translator *x, uint32_t n, int32_t offset)
{
	uint32_t index = x->index, other;

	for (uint32_t i = 0; i < LOOK_AHEAD; i++) {
		if (instruction_branches(&x->list[index]) && x->list[index].cond == COND_AL)
			return false;
		index = index_behind(x, index);
		if (index >= x->count || translator_is_label(x, index))
			return false;
		if (!needs_address(x, &x->list[index], &other))
			continue;
		if (!is_distance_enough(x, &x->list[index], offset))
			return false;
		if (other != n)
			return true;
	}
	return false;
}

bool has_distance(struct translator *x, uint32_t n, int32_t offset)
{
	if (!x->carries || offset == NO_DISTANCE || n == SP || n == PC || uses_scratch(x, n) || bit(x->hosted, n))
		return false;
	if (x->holds == HOLDS_DISTANCE && x->held_offset == offset)
		return true;
	if (holds_base(x, n) || !is_distance_next(x, n, offset))
		return false;
	t32_constant(&x->code, take_scratch(x), delta(x) + offset);
	x->holds = HOLDS_DISTANCE;
	x->held_offset = offset;
	return true;
}

void emit_held(struct translator *x, struct held held)
{
	take_scratch(x);
	if (held.what == HOLDS_DISTANCE)
		t32_constant(&x->code, scratch(x), delta(x));
	else if (held.what == HOLDS_GUEST || (held.what == HOLDS_BASE && uses_scratch(x, held.base)))
		load_slot(x);
	if (held.what == HOLDS_BASE)
		t32_add_constant(&x->code, scratch(x), held.base, delta(x));
	x->holds = held.what;
	x->held_base = held.base;
	x->held_offset = 0;
}

bool reads_scratch_soon(const struct translator *x)
{
	uint32_t index = x->index, n;

	for (uint32_t i = 0; i < LOOK_AHEAD; i++) {
		uint32_t to = x->list[index].op == A32_B ? index_of(x, x->list[index].value, index) : REGION_MAX;

		/* Back to a loop that needs it? */
		if (to <= index && x->settled[to].what == HOLDS_GUEST)
			return true;
		if (instruction_branches(&x->list[index]) && x->list[index].cond == COND_AL)
			return false;
		index = index_behind(x, index);
		if (index >= x->count || translator_is_label(x, index) ||
		    bit(instruction_writes(&x->list[index]), scratch(x)))
			return false;
		if (bit(instruction_reads(&x->list[index]), scratch(x)))
			return true;
		/* Two accesses without the scratch register cost as much as reading it again. */
		if (needs_address(x, &x->list[index], &n))
			return false;
	}
	return false;
}

bool keeps_guest_scratch(const struct translator *x)
{
	return x->carries && x->holds == HOLDS_GUEST && reads_scratch_soon(x);
}
