// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Loads and stores for which an optimisation is switched off: see translate_plain.c. */
#include "translate/plain/place.h"
#include "translate/plain/memory.h"

struct transfer {
	uint32_t kind;
	bool load, move, before, up;
	uint32_t n, m, type, amount;	/* m: NONE if the offset is a constant */
	int32_t start;			/* first address, from the base */
	int32_t change;			/* of the base */
	uint32_t count;
	uint8_t reg[16];
};

static void describe_list(const struct instruction *in, struct transfer *t)
{
	uint32_t word = in->word;
	int32_t bytes = 4 * count_bits(word & 0xffff);
	bool up = bit(word, 23), before = bit(word, 24);

	t->load = bit(word, 20);
	t->move = bit(word, 21);
	t->kind = t->load ? KIND_LDR : KIND_STR;
	t->change = up ? bytes : -bytes;
	t->start = (up ? 0 : -bytes) + (before == up ? 4 : 0);
	for (uint32_t i = 0; i < 16; i++)
		if (bit(word, i))
			t->reg[t->count++] = i;
}

static void describe(const struct translator *x, struct transfer *t)
{
	const struct instruction *in = &x->in;
	uint32_t word = in->word;
	struct access a;

	*t = (struct transfer){ .n = field_n(word), .m = NONE };
	if (a32_table[in->op].family == MULTIPLE) {
		describe_list(in, t);
		return;
	}
	if (a32_table[in->op].family == DOUBLE) {
		t->up = bit(word, 23);
		t->before = bit(word, 24);
		t->move = !t->before || bit(word, 21);
		t->load = !bit(word, 5);
		t->kind = t->load ? KIND_LDR : KIND_STR;
		if (bit(word, 22))
			t->change = t->up ? (int32_t)in->value : -(int32_t)in->value;
		else
			t->m = field_m(word);
		t->reg[t->count++] = field_d(word);
		t->reg[t->count++] = in->second;
	} else {
		a = access_of(&x->in);
		t->kind = a.kind;
		t->load = a.load;
		t->up = a.up;
		t->before = a.before;
		t->move = a.move;
		t->m = a.m;
		t->type = a.type;
		t->amount = a.amount;
		t->change = a.offset;
		t->reg[t->count++] = a.t;
	}
	t->start = t->before ? t->change : 0;
}

/* A transfer of registers that have no host register, or that moves such a base. */
static bool needs_values(const struct translator *x, const struct transfer *t)
{
	if (t->move && !in_host_register(x, t->n))
		return true;
	for (uint32_t i = 0; i < t->count; i++)
		if (!in_host_register(x, t->reg[i]) && !(t->load && t->reg[i] == PC))
			return true;
	return false;
}

/* How many temporary registers: for values, for the check, for the TLB. */
static uint32_t temporaries(const struct translator *x, const struct transfer *t)
{
	if (!has(x, OPTION_LINEAR))
		return 3;
	if (needs_values(x, t))
		return has(x, OPTION_STACK) ? 2 : 1;
	return has(x, OPTION_PROTECTION) ? 0 : 1;
}

/*
 * What is stored below the host's SP must become part of the stack first: an interrupt uses what is
 * below at any time.
 */
static bool moves_stack_first(const struct translator *x, const struct transfer *t)
{
	return !t->load && t->move && t->n == SP && has(x, OPTION_STACK);
}

bool is_plain_transfer(const struct translator *x)
{
	if (!is_plain(x) || !is_transfer(&x->in))
		return false;
	if (!has(x, OPTION_REGISTERS) || !has(x, OPTION_PROTECTION) || !has(x, OPTION_LINEAR))
		return true;
	return !has(x, OPTION_STACK) && bit(touched(&x->in), SP);
}

int32_t plain_moved_stack(const struct offload_layout *layout, const struct instruction *in)
{
	struct translator x = { .layout = layout, .in = *in };
	struct transfer t;

	if (!is_plain_transfer(&x))
		return 0;
	describe(&x, &t);
	return moves_stack_first(&x, &t) ? t.change : 0;
}

uint32_t plain_saved(const struct offload_layout *layout, const struct instruction *in)
{
	struct translator x = { .layout = layout, .in = *in };
	struct transfer t;

	if (!is_plain_transfer(&x) || !has(&x, OPTION_REGISTERS))
		return 0;
	describe(&x, &t);
	return pick(touched(in), layout->scratch, temporaries(&x, &t));
}

/* Registers that are needed for something else meanwhile; not on the stack, which is accessed. */
static void save(struct translator *x, uint32_t list)
{
	uint32_t at = take_scratch(x), index = 0;

	if (!list || !has(x, OPTION_REGISTERS))
		return;
	if (has(x, OPTION_STACK))
		t32_movw(&x->code, at, x->layout->state + offsetof(struct offload_state, saved));
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t offset = offsetof(struct offload_state, saved) + 4 * index;

		if (!bit(list, i))
			continue;
		if (has(x, OPTION_STACK))
			t32_transfer(&x->code, KIND_STR, i, at, 4 * index);
		else
			t32_transfer(&x->code, KIND_STR, i, SP, offset);
		index++;
	}
}

static void restore(struct translator *x, uint32_t list)
{
	uint32_t index = count_bits(list), last = NONE, base = SP, offset;

	if (!list || !has(x, OPTION_REGISTERS))
		return;
	offset = offsetof(struct offload_state, saved);
	if (has(x, OPTION_STACK)) {
		/* By way of one of them, which is the last. */
		base = last = lowest(list);
		t32_movw(&x->code, base, x->layout->state + offset);
		offset = 0;
	}
	for (int i = 7; i >= 0; i--) {
		if (!bit(list, i))
			continue;
		index--;
		t32_transfer(&x->code, KIND_LDR, i, base, offset + 4 * index);
	}
}

/* The guest address in the scratch register becomes a host address, or the executor takes over. */
static void to_host(struct translator *x, const struct transfer *t, uint32_t list)
{
	uint32_t a = scratch(x), u = lowest(list), v, w, over;
	uint32_t bytes = t->kind == KIND_LDR || t->kind == KIND_STR ? 4 * t->count :
		(t->kind & 0x20) ? 2 : 1;

	if (has(x, OPTION_PROTECTION) && has(x, OPTION_LINEAR)) {
		if (delta(x))
			t32_add_constant(&x->code, a, a, delta(x));
		return;
	}
	if (has(x, OPTION_LINEAR)) {
		t32_add_constant(&x->code, a, a, -x->layout->guest_base);
		t32_register(&x->code, T32_ORR, false, u, PC, a, SHIFT_LSR,
			     __builtin_ctz(x->layout->size));
		over = jump_if_zero(x, u);
		restore(x, list);
		t32_call(&x->code, CALL_STOP);
		land(x, over);
		t32_add_constant(&x->code, a, a, x->layout->host_base);
		return;
	}
	v = lowest(list & (list - 1));
	w = 31 - __builtin_clz(list);
	/* All of it in one page, and that page in the TLB. */
	t32_add_constant(&x->code, u, a, bytes - 1);
	t32_register(&x->code, T32_ORR, false, u, PC, u, SHIFT_LSR, 12);
	t32_bit_field(&x->code, 0xf3c0, a, v, 12, __builtin_ctz(TLB_PAGES) - 1);
	t32_movw(&x->code, w, x->layout->state + offsetof(struct offload_state, tlb));
	t32_register(&x->code, T32_ADD, false, v, w, v, SHIFT_LSL, 3);
	t32_transfer(&x->code, KIND_LDR, w, v, 0);
	t32_register(&x->code, T32_SUB, false, u, u, w, SHIFT_LSL, 0);
	over = jump_if_zero(x, u);
	restore(x, list);
	t32_call(&x->code, CALL_WALK);
	land(x, over);
	t32_transfer(&x->code, KIND_LDR, w, v, 4);
	t32_register(&x->code, T32_ADD, false, a, a, w, SHIFT_LSL, 0);
}

/* What the general way below has no registers for. */
static bool is_too_special(const struct translator *x, const struct transfer *t)
{
	bool stack = has(x, OPTION_STACK), to_pc = false;

	if (t->m != NONE) {
		bool special = !in_host_register(x, t->m), rotates = t->type == SHIFT_ROR && !t->amount;

		if (t->m == SP || t->m == PC || rotates)
			return true;
		/* Offset and base both come through the scratch register. */
		if (special && has(x, OPTION_REGISTERS) && (t->move || !in_host_register(x, t->n)))
			return true;
		if ((t->type == SHIFT_LSR || t->type == SHIFT_ASR) && !t->amount)
			return true;
	}
	for (uint32_t i = 0; i < t->count; i++) {
		if (t->reg[i] == PC && !t->load)
			return true;
		if (t->reg[i] == SP && stack && (t->load || moves_stack_first(x, t)))
			return true;
		/* The offset is needed behind the load. */
		if (t->load && t->move && t->reg[i] == t->m)
			return true;
		to_pc |= t->reg[i] == PC;
	}
	if (t->m != NONE && t->move && (to_pc || moves_stack_first(x, t)))
		return true;
	/* The branch's target is in the scratch register then. */
	return to_pc && t->move && t->n != SP && !in_host_register(x, t->n) && has(x, OPTION_REGISTERS);
}

static void transfer_address(struct translator *x, const struct transfer *t, uint32_t list)
{
	uint32_t a = take_scratch(x), base, index;

	if (t->m == NONE || !t->before) {
		base = value_in(x, t->n, a);
		if (t->start || base != a)
			t32_add_constant(&x->code, a, base, t->start);
		return;
	}
	if (has(x, OPTION_REGISTERS)) {
		base = value_in(x, t->n, a);
		index = value_in(x, t->m, a);
	} else {
		base = value_in(x, t->n, a);
		index = value_in(x, t->m, lowest(list));
	}
	t32_register(&x->code, t->up ? T32_ADD : T32_SUB, false, a, base, index, t->type, t->amount);
}

static void transfer_values(struct translator *x, const struct transfer *t, uint32_t list)
{
	uint32_t a = scratch(x), u = lowest(list), v = lowest(list & (list - 1)), last = t->count;

	/* The base comes last: whatever faults before is executed anew. */
	for (uint32_t i = 0; i < t->count; i++)
		if (t->load && t->reg[i] == t->n)
			last = i;
	for (uint32_t j = 0; j <= t->count; j++) {
		uint32_t i = j == t->count ? last : j, number = i < t->count ? t->reg[i] : NONE;

		if (number == NONE || (j == last && j != t->count) || (t->load && number == PC))
			continue;
		if (!t->load) {
			t32_transfer(&x->code, t->kind, value_in(x, number, u), a, 4 * i);
		} else if (in_host_register(x, number)) {
			t32_transfer(&x->code, t->kind, number, a, 4 * i);
		} else {
			t32_transfer(&x->code, t->kind, u, a, 4 * i);
			put_value(x, number, u, v);
		}
	}
	for (uint32_t i = 0; i < t->count; i++)
		if (t->load && t->reg[i] == PC)
			t32_transfer(&x->code, t->kind, a, a, 4 * i);
}

static void move_base(struct translator *x, const struct transfer *t, uint32_t list)
{
	uint32_t u = lowest(list), v = lowest(list & (list - 1)), base, index;

	if (in_host_register(x, t->n) || (t->n == SP && has(x, OPTION_STACK))) {
		base = t->n;
	} else {
		base = u;
		state_load(x, u, slot_of(x, t->n));
	}
	if (t->m == NONE) {
		t32_add_constant(&x->code, base, base, t->change);
	} else {
		index = value_in(x, t->m, scratch(x));
		t32_register(&x->code, t->up ? T32_ADD : T32_SUB, false, base, base, index, t->type,
			     t->amount);
	}
	if (base == u)
		state_store(x, u, slot_of(x, t->n), v);
}

void plain_transfer(struct translator *x)
{
	bool to_pc = false, on_stack, first;
	uint32_t wanted, list, from;
	struct transfer t;

	describe(x, &t);
	wanted = has(x, OPTION_REGISTERS) ? temporaries(x, &t) : 3;
	list = pick(has(x, OPTION_REGISTERS) ? touched(&x->in) : 0, scratch(x), wanted);
	if (is_too_special(x, &t) || count_bits(list) < wanted) {
		x->interpret = true;
		return;
	}
	for (uint32_t i = 0; i < t.count; i++)
		to_pc |= t.load && t.reg[i] == PC;
	on_stack = t.n == SP && has(x, OPTION_STACK);
	first = moves_stack_first(x, &t);
	save(x, list);
	transfer_address(x, &t, list);
	to_host(x, &t, list);
	if (first)
		move_base(x, &t, list);
	from = x->code.at;
	transfer_values(x, &t, list);
	add_fixup(x, from, FIX_SAVED, 0);
	if (t.move && !on_stack)
		move_base(x, &t, list);
	restore(x, list);
	if (t.move && on_stack && !first)
		move_base(x, &t, list);
	if (to_pc)
		emit_dispatch(x, scratch(x), 0);
}
